"""Compare the cost table with a loop over all (t, s) pairs with full tensors, and time held-out curves from statistics.

    python benchmarks/bench_costs.py [--quick]

The loop does what public code does for one schedule at a time: mean and variance of both Gaussians as tensors, then their
divergence, for every pair. Some pairs are timed and scaled to all T (T − 1) / 2, as the table states.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from measure import MIB, clocks, judge, least_seconds, peak_bytes, print_table

import dpstride
from dpstride.evaluate.comparison import compare
from dpstride.statistics.artefact import Statistics
from dpstride.statistics.noise import standard_normal


class Outputs:
    """A network of negligible cost that returns noise as its prediction, and v in [−1, 1]."""

    def __init__(self, learned: bool) -> None:
        self.learned = learned

    def __call__(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        eps = x * 0.9
        return torch.cat([eps, torch.sin(3.0 * x)], dim=1) if self.learned else eps


def statistics_of(T: int, shape: tuple[int, ...], samples: int, learned: bool, seed: int = 0) -> Statistics:
    process = dpstride.ForwardProcess.cosine(T)
    variance = "learned_range" if learned else "posterior"
    denoiser = dpstride.Denoiser(Outputs(learned), process, variance=variance, dtype=torch.float32)
    images = torch.randint(0, 256, (samples, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return dpstride.estimate(denoiser, images, seed=seed, progress=False)


def pair_by_pair(T: int, shape: tuple[int, ...], samples: int, pairs: int) -> tuple[np.ndarray, dict]:
    """Return the seconds of the loop for all pairs, scaled from ``pairs`` of them, and their costs in nats."""
    process = dpstride.ForwardProcess.cosine(T)
    denoiser = dpstride.Denoiser(Outputs(True), process, variance="learned_range", dtype=torch.float32)
    images = torch.randint(0, 256, (samples, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x = -1.0 + images.double() * (2.0 / 255.0)
    random, costs, spent = np.random.default_rng(1), {}, np.zeros(2)
    for _ in range(pairs):
        t = int(random.integers(2, T + 1))
        s = int(random.integers(1, t))
        noise = standard_normal(0, "forward", t, 0, samples, shape)
        prediction = denoiser(process.f[t] * x + process.g[t] * noise, t)
        assert prediction.fraction is not None
        start = clocks()
        low, high = float(process.posterior_variance(t, s)), float(process.g2_ts(t, s))
        _, b = process.posterior_mean(t, s)
        log_variance = prediction.fraction * math.log(high) + (1.0 - prediction.fraction) * math.log(low)
        gap = (float(b) * (x - prediction.x0_hat)).square()
        kl = 0.5 * (log_variance - math.log(low) + (low + gap) * torch.exp(-log_variance) - 1.0)
        costs[t, s] = float(kl.flatten(1).sum(1).mean())
        spent += clocks() - start
    return spent / pairs * (T * (T - 1) / 2), costs


def table(T: int, pairs: int) -> None:
    shape, samples = (3, 32, 32), 16
    baseline, costs = pair_by_pair(T, shape, samples, pairs)
    start = clocks()
    statistics = statistics_of(T, shape, samples, learned=True)
    binning = clocks() - start
    seconds = least_seconds(lambda: dpstride.elbo_costs(statistics), 3)
    memory = peak_bytes(lambda: dpstride.elbo_costs(statistics)) / MIB
    L = dpstride.elbo_costs(statistics).L
    difference = max(abs(L[pair] / cost - 1.0) for pair, cost in costs.items())
    ratio = baseline[0] / seconds[0]
    rows = [
        ("elbo_costs from statistics", f"{seconds[0]:.2f}", f"{ratio:.0f} x", f"{memory:.0f}"),
        (
            "the same and estimate's own work (noise, bins, decoder)",
            f"{binning[0] + seconds[0]:.2f}",
            f"{baseline[0] / (binning[0] + seconds[0]):.1f} x",
            "",
        ),
    ]
    print_table(
        f"learned_range, T = {T}, 3×32×32, 16 images. Baseline: every (t, s) pair with full tensors, {baseline[0]:.0f} s "
        f"({pairs} pairs timed and scaled to all); largest relative difference {difference:.0e}",
        ("", "seconds", "ratio", "peak MiB"),
        rows,
    )
    what = f"learned_range table, T = {T}"
    judge(what, "at least 100 × faster than the loop over pairs", f"{ratio:.0f} ×", ratio >= 100.0)
    judge(f"{what}, against {pairs} pairs", "relative difference at most 1e-8", f"{difference:.0e}", difference <= 1e-8)


def fixed(sizes: tuple[int, ...]) -> None:
    rows = []
    for T in sizes:
        statistics, slowest = statistics_of(T, (1, 4, 4), 32, learned=False), 0.0
        for variance in ("posterior", "upper", "optimal"):
            seconds = least_seconds(lambda v=variance, s=statistics: dpstride.elbo_costs(s, v), 3)
            memory = peak_bytes(lambda v=variance, s=statistics: dpstride.elbo_costs(s, v)) / MIB
            rows.append((T, variance, f"{seconds[0]:.3f}", f"{seconds[1]:.3f}", f"{memory:.0f}"))
            slowest = max(slowest, float(seconds[0]))
        judge(f"tables with fixed variance, T = {T}", "well under a second (0.5 s)", f"{slowest:.2f} s", slowest < 0.5)
    print_table("Tables with fixed variance", ("T", "variance", "seconds", "processor s", "peak MiB"), rows)


def curves(sizes: tuple[int, ...]) -> None:
    rows = []
    for T in sizes:
        schedules = dpstride.schedules_from(statistics_of(T, (1, 4, 4), 128, learned=False))
        heldout = statistics_of(T, (1, 4, 4), 128, learned=False, seed=1)
        seconds = least_seconds(lambda s=schedules, h=heldout: compare(s, h), 2)
        memory = peak_bytes(lambda s=schedules, h=heldout: compare(s, h)) / MIB
        rows.append((T, 3 * T, f"{seconds[0]:.2f}", f"{seconds[1]:.2f}", f"{memory:.0f}"))
        if T <= 1000:
            what = f"held-out curves of all budgets, T = {T}"
            judge(what, "under a second", f"{seconds[0]:.2f} s", bool(seconds[0] < 1.0))
    print_table(
        "Held-out bits/dim with standard errors of three strides at every budget, from statistics of 128 samples",
        ("T", "paths", "seconds", "processor s", "peak MiB"),
        rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    table(*((200, 20) if quick else (1000, 200)))
    fixed((500,) if quick else (1000, 4000))
    curves((200,) if quick else (1000, 4000))
