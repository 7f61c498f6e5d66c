"""Stage 4. Paths as plain grid indices, T … 0: checks, sets by number of steps, and the two forms in which files store them.

They are separate from schedules because unmasking schedules are paths too, without a process.
"""

from __future__ import annotations

import math
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from .reading.documents import read_json
from .reading.limits import UnreadableFileError

S = TypeVar("S")
Entry = tuple[tuple[int, ...], float | None, float | None]  # path, its score (bits/dim or bits/token), standard error
LISTED = 256  # paths of up to this many steps are listed in the JSON; longer ones are bit masks


class ScheduleFileError(ValueError):
    """A schedule file that cannot be read as one."""


class ByBudget(ABC, Generic[S]):
    """A set of schedules, one per number of steps."""

    entries: Mapping[int, Entry]

    @abstractmethod
    def __getitem__(self, budget: int) -> S: ...

    def __iter__(self) -> Iterator[S]:
        return (self[budget] for budget in self.budgets)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, budget: object) -> bool:
        return budget in self.entries

    @property
    def budgets(self) -> list[int]:
        """Numbers of steps, ascending."""
        return sorted(self.entries)


def check_path(steps: Sequence[int], T: int) -> tuple[int, ...]:
    """``steps`` as a tuple of ints that falls strictly to 0 from at most T, or a clear error."""
    try:
        path: tuple[int, ...] | None = tuple(map(int, steps))
    except (TypeError, ValueError):
        path = None
    if path is None or path != tuple(steps):
        raise ValueError(
            f"steps must be whole grid indices, not {steps!r:.200}. Give a list from the noise end down to 0."
        )
    if len(path) < 2 or path[-1] != 0 or path[0] > T or any(map(operator.le, path, path[1:])):
        shown = ", ".join(map(str, path[:6])) + (", …" if len(path) > 6 else "")
        raise ValueError(
            f"steps must fall strictly from at most T = {T} to 0, at least one step, but they are ({shown}) ending at "
            f"{path[-1] if path else None}."
        )
    return path


def path_to_json(steps: Sequence[int]) -> dict[str, Any]:
    """A path as stored in files: a list, or for long paths a mask whose bit i is set if the path visits grid index i."""
    if len(steps) - 1 <= LISTED:
        return {"steps": list(steps)}
    visited = np.zeros(steps[0] + 1, dtype=np.uint8)
    visited[list(steps)] = 1
    return {"mask": np.packbits(visited, bitorder="little").tobytes()[::-1].hex()}


def path_from_json(entry: Mapping[str, Any], T: int) -> list[int]:
    """Read what `path_to_json` wrote, for a grid of T steps."""
    if "steps" in entry:
        return list(entry["steps"])
    mask = int(entry["mask"], 16)
    if mask < 0 or mask.bit_length() > T + 1:
        raise ValueError(f"a path's mask has {mask.bit_length()} bits for a grid of {T + 1} points")
    visited = np.frombuffer(mask.to_bytes(T // 8 + 1, "little"), dtype=np.uint8)
    return [int(i) for i in np.flatnonzero(np.unpackbits(visited, bitorder="little"))[::-1]]


def finite(value: float | None) -> float | None:
    """A number as stored in files: None if it is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def entries_to_json(entries: Mapping[int, Entry], score: str) -> list[dict[str, Any]]:
    """The schedules of a set as stored in files; ``score`` is the name of their score there."""
    return [
        {"budget": budget, score: finite(value), "standard_error": finite(error), **path_to_json(path)}
        for budget, (path, value, error) in sorted(entries.items())
    ]


def entries_from_json(found: Sequence[Mapping[str, Any]], score: str, T: int) -> dict[int, Entry]:
    """Read what `entries_to_json` wrote, for a grid of T steps."""
    entries: dict[int, Entry] = {}
    for entry in found:
        path = check_path(path_from_json(entry, T), T)
        if (budget := len(path) - 1) != entry["budget"]:
            raise ValueError(f"the schedule of budget {entry['budget']!s:.20} has {budget} steps")
        if budget in entries:
            raise ValueError(f"it holds two schedules of budget {budget}")
        entries[budget] = path, finite(entry[score]), finite(entry["standard_error"])
    if not entries:
        raise ValueError("it holds no schedule")
    return entries


def read_schedule_file(path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any]:
    """The JSON object in a schedule file of this ``kind``."""
    try:
        document = read_json(path)
    except UnreadableFileError as error:
        raise ScheduleFileError(str(error)) from error
    found = document.get("format") if isinstance(document, dict) else type(document).__name__
    if found != kind:
        raise ScheduleFileError(
            f"{path}: format {found!r:.80} is not {kind!r}. Give a schedule file that dpstride wrote."
        )
    if (there := document.get("version")) != version:
        raise ScheduleFileError(
            f"{path}: version {there!r:.80} of the format is not {version}; write it again with this version of dpstride, "
            "or read it with the version that wrote it."
        )
    return dict(document)
