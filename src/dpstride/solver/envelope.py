"""Lines without a table: each budget is a lower envelope of them.

L(t, s) = ½ l_s w_t − ½ l_t w_t with levels l and weights w, so for a fixed budget, as a function of x = w_t / 2,

    C[k, t] = min over 1 <= s < t of (C[k − 1, s] + l_s x) − l_t x

is the lowest of t − 1 lines at x. Their slopes fall with s, so as t grows each line joins the envelope at one end, and a
query is a binary search: O(T log T) per budget for any weights, noisy or not. The envelope only proposes s: neighbours on it
are compared, and costs added up, by the formula of the table, in which the large numbers l_s w_t do not cancel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs.kernels import compiled
from .compiled import WIDTH
from .paths import StoredPaths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Rows(NamedTuple):
    """Levels and weights of the grid, and the costs C[k − 1, ·] of the budget before."""

    levels: Floats
    weights: Floats
    C: Floats


class Envelope(NamedTuple):
    """The s whose lines are on the envelope, slopes falling; line i is the lowest for begins[i] < x <= begins[i + 1]."""

    lines: Integers
    begins: Floats


def solve(levels: Floats, weights: Floats, last_step: Floats, last: int) -> tuple[Floats, StoredPaths]:
    """C[k, T] for k from 0 to `last`, and the paths."""
    paths = StoredPaths.empty(len(levels) - 1, 1, last)
    costs = np.full(last + 1, np.inf)
    _solve(Rows(levels, weights, last_step.copy()), paths, costs)
    return costs, paths


@compiled
def _solve(rows: Rows, paths: StoredPaths, costs: Floats) -> None:
    T, C, D = paths.T, rows.C, paths.D
    new = np.empty(T + 1)
    envelope = Envelope(np.empty(T + 1, np.int64), np.empty(T + 1))
    costs[1] = C[T]
    for k in range(2, len(costs)):
        place = paths.starts[(k - 1) // WIDTH] + (k - 1) % WIDTH
        count = 0
        for t in range(k, T + 1):
            if C[t - 1] < np.inf:
                count = _add_line(rows, t - 1, envelope, count)
            if count > 0:
                s = _lowest_line(rows, t, envelope, count)
                new[t] = _cost(rows, t, s)
                D[place + WIDTH * t] = s
            else:
                new[t] = np.inf
        for t in range(k, T + 1):
            C[t] = new[t]
        costs[k] = C[T]


@compiled
def _cost(rows: Rows, t: int, s: int) -> float:
    return float(rows.C[s] + 0.5 * (rows.levels[s] - rows.levels[t]) * rows.weights[t])


@compiled
def _add_line(rows: Rows, s: int, envelope: Envelope, count: int) -> int:
    """Add line s, whose slope is the least so far, to the envelope; return its number of lines."""
    levels, C = rows.levels, rows.C
    lines, begins = envelope
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
def _lowest_line(rows: Rows, t: int, envelope: Envelope, count: int) -> int:
    """The s whose line is lowest at x = w_t / 2; the smallest if several are."""
    lines, begins = envelope
    i, end = 0, count
    while end - i > 1:
        middle = (i + end) // 2
        if begins[middle] < 0.5 * rows.weights[t]:
            i = middle
        else:
            end = middle
    # The crossings are rounded; the costs themselves decide between neighbours.
    least = _cost(rows, t, lines[i])
    while i + 1 < count and _cost(rows, t, lines[i + 1]) < least:
        i += 1
        least = _cost(rows, t, lines[i])
    while i > 0 and _cost(rows, t, lines[i - 1]) <= least:
        i -= 1
        least = _cost(rows, t, lines[i])
    return int(lines[i])
