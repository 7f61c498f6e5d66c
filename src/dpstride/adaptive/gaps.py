"""The uncertainty between evaluated times: the interpolation error in each gap, and the noise of a row.

Each evaluated time between the two ends is left out in turn and predicted by the others. The prediction error beyond Monte
Carlo noise is the error of interpolation there, and is scaled to the actual gaps.
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
NEIGHBOURS = 2  # on either side, with whose prediction errors that of an evaluated time is pooled
BEND = 3.0  # nats of log-SNR within which a curve may turn from one line to another
APART = 0.125  # of a gap: least distance of a time from its ends for a prediction error there to mean anything


@dataclass(frozen=True)
class Gaps:
    """Standard deviations of one quantity, for the gap below each evaluated time (the first has none) and for its row."""

    middle: Array  # [known] of the interpolated curve in the middle of the gap
    noise: Array  # [known] due to the row's own noise

    @property
    def worth(self) -> npt.NDArray[np.bool_]:
        """Return for each gap whether its middle is less certain than a row evaluated there, with its noise, would be."""
        return np.concatenate([[False], self.middle[1:] > 0.5 * (self.noise[1:] + self.noise[:-1])])

    def at(self, gap: Indices, w: Array) -> Array:
        """Standard deviation of the curve in these gaps at these fractions of their widths."""
        return np.asarray(self.middle[gap] * 4.0 * w * (1.0 - w))


def _growth(width: Any) -> Any:
    """Growth of the error in the middle of a gap with its width.

    A cubic's error falls at least as the square of the width, once the gap is narrower than the bends in it: a few nats of
    log-SNR.
    """
    return width**2 / (1.0 + (width / BEND) ** 2)


def around(known: Array, j: int) -> tuple[int, int]:
    """The nearest evaluated times on either side that leave j well inside their gap.

    The two sides of a kink lie next to each other: if one alone is left out, the other predicts it, and nothing is tested.
    """
    low, high = j - 1, j + 1
    while high < known.size - 1 and known[high] - known[j] < APART * (known[high] - known[low]):
        high += 1
    while low > 0 and known[j] - known[low] < APART * (known[high] - known[low]):
        low -= 1
    return low, high


def gaps_between(known: Array, levels: Array, missed: Array | None = None) -> Gaps:
    """The uncertainty between ``levels`` [known, replicates] at coordinates ``known``; the first replicate is the estimate.

    ``missed`` [known] is the error of each as predicted by the others, if they do not predict by a monotone cubic.
    """
    count = known.size
    # By evaluated time: squares of the prediction errors, beyond what noise explains; and of what these would be if the
    # error in the middle of a gap of width 1 were 1, at its place in the gap and at no place too close to an end.
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
        # The part that samples share at all t cancels in the error; the noise of t and about half that of two others remains.
        noise[j] = math.sqrt(explained / 1.5)
    # A single error may be small by chance, so it is also pooled with those around it, and the larger result is used.
    pools = [
        np.convolve(squares, np.ones(2 * NEIGHBOURS + 1))[NEIGHBOURS : NEIGHBOURS + count]
        for squares in (excess, scale)
    ]
    alone, pooled = (each / np.maximum(size, 1e-300) for each, size in ((excess, inside), pools))
    curvature = np.sqrt(np.maximum(np.maximum(alone, pooled), 0.0))
    noise[[0, -1]] = noise[[min(1, count - 1), max(count - 2, 0)]]
    middle = np.maximum(curvature[1:], curvature[:-1]) * _growth(np.diff(known))
    return Gaps(np.concatenate([[0.0], middle]), noise)
