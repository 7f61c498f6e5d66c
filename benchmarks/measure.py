"""Shared measuring and printing for benchmarks: baseline and subject alternate in one process, and the fastest run counts.

Tables and verdicts are printed, and if DPSTRIDE_BENCH is set also appended to that file, one line of JSON each, from which
`benchmarks/page.py` writes docs/performance.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MIB = 2**20
VARIABLE = "DPSTRIDE_BENCH"


def clocks() -> Array:
    return np.array([time.perf_counter(), time.process_time()])


def least_seconds(function: Callable[[], object], runs: int) -> Array:
    """Return (wall clock, CPU) seconds, each the least of the runs."""
    seconds = []
    for _ in range(runs):
        start = clocks()
        function()
        seconds.append(clocks() - start)
    return np.asarray(np.min(seconds, axis=0))


def peak_bytes(function: Callable[[], object]) -> float:
    """Return the peak memory of this process during a call, above its use before; NaN where Linux does not report it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = memory("VmRSS")
    except OSError:
        function()
        return float("nan")
    function()
    return float(memory("VmHWM") - before)


def memory(field: str) -> int:
    """Return the bytes of a field of this process's status: VmRSS, or VmHWM for the peak."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def print_table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    lines = [[str(cell) for cell in row] for row in (list(head), *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    print(f"\n{title}")
    for line in lines:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)
    _keep({"kind": "table", "title": title, "head": lines[0], "rows": lines[1:]})


def judge(what: str, target: str, measured: str, met: bool) -> None:
    """Report whether this measurement meets a target."""
    print(f"  {'met' if met else 'NOT MET'}: {what}: {measured} (target: {target})", flush=True)
    _keep({"kind": "target", "what": what, "target": target, "measured": measured, "met": bool(met)})


def draw_scaling(curves: dict[str, tuple[list[int], list[float], float]], folder: str | os.PathLike[str]) -> None:
    """Plot time against T and against K, one figure each, with the log-log slopes."""
    from matplotlib.figure import Figure

    for letter in "TK":
        plot = Figure(figsize=(7, 4.5), layout="constrained")
        axes = plot.subplots()
        for name, (x, y, slope) in curves.items():
            if not name.endswith(letter):
                continue
            (points,) = axes.loglog(x, y, "o", label=f"{name.rsplit(',', 1)[0]}: slope {slope:.2f}")
            middle = np.exp(np.mean(np.log(y)) + slope * (np.log(x) - np.mean(np.log(x))))
            axes.loglog(x, middle, "-", color=points.get_color(), linewidth=1)
        axes.set(xlabel=letter, ylabel="processor seconds")
        axes.legend(fontsize=8)
        file = Path(folder) / f"performance-{letter}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        plot.savefig(file, dpi=120)
        print(f"  drawn in {file}")


def _keep(entry: dict[str, Any]) -> None:
    if name := os.environ.get(VARIABLE):
        with open(name, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
