"""Solve for the unmasking schedules of many tokens: ``python benchmarks/masked.py [--tokens N] [--rounds K]``."""

from __future__ import annotations

import argparse
import time

import numpy as np

import dpstride


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=256)
    parser.add_argument("--samples", type=int, default=8)
    options = parser.parse_args()
    n = options.tokens
    # c_t as text has it, steep where little is known, with the noise of an estimate.
    rng = np.random.default_rng(0)
    shape = 1.0 + 3.0 * (np.arange(n + 1) / n)[:, None] ** 6
    nats = shape + 0.05 * rng.random((n + 1, options.samples))
    sizes = np.full(options.samples, n)
    statistics = dpstride.MaskedStatistics(dpstride.MaskedProcess(n), nats, sizes, np.arange(options.samples))
    dpstride.solve(dpstride.masked_costs(statistics), 2)  # compiled before the clock starts
    started = time.perf_counter()
    schedules = dpstride.masked_schedules(statistics, options.rounds)
    taken = time.perf_counter() - started
    even = dpstride.score_masked(statistics, dpstride.even_unmasking(n, options.rounds))[0]
    print(f"{n:,} tokens, every K up to {options.rounds}: {taken:.1f} s")
    print(f"K = {options.rounds}: best {schedules[options.rounds].bits:.4f}, even {even:.4f} bits/token")


if __name__ == "__main__":
    main()
