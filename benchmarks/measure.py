"""How every benchmark measures and prints: baseline and subject in turn in one process, the least of several runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MIB = 2**20


def clocks() -> Array:
    return np.array([time.perf_counter(), time.process_time()])


def least_seconds(function: Callable[[], object], runs: int) -> Array:
    """(clock, processor), each the least of the runs."""
    seconds = []
    for _ in range(runs):
        start = clocks()
        function()
        seconds.append(clocks() - start)
    return np.asarray(np.min(seconds, axis=0))


def print_table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    lines = [[str(cell) for cell in row] for row in (list(head), *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    print(f"\n{title}")
    for line in lines:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
