"""Measure the overhead of `estimate` and `sample` over their bare network passes.

    python benchmarks/bench_network.py [--quick] [--model fashion-simple] [--threads 2]

Baseline: only the forward passes of the same batches through the same network, under inference_mode. Baseline and
subject alternate, and the fastest of several runs counts for each. `estimate` runs at some steps of the model's own grid
with all its work for each, including all decoders and variances; filling in the other steps, which is not needed when
every step is estimated, is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import torch
from measure import MIB, clocks, judge, peak_bytes, print_table

import dpstride
from dpstride import zoo
from dpstride.compiling import OFTEN
from dpstride.runs.execution import Execution
from dpstride.statistics.data import Samples
from dpstride.statistics.estimate import estimate_samples

BATCH = 64


def bare_passes(denoiser: dpstride.Denoiser, steps: list[int], batches: int) -> Callable[[], None]:
    """Run one forward pass of `BATCH` samples for each t and batch."""
    times = [denoiser._time[torch.full((BATCH,), t)] for t in steps for _ in range(batches)]
    x = torch.randn(BATCH, 1, 28, 28)

    def run() -> None:
        with torch.inference_mode():
            for time in times:
                denoiser.network(x, time)

    return run


def in_turn(bare: Callable[[], object], ours: Callable[[], object], runs: int) -> list[str]:
    """Return table cells: seconds of both, their wall-clock ratio, our extra CPU time, and peak memory of both."""
    found, memory = [], np.zeros(2)
    for _ in range(runs):
        both = []
        for which, function in enumerate((bare, ours)):
            start = clocks()
            memory[which] = max(memory[which], peak_bytes(function))
            both.append(clocks() - start)
        found.append(both)
    (bare_wall, bare_processor), (wall, processor) = np.min(found, axis=0)
    return [
        f"{bare_wall:.2f}", f"{wall:.2f}", f"{wall / bare_wall:.3f}", f"{processor / bare_processor - 1.0:+.1%}",
        *(f"{each / MIB:.0f}" for each in memory),
    ]  # fmt: skip


def estimator(name: str, runs: int, count: int, samples: int) -> list[str]:
    denoiser = zoo.load(name)
    T = denoiser.process.T
    steps = np.linspace(1, T, count).round().astype(int).tolist()
    images = Samples.read(zoo.load_data("fashion-test")[:samples])

    def ours(at: Sequence[int] = steps) -> None:
        estimate_samples(denoiser, images, Execution(0, BATCH, progress=False), at, whole=False)

    ours([1, T])  # kernels are compiled, and what is cached is there
    cells = in_turn(bare_passes(denoiser, steps, samples // BATCH), ours, runs)
    ratio = float(cells[2])
    judge(
        f"estimate, {name} ({denoiser.variance} variance)",
        "at most 1.10 × the bare passes",
        f"{ratio:.3f} ×",
        ratio <= 1.1,
    )
    return [name, f"estimate, {count} t × {samples} images", *cells]


def sampler(name: str, runs: int, count: int) -> list[str]:
    denoiser = zoo.load(name)
    schedule = dpstride.even_stride(denoiser.process, count)

    def ours() -> None:
        dpstride.sample(denoiser, schedule, n=BATCH, batch_size=BATCH)

    dpstride.sample(denoiser, dpstride.even_stride(denoiser.process, 2), n=BATCH, batch_size=BATCH)
    cells = in_turn(bare_passes(denoiser, list(schedule.steps[:-1]), 1), ours, runs)
    ratio = float(cells[2])
    judge(f"sample, {name}", "at most 1.05 × the bare K passes", f"{ratio:.3f} ×", ratio <= 1.05)
    return [name, f"sample, {count} steps × {BATCH} images", *cells]


def compiled(name: str, runs: int) -> list[str]:
    """Compare passes of `Denoiser.faster(compile=True)`, after compilation, with the same passes of the original network."""
    denoiser = zoo.load(name)
    steps = np.linspace(1, denoiser.process.T, 8).round().astype(int).tolist()
    bare, fast = bare_passes(denoiser, steps, 1), zoo.load(name).faster(compile=True)
    x = torch.randn(BATCH, 1, 28, 28)

    def ours() -> None:
        for t in steps:
            fast(x, t)

    for _ in range(OFTEN // len(steps) + 1):
        ours()
    return [name, f"compiled passes, {len(steps)} × {BATCH} images", *in_turn(bare, ours, runs)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="very few passes, to see that it runs")
    parser.add_argument("--model", action="append", help="may be repeated; all embedded models unless given")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    models = arguments.model or list(zoo.names())
    quick = arguments.quick
    rows = [estimator(each, 1 if quick else 2, 2 if quick else 8, 64 if quick else 256) for each in models]
    rows += [sampler(each, 1 if quick else 10, 2 if quick else 8) for each in models]
    if not quick:
        rows.append(compiled(models[0], 8))
    print_table(
        f"Against the bare forward passes (baseline), {arguments.threads} threads",
        ("model", "work", "bare s", "ours s", "ratio", "processor", "bare, peak MiB", "ours, peak MiB"),
        rows,
    )
