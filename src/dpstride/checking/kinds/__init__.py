"""Other descriptions of a model, one file per kind; each lists its changes as records, which no other module names."""

from __future__ import annotations

from dataclasses import replace

from ..description import Change
from .arrangements import ARRANGEMENTS
from .modes import MODES
from .processes import PROCESSES
from .readings import READINGS, readings_for
from .scales import SCALES
from .times import TIMES

CHANGES: tuple[Change, ...] = tuple(
    replace(change, kind=kind)
    for kind, changes in (
        ("time_input", TIMES),
        ("process", PROCESSES),
        ("data scale", SCALES),
        ("arrangement", ARRANGEMENTS),
        ("mode", MODES),
    )
    for change in changes
)

__all__ = ["CHANGES", "READINGS", "readings_for"]
