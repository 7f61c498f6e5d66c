"""The identity of a run: everything that its results depend on, and a name for it that the same run has again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .behaviour import SUBJECTS, Behaviour, Subject

SHOWN = 4  # of the things in which other work differs


class OtherWorkError(ValueError):
    """Refusal to go on from work of another model, data set, option or version."""


def run_id(identity: Mapping[str, Any]) -> str:
    """A name of 16 hexadecimal digits; runs of equal ``identity`` (JSON values) have the same, so files stay the same."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Every value that differs, as "seed (there 0, here 1)"; what a person has said first, fingerprints last."""
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
    """Refuse work of another identity, saying what differs: first what a person has said, then fingerprints.

    How a model is called does not matter. Where ``here`` has a "behaviour" of the model or of a sampler
    (`Behaviour.to_dict`), it must be that of ``there`` but for rounding; a record without one does not do. Returned is the
    identity to go on with: ``here`` with the behaviour of ``there``, so that rounding cannot add up over many runs.
    """
    if different := differences(_compared(there), _compared(here)):
        more = f" and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
        raise OtherWorkError(f"{where} holds other work: {', '.join(different[:SHOWN])}{more} differ. {remedy}")
    recorded = [name for name in SUBJECTS if name in here]
    for name in recorded:
        _check_behaviour(where, there.get(name), here[name], remedy, of=SUBJECTS[name])
    return here | {name: there[name] for name in recorded}


def _compared(identity: dict[str, Any]) -> dict[str, Any]:
    """Facts that must be equal: without the model's name, and without its behaviour, in which rounding is allowed."""
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
            f"{where} holds work of a {of.name} that behaves differently: {difference}. Undo that to go on. {remedy}"
        )
