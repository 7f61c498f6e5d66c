"""Monge tables: argmins rise with t, so each budget takes O(T log T) sums instead of O(T²).

A table is Monge if L[t, s] + L[t+1, s+1] <= L[t, s+1] + L[t+1, s] wherever all four are steps (`posterior` variance with
non-decreasing E Σ e² is: the difference is ½ (snr_s − snr_{s+1}) (M_t − M_{t+1})). Then, if s < s' and s is worse
than s' at t, it is worse at every later t. Column 0 takes no part: only the last step goes there, and it has no choice.

Floating-point numbers are never quite Monge, and a rounded sum never quite follows the rule. So the rule is used with
slack: an s is given up only where it loses by more than all violations in the table together plus rounding. What
remains contains every s that the plain recurrence could choose, hence the same costs bit for bit and the same ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled import WIDTH, compiled, threads
from .paths import StoredPaths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)


def pays(T: int, K: int) -> bool:
    """Whether this is quicker than the product for any table, if the table is Monge: as measured, threads counted.

    The check alone takes as long as the product for some 40 budgets; then one thread here is as quick as one thread
    there at T = 1000, and as two at T = 4000.
    """
    return K >= 64 and 2000 * threads() <= T


def violation(L: Floats, first: int) -> float:
    """A bound in nats on how far any rectangle of the table is from Monge; inf if by more than its entries' rounding.

    O(T²), and as soon as one entry is out of line it returns, which for a table that is not Monge is at once.
    """
    total = 0.0
    for t in range(first + 2, L.shape[0] - 1):
        total += _row_violation(L[t, first:t], L[t + 1, first:t])
        if total == np.inf:
            break
    return 2.0 * total  # twice: this sum is rounded too


@compiled
def _row_violation(upper: Floats, lower: Floats) -> float:
    """The sum of L[t, s] + L[t+1, s+1] − L[t, s+1] − L[t+1, s] where positive; inf if one is more than rounding."""
    total = 0.0
    for s in range(len(upper) - 1):
        left, right = upper[s] - upper[s + 1], lower[s] - lower[s + 1]
        # The second term covers the rounding of the three differences. A forbidden step makes it inf or NaN.
        excess = left - right + 2 * EPS * (abs(left) + abs(right))
        if not excess <= 0.0:
            if not excess <= 4 * EPS * (abs(upper[s]) + abs(upper[s + 1]) + abs(lower[s]) + abs(lower[s + 1])):
                return np.inf
            total += excess
    return total


def solve(L: Floats, base: Floats, last: int, violation: float, paths: StoredPaths) -> Floats | None:
    """C[k, T] for k from 0 to `last`, from C[first, t] = base[t]; D goes to `paths`.

    None if so many s cost the same to within the slack that this is no faster than the plain recurrence.
    """
    costs = np.full(last + 1, np.inf)
    per_row = int(4 * np.log2(len(L)) + 4)
    done: bool = _solve(L, base.copy(), last, violation, per_row, paths.first, paths.starts, paths.D, costs)
    return costs if done else None


@compiled
def _solve(
    L: Floats,
    C: Floats,
    last: int,
    violation: float,
    per_row: int,
    first: int,
    starts: Integers,
    D: NDArray[Any],
    costs: Floats,
) -> bool:
    """False as soon as there were more than `per_row` sums per row."""
    T = L.shape[0] - 1
    largest = 0.0
    for t in range(first + 1, T + 1):
        for s in range(first, t):
            if L[t, s] < np.inf:
                largest = max(largest, abs(L[t, s]))
    work = 0
    new, totals = np.empty(T + 1), np.empty(T + 1)
    lowest, highest = np.empty(T + 1, np.int64), np.empty(T + 1, np.int64)
    costs[first] = C[T]
    for k in range(first + 1, last + 1):
        place = starts[(k - first) // WIDTH] + (k - first) % WIDTH
        largest_C = 0.0
        for s in range(k - 1, T):
            if C[s] < np.inf:
                largest_C = max(largest_C, abs(C[s]))
        slack = violation + 8 * EPS * (largest + largest_C)

        stride = 1
        while stride <= T - k:
            stride *= 2
        # Rows halfway between those done, until all are: what the rows on either side left over bounds the range.
        while stride > 0:
            for t in range(k + stride - 1, T + 1, 2 * stride):
                low = lowest[t - stride] if t - stride >= k else k - 1
                high = min(t - 1, highest[t + stride]) if t + stride <= T else t - 1
                work += high + 1 - low
                least = np.inf
                for s in range(low, high + 1):
                    totals[s] = C[s] + L[t, s]
                    least = min(least, totals[s])
                if least < np.inf:
                    while totals[low] > least + slack:
                        low += 1
                    while totals[high] > least + slack:
                        high -= 1
                    s = low
                    while totals[s] != least:
                        s += 1
                    D[place + WIDTH * t] = s
                new[t], lowest[t], highest[t] = least, low, high
            stride //= 2
        work -= per_row * (T + 1 - k)
        if work > 0:
            return False
        for t in range(k, T + 1):
            C[t] = new[t]
        costs[k] = C[T]
    return True
