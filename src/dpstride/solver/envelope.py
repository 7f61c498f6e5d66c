"""Lines without a table: each budget is a lower envelope of them.

L(t, s) = ½ l_s w_t − ½ l_t w_t with levels l and weights w, so for a fixed budget, as a function of x = w_t / 2,

    C[k, t] = min over 1 <= s < t of (C[k − 1, s] + l_s x) − l_t x

is the lowest of t − 1 lines at x. Their slopes fall with s, so as t grows each line joins the envelope at one end, and a
query is a binary search: O(T log T) per budget for any weights, noisy or not. The envelope only proposes s: neighbours on it
are compared, and costs added up, by the formula of the table, in which the large numbers l_s w_t do not cancel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled import WIDTH, compiled
from .paths import StoredPaths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def solve(levels: Floats, weights: Floats, last_step: Floats, last: int) -> tuple[Floats, StoredPaths]:
    """C[k, T] for k from 0 to `last`, and the paths."""
    paths = StoredPaths.empty(len(levels) - 1, 1, last)
    costs = np.full(last + 1, np.inf)
    _solve(levels, weights, last_step.copy(), last, paths.starts, paths.D, costs)
    return costs, paths


@compiled
def _solve(
    levels: Floats, weights: Floats, C: Floats, last: int, starts: Integers, D: NDArray[Any], costs: Floats
) -> None:
    T = len(levels) - 1
    new = np.empty(T + 1)
    lines = np.empty(T + 1, np.int64)  # the s on the envelope, slopes falling
    begins = np.empty(T + 1)  # line i is the lowest for begins[i] < x <= begins[i + 1]
    costs[1] = C[T]
    for k in range(2, last + 1):
        place = starts[(k - 1) // WIDTH] + (k - 1) % WIDTH
        count = 0
        for t in range(k, T + 1):
            if C[t - 1] < np.inf:
                count = _add_line(levels, C, t - 1, lines, begins, count)
            if count > 0:
                s = _lowest_line(levels, weights, C, t, lines, begins, count)
                new[t] = _cost(levels, weights, C, t, s)
                D[place + WIDTH * t] = s
            else:
                new[t] = np.inf
        for t in range(k, T + 1):
            C[t] = new[t]
        costs[k] = C[T]


@compiled
def _cost(levels: Floats, weights: Floats, C: Floats, t: int, s: int) -> float:
    return float(C[s] + 0.5 * (levels[s] - levels[t]) * weights[t])


@compiled
def _add_line(levels: Floats, C: Floats, s: int, lines: Integers, begins: Floats, count: int) -> int:
    """The envelope with line s, whose slope is the least so far: how many lines it has."""
    begin = -np.inf
    while count > 0:
        top = lines[count - 1]
        if levels[top] > levels[s]:
            begin = (C[s] - C[top]) / (levels[top] - levels[s])
            if begin > begins[count - 1]:
                break
        elif C[top] <= C[s]:
            return count
        begin = -np.inf
        count -= 1
    lines[count], begins[count] = s, begin
    return count + 1


@compiled
def _lowest_line(
    levels: Floats, weights: Floats, C: Floats, t: int, lines: Integers, begins: Floats, count: int
) -> int:
    """The s whose line is lowest at x = w_t / 2; the smallest if several are."""
    i, end = 0, count
    while end - i > 1:
        middle = (i + end) // 2
        if begins[middle] < 0.5 * weights[t]:
            i = middle
        else:
            end = middle
    # The crossings are rounded; the costs themselves decide between neighbours.
    least = _cost(levels, weights, C, t, lines[i])
    while i + 1 < count and _cost(levels, weights, C, t, lines[i + 1]) < least:
        i += 1
        least = _cost(levels, weights, C, t, lines[i])
    while i > 0 and _cost(levels, weights, C, t, lines[i - 1]) <= least:
        i -= 1
        least = _cost(levels, weights, C, t, lines[i])
    return int(lines[i])
