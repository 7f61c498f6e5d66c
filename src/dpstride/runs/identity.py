"""The identity of a run: everything that its results depend on, and an id derived from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .behaviour import SUBJECTS, Behaviour, Subject

SHOWN = 4  # number of differences shown


class OtherWorkError(ValueError):
    """Refusal to resume work of another model, data set, option or version."""


def run_id(identity: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits; runs of equal ``identity`` (JSON values) have the same id, so files stay the same."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return every value that differs, as "seed (there 0, here 1)"; options of the user first, fingerprints last."""
    old, new = _flat(there), _flat(json.loads(json.dumps(here)))
    names = [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]
    names.sort(key=lambda name: "fingerprint" in name)
    return [f"{name} (there {old.get(name)!r:.80}, here {new.get(name)!r:.80})" for name in names]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def check_identity(
    where: object,
    there: dict[str, Any],
    here: dict[str, Any],
    remedy: str = "Give another output, or remove it.",
) -> dict[str, Any]:
    """Refuse work of another identity, and name the differences: first options of the user, then fingerprints.

    The model's name does not matter. If ``here`` has a "behaviour" of the model or of a sampler (`Behaviour.to_dict`), it must
    equal that of ``there`` up to rounding; a record without one is refused. Returns the identity to continue with: ``here``
    with the behaviour of ``there``, so that rounding cannot add up over many runs.
    """
    if different := differences(_compared(there), _compared(here)):
        more = f" and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
        raise OtherWorkError(f"{where} holds other work: {', '.join(different[:SHOWN])}{more} differ. {remedy}")
    recorded = [name for name in SUBJECTS if name in here]
    for name in recorded:
        _check_behaviour(where, there.get(name), here[name], remedy, of=SUBJECTS[name])
    return here | {name: there[name] for name in recorded}


def _compared(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that must be equal: not the model's name, nor its behaviour, in which rounding is allowed."""
    equal = {name: value for name, value in identity.items() if name not in SUBJECTS}
    if isinstance(model := equal.get("model"), dict):
        equal["model"] = {name: value for name, value in model.items() if name != "name"}
    return equal


def _check_behaviour(where: object, there: Any, here: Any, remedy: str, *, of: Subject) -> None:
    try:
        found = Behaviour.from_dict(there)
    except ValueError:
        raise OtherWorkError(
            f"{where} does not say how its {of.name} behaved (dpstride 0.1.0 did not record that), so work of an edited "
            f"{of.name} could be mixed in. {remedy}"
        ) from None
    if (difference := found.difference(Behaviour.from_dict(here), of)) is not None:
        raise OtherWorkError(
            f"{where} holds work of a {of.name} that behaves differently: {difference}. Undo the change to continue. {remedy}"
        )
