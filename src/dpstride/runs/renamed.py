"""Keywords that have another name now; the old one works for one release and warns."""

from __future__ import annotations

import warnings
from typing import Any


def renamed(function: str, new: str, value: Any, /, **old: Any) -> Any:
    """Return ``value``, given as ``new``, or what was given under the one old name in ``old``, with a warning."""
    ((name, given),) = old.items()
    if given is None:
        return value
    warnings.warn(f"{function}({name}=…) is now {function}({new}=…).", DeprecationWarning, stacklevel=3)
    if value is not None:
        raise ValueError(f"{name} is the old name of {new}: give {new} only.")
    return given
