"""Stage 3. Spot checks of tokens: a few (count, sample) places of resumed rows are recomputed.

Probes are the same in every run, so an edit of the model could leave them unchanged; these places are drawn afresh, like those
for images in `statistics.spots`. The first unit of work is checked in the same way, sample by sample, since its batches are as
large as any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..calling import NonFiniteError
from ..statistics.spots import ALGEBRA, Deviation, farthest
from ..statistics.units import batches
from .passes import MaskedPasses

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def draw(known: Booleans, count: int) -> tuple[Integers, Integers]:
    """Draw ``count`` known places [T + 1, N], spread over the rows and different in every run: grid indices and samples."""
    rng, rows = np.random.default_rng(), np.flatnonzero(known.any(axis=1))
    t = rows[((rng.random(count) + np.arange(count)) * (rows.size / count)).astype(np.int64)]
    return t, np.array([rng.choice(np.flatnonzero(known[row])) for row in t], dtype=np.int64)


def deviation(
    passes: MaskedPasses, nats: Array, known: Booleans, tolerance: float, *, count: int, at_once: int = 1
) -> Deviation | None:
    """Recompute ``count`` ``known`` places in batches of ``at_once``; None if all agree with ``nats`` up to rounding.

    Logits with an error vector Δ change the mean of m tokens by at most 2 |Δ|/√m; |Δ| may be ``tolerance``, in the unit of
    logits.
    """
    if not known.any():
        return None
    return farthest(_again(passes, nats, draw(known, count), tolerance, at_once=at_once))


def _again(
    passes: MaskedPasses, nats: Array, places: tuple[Integers, Integers], tolerance: float, *, at_once: int
) -> Iterator[Deviation]:
    t, samples = places
    for part in batches(len(t), at_once):
        for index, sample, now in zip(t[part], samples[part], _means(passes, t[part], samples[part]), strict=True):
            before = float(nats[index, sample])
            masked = max(1, int(passes.masked(np.array([index]), np.array([sample])).sum()))
            allowed = 2.0 * tolerance / math.sqrt(masked) + ALGEBRA * np.finfo(np.float64).eps * abs(before)
            tokens = passes.denoiser.process.counts[index]
            where = f"with {tokens} masked tokens the mean −ln p of sample {sample}"
            yield Deviation(where, before, float(now), allowed)


def _means(passes: MaskedPasses, t: Integers, samples: Integers) -> Array:
    """Numbers computed as in the work; NaN where the network gives none."""
    try:
        return passes.means(t, samples)
    except NonFiniteError:
        if len(t) == 1:
            return np.full(1, np.nan)
        return np.concatenate([_means(passes, t[i : i + 1], samples[i : i + 1]) for i in range(len(t))])
