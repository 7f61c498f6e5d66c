"""Measure the overhead of `estimate`, `bits_per_dim` and `sample` with a network on an accelerator, and the speed of noise.

    python benchmarks/bench_accelerator.py [--quick]

The network simulates an accelerator: it sleeps as long as one would take for the batch, while the CPU is
free, and returns its input. Wall time over the time slept shows how well preparing batches and gathering results overlap.
An accelerator would also run the reductions of `estimate` (bins, decoder), which are left out here, and the algebra
around the network, which is included in the measurement. docs/performance.md lists what this cannot show.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from measure import clocks, judge, print_table

import dpstride
from dpstride import Denoiser, ForwardProcess
from dpstride.runs.execution import Execution
from dpstride.statistics import passes
from dpstride.statistics.data import Samples
from dpstride.statistics.estimate import estimate_samples
from dpstride.statistics.noise import standard_normal

BATCH = 128
NETWORKS = {"3×32×32, 40 ms": ((3, 32, 32), 0.040), "3×64×64, 350 ms": ((3, 64, 64), 0.350)}  # of 128 samples
PROCESS = ForwardProcess.linear(1000)
MOST, NOISE = 1.10, 150e6


class Sleeping:
    """A network that sleeps instead of computing; one call at a time, as on an accelerator."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.slept, self._alone = seconds, 0.0, threading.Lock()

    def __call__(self, x: torch.Tensor, time_fed: torch.Tensor) -> torch.Tensor:
        with self._alone:
            duration = self.seconds * len(x) / BATCH
            time.sleep(duration)
            self.slept += duration
        return x


@contextmanager
def accelerator(reductions: bool) -> Any:
    """Treat a network on the CPU as if on an accelerator, and leave out the reductions unless requested."""
    before = Denoiser.waits, passes._Row.sums

    def no_sums(row: Any, samples: Any, e: Any, *_: Any, **__: Any) -> Any:
        first = int(np.searchsorted(row.samples, samples[0]))
        # The one sum that is checked on the way; the other is 0.
        single = {"squared_error": e.square().sum(1).numpy(), "decoder_upper": np.zeros(len(samples))}
        return passes._Sums(slice(first, first + len(samples)), single, slice(0, 0))

    Denoiser.waits = True  # type: ignore[assignment, method-assign]
    if not reductions:
        passes._Row.sums = no_sums  # type: ignore[method-assign]
    try:
        yield
    finally:
        Denoiser.waits, passes._Row.sums = before  # type: ignore[method-assign]


def ratio(work: Callable[[Denoiser], object], shape: tuple[int, ...], seconds: float, reductions: bool) -> list[float]:
    """Return wall seconds, seconds slept, and their ratio."""
    network = Sleeping(seconds)
    denoiser = Denoiser(network, PROCESS, predicts="eps", shape=shape, dtype=torch.float32)
    with accelerator(reductions):
        start = clocks()
        work(denoiser)
        wall = float((clocks() - start)[0])
    return [wall, network.slept, wall / network.slept]


def jobs(shape: tuple[int, ...], count: int, steps: int) -> dict[str, Callable[[Denoiser], object]]:
    images = torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    data = Samples.read(images)
    at = np.linspace(1, PROCESS.T, steps).round().astype(int).tolist()
    schedule = dpstride.even_stride(PROCESS, steps)

    def estimate(denoiser: Denoiser) -> object:
        return estimate_samples(denoiser, data, Execution(0, BATCH, progress=False), at, whole=False)

    return {
        f"estimate, {steps} t × {count} samples": estimate,
        f"bits_per_dim, {steps} steps × {count} samples": lambda denoiser: dpstride.bits_per_dim(
            denoiser, images, schedule, batch_size=BATCH
        ),
        f"sample, {steps} steps × {count} samples": lambda denoiser: dpstride.sample(
            denoiser, schedule, count, batch_size=BATCH
        ),
        f"sample, {steps} steps × {BATCH} samples": lambda denoiser: dpstride.sample(
            denoiser, schedule, BATCH, batch_size=BATCH
        ),
    }


def overlap(quick: bool) -> None:
    rows = []
    for name, (shape, seconds) in list(NETWORKS.items())[: 1 if quick else None]:
        batches = 2 if quick or seconds > 0.1 else 8
        work = jobs(shape, batches * BATCH, 3 if quick else 16)
        first = next(iter(work))
        with accelerator(True):  # kernels are compiled
            warm = Denoiser(Sleeping(0.0), PROCESS, predicts="eps", shape=shape, dtype=torch.float32)
            jobs(shape, 2, 2)["estimate, 2 t × 2 samples"](warm)
        for what, function in work.items():
            for reductions in (False, True) if what == first else (False,):
                wall, slept, over = ratio(function, shape, seconds, reductions)
                label = f"{what}{', reductions on the processor' if reductions else ''}"
                rows.append([name, label, f"{wall:.2f}", f"{slept:.2f}", f"{over:.3f}"])
                if not reductions:
                    judge(f"{what}, {name}", f"at most {MOST:.2f} × the sleeping", f"{over:.3f} ×", over <= MOST)
    print_table(
        "Against a network that sleeps as an accelerator would", ("network", "work", "wall s", "slept s", "ratio"), rows
    )


def noise(quick: bool) -> None:
    """Measure noise elements per second, for batches of 128 samples of 3×32×32, with one thread and with two."""
    shape, batches = (3, 32, 32), 4 if quick else 64
    rows = []
    for threads in (1, 2):
        with ThreadPoolExecutor(threads) as pool:
            make = lambda step: standard_normal(0, "forward", step, 0, count=BATCH, shape=shape).numel()  # noqa: E731
            list(pool.map(make, range(1, 3)))
            start = clocks()
            made = sum(pool.map(make, range(3, 3 + batches)))
            speed = made / float((clocks() - start)[0])
        rows.append([threads, f"{speed / 1e6:.0f}"])
        if threads == 2:
            judge(
                "noise on two threads",
                f"at least {NOISE / 1e6:.0f} M elements/s",
                f"{speed / 1e6:.0f} M/s",
                speed >= NOISE,
            )
    print_table("Noise", ("threads", "million elements/s"), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="very few batches, to see that it runs")
    arguments = parser.parse_args()
    overlap(arguments.quick)
    noise(arguments.quick)
