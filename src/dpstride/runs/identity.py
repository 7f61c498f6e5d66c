"""What a run is: everything that its results depend on, and a name for it that the same run has again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


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
