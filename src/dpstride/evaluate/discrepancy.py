"""Stage 7. Squared discrepancy of two sets of samples over all pairs, unbiased at any count, with leave-one-out estimates.

E k(x, x') + E k(y, y') − 2 E k(x, y) is the squared maximum mean discrepancy of a kernel k, and with k = −|x − y| the energy
distance (Székely and Rizzo 2013). Leaving one sample out changes only sums over its own row of the kernel matrices, so all
leave-one-out estimates come from row sums: the jackknife's standard error, also that of a difference between two sets that
share their noise, costs nothing extra.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]  # [n, d], [m, d] → [n, m]
ROWS = 1024  # of a kernel matrix held at a time


@dataclass(frozen=True, eq=False)
class Discrepancy:
    """The estimate, and the estimates without each sample of either set, empty if a set has fewer than three."""

    value: float
    without_a: Array
    without_b: Array

    @property
    def standard_error(self) -> float:
        """The jackknife's standard error, over both sets; NaN if a set is too small for it."""
        return self._error(self.without_a, self.without_b)

    def minus(self, other: Discrepancy) -> tuple[float, float]:
        """The difference from ``other`` and its standard error, for samples from the same noise against the same real data."""
        if (self.without_a.shape, self.without_b.shape) != (other.without_a.shape, other.without_b.shape):
            raise ValueError(
                "A paired difference needs the same number of samples, from the same noise, and the same real data."
            )
        error = self._error(self.without_a - other.without_a, self.without_b - other.without_b)
        return self.value - other.value, error

    @staticmethod
    def _error(*parts: Array) -> float:
        if any(part.size < 3 for part in parts):
            return math.nan
        return math.sqrt(
            sum((part.size - 1) / part.size * float(np.square(part - part.mean()).sum()) for part in parts)
        )


def discrepancy(a: Array, b: Array, kernel: Kernel) -> Discrepancy:
    """The discrepancy over all pairs of samples a [n, d] and b [m, d], n and m at least 2."""
    n, m = len(a), len(b)
    within_a, within_b = (_row_sums(x, x, kernel) - _diagonal(x, kernel) for x in (a, b))
    across_a, across_b = _row_sums(a, b, kernel), _row_sums(b, a, kernel)
    sum_a, sum_b, sum_ab = within_a.sum(), within_b.sum(), across_a.sum()
    mean_a, mean_b, mean_ab = sum_a / (n * (n - 1)), sum_b / (m * (m - 1)), sum_ab / (n * m)
    value = float(mean_a + mean_b - 2.0 * mean_ab)
    if min(n, m) < 3:
        return Discrepancy(value, np.zeros(0), np.zeros(0))
    return Discrepancy(
        value,
        (sum_a - 2.0 * within_a) / ((n - 1) * (n - 2)) + mean_b - 2.0 * (sum_ab - across_a) / ((n - 1) * m),
        mean_a + (sum_b - 2.0 * within_b) / ((m - 1) * (m - 2)) - 2.0 * (sum_ab - across_b) / (n * (m - 1)),
    )


def _row_sums(a: Array, b: Array, kernel: Kernel) -> Array:
    """Sum over b of the kernel with each row of a."""
    sums = np.empty(len(a))
    for first in range(0, len(a), ROWS):
        rows = a[first : first + ROWS]
        sums[first : first + ROWS] = sum(kernel(rows, b[i : i + ROWS]).sum(1) for i in range(0, len(b), ROWS))
    return sums


def _diagonal(x: Array, kernel: Kernel) -> Array:
    return np.array([kernel(row[None], row[None])[0, 0] for row in x])
