"""Stage 3. Statistics from few counts: c_t is smooth except where few tokens are known, so it is interpolated linearly.

The first counts leave n, n − 1, n − 2, n − 4, … tokens masked, where c_t bends most. Three neighbouring counts give the
curvature κ there, with which a line over a gap of g tokens is off by at most κ g²/8. The cost of a schedule per token is a
weighted mean of c_t, so no schedule is off by more than the worst gap. Gaps are halved until none is off by more than the
tolerance, as far as curvatures exceed their own standard errors. Below n/16 masked tokens the first line is extrapolated: the
mean of so few tokens is noisy, and they are a small part of any schedule.

The Gaussian `adaptive/` does the same for costs of pairs of steps, with fitted variances; costs here are linear in one curve,
so only the error of that curve matters.
"""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.storage import read_whole
from ..runs.workers import current
from .costs import LN2
from .denoiser import MaskedDenoiser
from .estimate import estimate_masked
from .statistics import MaskedStatistics
from .tokens import Tokens

ALL = 32  # number of tokens up to which every count is evaluated
LOWEST = 16  # no count below length/LOWEST is evaluated
DEFAULT_TOLERANCE = 0.01


def estimate_masked_adaptively(
    denoiser: MaskedDenoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    checkpoint: str | os.PathLike[str] | None = None,
    **estimation: Any,
) -> MaskedStatistics:
    """Mean −ln p of masked tokens at every count, with the network run at few of them.

    Args:
        denoiser: the model.
        data: `Tokens`, or data as for `Tokens.of`.
        samples: number of samples to use, from the first on; all when None.
        seed: random seed of the masks.
        tolerance: largest error of the interpolation between evaluated counts, bits/token.
        checkpoint: file for the evaluated counts; called again after an interruption, the work resumes.
        **estimation: batch_size, length and progress, as for `estimate_masked`.

    Returns:
        Statistics of every count (`MaskedStatistics.filled`); ``evaluated`` has the counts at which the network ran.
        Only those are in the file.
    """
    if not tolerance > 0.0:
        raise ValueError(
            f"tolerance must be above 0 bits/token, not {tolerance!r:.40}. To evaluate every count, use estimate_masked."
        )
    tokens = Tokens.read(data, samples)
    length = int(tokens.sizes.max()) if estimation.get("length") is None else estimation["length"]
    counts = first_counts(length) | _counts_there(checkpoint, length)
    while True:
        wanted = None if len(counts) == length else sorted(counts)
        statistics = estimate_masked(denoiser, tokens, seed=seed, counts=wanted, checkpoint=checkpoint, **estimation)
        more = next_counts(statistics, tolerance)
        if not more:
            return statistics.filled()
        counts |= more


def first_counts(length: int) -> set[int]:
    """Counts that are always evaluated."""
    if length <= ALL:
        return set(range(1, length + 1))
    known = [0, *(2**i for i in range(length.bit_length()))]
    lowest = length // LOWEST
    return {lowest, *(length - k for k in known if length - k > lowest)}


def next_counts(statistics: MaskedStatistics, tolerance: float) -> set[int]:
    """Counts to evaluate next; none if interpolation is accurate enough."""
    return {(a + b) // 2 for (a, b), off in gap_errors(statistics).items() if off > tolerance}


def gap_errors(statistics: MaskedStatistics) -> dict[tuple[int, int], float]:
    """Error of interpolation over each gap between evaluated counts, bits/token, beyond that explained by noise."""
    counts = statistics.process.counts[1:].astype(np.float64)
    curvature = np.zeros(len(counts))
    for i in range(1, len(counts) - 1):
        a, m, b = counts[i - 1 : i + 2]
        weights = 2.0 * np.array([1.0 / ((m - a) * (b - a)), -1.0 / ((m - a) * (b - m)), 1.0 / ((b - m) * (b - a))])
        found = weights @ statistics.nats[i : i + 3]  # [N]; row 0 of nats is for no masked token
        error = found.std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else 0.0
        curvature[i] = max(abs(found.mean()) - error, 0.0)
    return {
        (int(a), int(b)): max(curvature[i], curvature[i + 1]) * (b - a) ** 2 / (8.0 * LN2)
        for i, (a, b) in enumerate(itertools.pairwise(counts))
        if b - a > 1.0
    }


def _counts_there(checkpoint: str | os.PathLike[str] | None, length: int) -> set[int]:
    """Counts in the file of an earlier call, to resume from; `estimate_masked` checks that it is of the same work."""
    found = None if checkpoint is None else read_whole(Path(checkpoint), MaskedStatistics.load)
    counts = np.zeros(0, dtype=np.int64) if found is None else found.process.counts[1:]
    counts = current().share_arrays({"counts": counts} if current().main else None)["counts"]
    return {int(count) for count in counts if count <= length}
