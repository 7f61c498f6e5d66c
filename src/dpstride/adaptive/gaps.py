"""Judge of what is unknown between evaluated times: the interpolation's error in each gap, beside the noise of a row.

Each evaluated time between the two ends is left out in turn and predicted by the others. What they miss, beyond what Monte
Carlo noise explains, is the error of interpolation there, and is scaled to the gaps that there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..statistics.coordinate import monotone_cubic

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
NEIGHBOURS = 2  # on either side, whose misses count too where one evaluated time is left out
BEND = 3.0  # nats of log-SNR within which a curve may turn from one line to another
APART = 0.125  # of a gap: how far from its ends a time has to be for what is missed there to tell anything


@dataclass(frozen=True)
class Gaps:
    """Standard deviations of one quantity, of the gap below each evaluated time (the first has none), and of its rows."""

    middle: Array  # [known] of the interpolated curve in the middle of the gap
    noise: Array  # [known] of what a row's own noise makes of the quantity

    @property
    def worth(self) -> npt.NDArray[np.bool_]:
        """Return for each gap whether its middle is less certain than the noise that a row evaluated there would have."""
        return np.concatenate([[False], self.middle[1:] > 0.5 * (self.noise[1:] + self.noise[:-1])])

    def at(self, gap: Indices, w: Array) -> Array:
        """Standard deviation of the curve in these gaps at these fractions of their widths."""
        return np.asarray(self.middle[gap] * 4.0 * w * (1.0 - w))


def _growth(width: Any) -> Any:
    """Growth of the error in the middle of a gap with its width.

    That of a cubic falls with the square at least, once the gap is narrower than what bends in it: a few nats of log-SNR.
    """
    return width**2 / (1.0 + (width / BEND) ** 2)


def around(known: Array, j: int) -> tuple[int, int]:
    """The nearest evaluated times on either side that leave j well inside their gap.

    The two sides of a kink lie next to each other: one that is left out alone is told by the other, and nothing is tested.
    """
    low, high = j - 1, j + 1
    while high < known.size - 1 and known[high] - known[j] < APART * (known[high] - known[low]):
        high += 1
    while low > 0 and known[j] - known[low] < APART * (known[high] - known[low]):
        low -= 1
    return low, high


def gaps_between(known: Array, levels: Array, missed: Array | None = None) -> Gaps:
    """Judge what lies between ``levels`` [known, replicates] at coordinates ``known``, the first replicate the estimate.

    ``missed`` [known] is what the others say of each less what it is, where that is not by a monotone cubic.
    """
    count = known.size
    # By evaluated time: squares of what the others miss there, beyond what noise explains; and of what they would miss
    # if the error in the middle of a gap as wide as 1 were 1, at its place in the gap and at no place too near an end.
    excess, scale, inside, noise = np.zeros((4, count))
    for j in range(1, count - 1):
        low, high = around(known, j)
        others = np.delete(np.arange(count), np.arange(low + 1, high))
        by_cubic = monotone_cubic(known[others], levels[others])(known[j]) - levels[j]
        explained = float(by_cubic[1:].var())
        width = known[high] - known[low]
        w = (known[j] - known[low]) / width
        excess[j] = (by_cubic[0] if missed is None else missed[j]) ** 2 - explained
        scale[j], inside[j] = (
            (part * _growth(width)) ** 2 for part in (4.0 * w * (1.0 - w), max(4.0 * w * (1.0 - w), 0.25))
        )
        # What samples share at all t cancels in the miss; the noise of t and about half that of two others is left.
        noise[j] = math.sqrt(explained / 1.5)
    # A single miss may be small by chance: those around are asked too, and the larger answer is believed.
    pools = [
        np.convolve(squares, np.ones(2 * NEIGHBOURS + 1))[NEIGHBOURS : NEIGHBOURS + count]
        for squares in (excess, scale)
    ]
    alone, pooled = (each / np.maximum(size, 1e-300) for each, size in ((excess, inside), pools))
    curvature = np.sqrt(np.maximum(np.maximum(alone, pooled), 0.0))
    noise[[0, -1]] = noise[[min(1, count - 1), max(count - 2, 0)]]
    middle = np.maximum(curvature[1:], curvature[:-1]) * _growth(np.diff(known))
    return Gaps(np.concatenate([[0.0], middle]), noise)
