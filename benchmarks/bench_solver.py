"""Compare the solver with the corrected Algorithm 1 in numpy: seconds, ratios, memory, scaling.

    python benchmarks/bench_solver.py [--quick] [--figures FOLDER]

Baseline and solver alternate in one process, and the fastest of several runs counts for each. When other work shares
the machine, CPU time (of all threads together) is more stable than wall-clock time: both are given.
Memory and first calls are measured in separate processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

import numpy as np
from measure import MIB, clocks, draw_scaling, judge, least_seconds, memory, print_table
from numpy.typing import NDArray

from dpstride.solver import Lines, Solution, solve
from dpstride.solver.compiled import threads

Array = NDArray[np.float64]
LEAST = {1000: 50, 4000: 100}  # times faster than Algorithm 1, by T


def model_like_lines(T: int, noise: float) -> tuple[Array, Array, Array]:
    """Return snr of a linear schedule, E Σ e² of a 3×32×32 model (with Monte Carlo noise, not monotone), and its decoder."""
    alpha_bar = np.cumprod(1 - np.linspace(1e-4, 0.02, T) * 1000 / T)
    snr = np.concatenate(([np.inf], alpha_bar / (1 - alpha_bar)))
    M = 60 / (1 + 0.05 * snr) * np.exp(noise * np.random.default_rng(0).normal(size=T + 1))
    return snr, M, 3700 + 1500 * np.log1p(100 * M)


def table_of(snr: Array, M: Array, decoder: Array) -> Array:
    L = np.full((len(snr), len(snr)), np.inf)
    for t in range(1, len(snr)):
        L[t, 1:t] = 0.5 * (snr[1:t] - snr[t]) * M[t]
    L[1:, 0] = decoder[1:]
    return L


def algorithm_1(L: Array, budgets: int) -> tuple[Array, Array]:
    """Return C[k, T] for k up to `budgets`, and the least seconds per budget (wall clock, CPU), which do not depend on k."""
    T = len(L) - 1
    C, D = np.full((budgets + 1, T + 1), np.inf), np.zeros((budgets + 1, T + 1), np.int64)
    C[0, 0] = 0.0
    seconds = []
    for k in range(1, budgets + 1):
        start = clocks()
        total = C[k - 1][None, :] + L  # Algorithm 1 prints C[k]
        D[k] = total.argmin(axis=1)
        C[k] = total[np.arange(T + 1), D[k]]
        seconds.append(clocks() - start)
    return C[:, -1], np.min(seconds, axis=0)


def any_table(sizes: Iterable[tuple[int, int, int]]) -> None:
    rows = []
    for T, timed_budgets, runs in sizes:
        random = np.random.default_rng(0).random((T + 1, T + 1))
        random[np.triu_indices(T + 1)] = np.inf
        for name, L in (("random", random), ("posterior + noise", table_of(*model_like_lines(T, 0.02)))):
            expected, per_budget = algorithm_1(L, timed_budgets)
            solution = solve(L)
            seconds = least_seconds(lambda L=L: solve(L), runs)
            baseline = T * np.minimum(per_budget, algorithm_1(L, timed_budgets)[1])
            difference = float(np.max(np.abs(solution.costs[1 : timed_budgets + 1] - expected[1:])))
            start = time.perf_counter()
            for K in range(1, T + 1):
                solution.path(K)
            reading = time.perf_counter() - start
            ratios = baseline / seconds
            row = [
                T,
                name,
                f"{baseline[0]:.2f}",
                f"{baseline[1]:.2f}",
                timed_budgets,
                f"{seconds[0]:.4f}",
                f"{seconds[1]:.4f}",
            ]
            rows.append([*row, f"{ratios[0]:.0f} x", f"{ratios[1]:.0f} x", f"{difference:.0e}", f"{reading:.3f}"])
            relative = float(np.max(np.abs(solution.costs[1 : timed_budgets + 1] / expected[1:] - 1.0)))
            if T not in LEAST:
                continue
            what, least = f"solve any table, T = {T}, {name}", LEAST[T]
            scaled = f"({timed_budgets} of {T} budgets of Algorithm 1 timed, scaled to all)"
            judge(what, f"at least {least} × Algorithm 1 in numpy", f"{ratios[0]:.0f} × {scaled}", ratios[0] >= least)
            judge(f"{what}, costs", "equal to 1e-12", f"{relative:.0e}", relative <= 1e-12)
    print_table(
        "Any table, all budgets. Baseline: corrected Algorithm 1 in numpy, the budgets timed scaled to all T",
        ("T", "table", "baseline s", "processor s", "budgets timed", "solve s", "processor s", "ratio", "of processor",
         "difference nats", "read all paths s"),
        rows,
    )  # fmt: skip


def lines(sizes: Iterable[tuple[int, int]]) -> None:
    rows = []
    for T, K in sizes:
        measured = in_new_process("lines", T, K)
        check = "-"
        if T <= 5000:
            given = model_like_lines(T, 0.02)
            expected = solve(table_of(*given), K).costs[1:]
            check = f"{np.max(np.abs(solve(Lines(*given), K).costs[1:] / expected - 1)):.0e}"
        times = f"{measured['seconds']:.3f}", f"{measured['processor']:.3f}"
        rows.append((T, K, *times, f"{measured['process'] / MIB:.0f}", check))
        what = f"posterior variance without a table, T = {T:,}, K up to {K}"
        if check != "-":
            judge(f"{what}, costs", "equal to the table solver's (1e-12)", check, float(check) <= 1e-12)
        judge(what, "seconds (10)", f"{measured['seconds']:.1f} s", measured["seconds"] < 10.0)
        judge(
            f"{what}, whole process", "under 1 GiB", f"{measured['process'] / MIB:.0f} MiB", measured["process"] < 2**30
        )
    print_table(
        "Posterior variance without a table, noisy E Σ e²",
        (
            "T",
            "budgets",
            "solve s",
            "processor s",
            "whole process, peak MiB",
            "relative difference to the table solver",
        ),
        rows,
    )


def memory_of_tables(sizes: Iterable[int]) -> None:
    rows = []
    for T in sizes:
        measured = in_new_process("table", T, T)
        kept = measured["kept"] / MIB
        rows.append((
            T, f"{8 * (T + 1) ** 2 / MIB:.0f}", f"{measured['above'] / MIB:.0f}", f"{kept:.0f}",
            f"{4 * T * T / MIB + kept:.0f}", f"{2 * 8 * (T + 1) ** 2 / MIB:.0f}",
        ))  # fmt: skip
        # The answer is C and D, each without the half that is infinite.
        most = 4 * T * T + measured["kept"]
        found = f"{measured['above'] / MIB:.0f} MiB above the table, the answer has {most / MIB:.0f}"
        judge(
            f"memory of solve, any table, T = {T}", "the table plus the answer", found, measured["above"] <= 1.05 * most
        )
    print_table(
        "Memory in MiB, any table, all budgets, in a process of its own",
        ("T", "the table", "peak above it", "kept: D", "half of C, and D", "Algorithm 1: C and D"),
        rows,
    )


def scaling(figures: str | None, divisor: int) -> None:
    def seconds_of(kind: str, T: int, K: int) -> float:
        given = model_like_lines(T, 0.02)
        if kind == "lines":
            return float(least_seconds(lambda: solve(Lines(*given), K), 3)[1])
        L = table_of(*given)
        return float(least_seconds(lambda: solve(L, K), 3)[1])

    sizes: dict[str, list[tuple[str, int, int]]] = {
        "any table, all budgets, against T": [("table", T // divisor, T // divisor) for T in (500, 1000, 2000, 4000)],
        f"any table, T = {3000 // divisor}, against K": [
            ("table", 3000 // divisor, K // divisor) for K in (48, 96, 192, 384)
        ],
        "lines, K = 64, against T": [("lines", T // divisor, 64) for T in (6250, 12500, 25000, 50000)],
        f"lines, T = {25000 // divisor}, against K": [("lines", 25000 // divisor, K) for K in (16, 32, 64, 128)],
    }
    rows, curves = [], {}
    for name, points in sizes.items():
        x = [K if name.endswith("K") else T for _, T, K in points]
        y = [seconds_of(*point) for point in points]
        slope = np.polyfit(np.log(x), np.log(y), 1)[0]
        curves[name] = (x, y, slope)
        rows.append((name, " ".join(map(str, x)), " ".join(f"{s:.4f}" for s in y), f"{slope:.2f}"))
    print_table("Scaling, processor seconds", ("what", "at", "seconds", "slope of the logarithms"), rows)
    if figures:
        draw_scaling(curves, figures)


# A learned variance has the most kernels; the network does nothing, so that only ours is timed, and torch's import.
FIRST_ESTIMATE = (
    "import torch, dpstride; "
    "d = dpstride.Denoiser(lambda x, t: torch.cat([x, x], 1), dpstride.ForwardProcess.cosine(20), predicts='x0', "
    "variance='learned_range'); "
    "dpstride.estimate(d, torch.zeros(64, 1, 28, 28, dtype=torch.uint8), progress=False)"
)


def first_calls() -> None:
    code = {
        "import dpstride": "import dpstride",
        "first solve, nothing cached": "import numpy, dpstride.solver as s; s.solve(numpy.random.rand(40, 40)).path(3)",
        "the same, cached": "import numpy, dpstride.solver as s; s.solve(numpy.random.rand(40, 40)).path(3)",
        "first lines": "import dpstride.solver as s; s.solve(s.Lines([9, 3, 1], [0, 1, 1], [0, 1, 1]), 2).path(2)",
        "first estimate, nothing cached": FIRST_ESTIMATE,
    }
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        for name, statement in code.items():
            timed = f"import time; w, c = time.perf_counter(), time.process_time(); {statement}"
            report = "print(time.perf_counter() - w, time.process_time() - c)"
            run = [sys.executable, "-c", f"{timed}; {report}"]
            wall, cpu = map(float, subprocess.check_output(run, env=environment, text=True).split())
            rows.append((name, f"{wall:.2f}", f"{cpu:.2f}"))
            most = 0.2 if name == "import dpstride" else 10.0
            judge(name, f"under {most:g} s", f"{wall:.2f} s", wall < most)
    print_table("First calls, each in a new process", ("what", "seconds", "of processor"), rows)


def in_new_process(kind: str, T: int, K: int) -> dict[str, float]:
    run = [sys.executable, __file__, "--measure", kind, str(T), str(K)]
    return dict(json.loads(subprocess.check_output(run, text=True)))


def measure(kind: str, T: int, K: int) -> None:
    """Print the peak memory of one solve as JSON, from a process that has already compiled and holds the input."""

    given = model_like_lines(T, 0.02)
    L = table_of(*given) if kind == "table" else np.empty(0)

    def work() -> Solution:
        return solve(Lines(*given), K) if kind == "lines" else solve(L, K)

    solve(Lines(*model_like_lines(100, 0.02)), 100)
    solve(table_of(*model_like_lines(600, 0.02)))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts again from here
    before = memory("VmRSS")
    start = clocks()
    solution = work()
    seconds, processor_seconds = clocks() - start
    peak = memory("VmHWM")
    kept = solution._paths.D.nbytes + solution.costs.nbytes
    times = {"seconds": seconds, "processor": processor_seconds}
    print(json.dumps({**times, "above": peak - before, "process": peak, "kept": kept}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--figures", help="the folder in which to draw the scaling")
    parser.add_argument("--measure", nargs=3, metavar=("KIND", "T", "K"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        kind, T, K = options.measure
        measure(kind, int(T), int(K))
        return
    print(f"{threads()} threads, load {os.getloadavg()[0]:.1f} at the start")
    if options.quick:
        any_table([(300, 300, 3)])
        lines([(2000, 32)])
        memory_of_tables([300])
        scaling(options.figures, 10)
        first_calls()
        return
    any_table([(1000, 100, 7), (4000, 12, 3)])
    memory_of_tables([1000, 4000])
    lines([(4000, 256), (100_000, 256)])
    scaling(options.figures, 1)
    first_calls()


if __name__ == "__main__":
    main()
