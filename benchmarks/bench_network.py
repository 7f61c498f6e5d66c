"""What `estimate` and `sample` add to the bare network passes they make.

    python benchmarks/bench_network.py [--quick] [--model fashion-simple] [--threads 1]

Baseline: the same batches through the same network, under inference_mode, with nothing else done to them. Baseline and
subject alternate, and the least of several runs counts for both.
"""

from __future__ import annotations

import argparse

import torch
from measure import clocks, print_table

import dpstride
from dpstride import zoo


def bare_passes(denoiser: dpstride.Denoiser, batches: list[tuple[int, int]], shape: tuple[int, ...]) -> float:
    """Seconds of one forward pass for each (t, samples)."""
    inputs = [(torch.randn(count, *shape), denoiser._time[torch.full((count,), t)]) for t, count in batches]
    start = clocks()
    with torch.inference_mode():
        for x, time in inputs:
            denoiser.network(x, time)
    return float((clocks() - start)[0])


def estimator(name: str, runs: int, times: int, samples: int) -> tuple[object, ...]:
    denoiser = zoo.load(name)
    process = denoiser.process.subset(sorted({1, *range(denoiser.process.T, 0, -(denoiser.process.T // times))}))
    on_grid, images = denoiser.on_grid(process), zoo.load_data("fashion-test")[:samples]
    batches = [(int(t), 64) for t in range(1, process.T + 1) for _ in range(samples // 64)]
    bare, whole = [], []
    for _ in range(runs):
        bare.append(bare_passes(on_grid, batches, (1, 28, 28)))
        start = clocks()
        dpstride.estimate(on_grid, images, batch_size=64, progress=False)
        whole.append(float((clocks() - start)[0]))
    return (
        name,
        f"estimate, {process.T} t × {samples} images",
        f"{min(bare):.2f}",
        f"{min(whole):.2f}",
        f"{min(whole) / min(bare):.3f}",
    )


def sampler(name: str, runs: int, steps: int, samples: int) -> tuple[object, ...]:
    denoiser = zoo.load(name)
    schedule = dpstride.even_stride(denoiser.process, steps)
    batches = [(t, samples) for t in schedule.steps[:-1]]
    bare, whole = [], []
    for _ in range(runs):
        bare.append(bare_passes(denoiser, batches, (1, 28, 28)))
        start = clocks()
        dpstride.sample(denoiser, schedule, n=samples, batch_size=samples)
        whole.append(float((clocks() - start)[0]))
    return (
        name,
        f"sample, {steps} steps × {samples} images",
        f"{min(bare):.2f}",
        f"{min(whole):.2f}",
        f"{min(whole) / min(bare):.3f}",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", action="append", help="may be repeated; all embedded models unless given")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    models = arguments.model or list(zoo.names())
    runs, times = (1, 2) if arguments.quick else (3, 8)
    found = [estimator(each, runs, times, 64 if arguments.quick else 256) for each in models]
    found += [sampler(each, runs, 4 if arguments.quick else 16, 64) for each in models]
    print_table(
        f"Wall time against the bare forward passes, {arguments.threads} threads",
        ("model", "work", "bare s", "ours s", "ratio"),
        found,
    )
