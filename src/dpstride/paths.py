"""Stage 4. Paths as plain grid indices, T … 0: checked, and in the two forms in which files keep them.

They stand apart from schedules because unmasking schedules are paths too, without a process.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LISTED = 256  # paths of up to this many steps are listed in the JSON; longer ones are bit masks


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
    """A path as files keep it: a list, or if it is long a mask whose bit i is set when the path visits grid index i."""
    if len(steps) - 1 <= LISTED:
        return {"steps": list(steps)}
    visited = np.zeros(steps[0] + 1, dtype=np.uint8)
    visited[list(steps)] = 1
    return {"mask": np.packbits(visited, bitorder="little").tobytes()[::-1].hex()}


def path_from_json(entry: Mapping[str, Any], T: int) -> list[int]:
    """Read what `path_to_json` wrote, of a grid of T steps."""
    if "steps" in entry:
        return list(entry["steps"])
    mask = int(entry["mask"], 16)
    if mask < 0 or mask.bit_length() > T + 1:
        raise ValueError(f"a path's mask has {mask.bit_length()} bits for a grid of {T + 1} points")
    visited = np.frombuffer(mask.to_bytes(T // 8 + 1, "little"), dtype=np.uint8)
    return [int(i) for i in np.flatnonzero(np.unpackbits(visited, bitorder="little"))[::-1]]


def finite(value: float | None) -> float | None:
    """A number as files keep it: None where it is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)
