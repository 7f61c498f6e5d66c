"""The recurrence for samplers with memory, whose step costs depend on where the step before started.

The state is a pair (r, t), the last two points of the path:

    C[1, r, t] = L[t, 0],  C[k, r, t] = min over 0 < s < t of triples[r, t, s] + C[k − 1, t, s]

and the first step of a path, which has no memory, costs L[T, s]. O(T³) per budget, 2 K T² bytes for the argmins: for grids of
a hundred points or so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..runs.kernels import compiled

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PairPaths:
    """D[k, r, t], the step after r → t on the best path of k more steps; D[k, 0, T] is the first step of a path."""

    T: int
    first: int
    D: NDArray[np.uint16]

    def read(self, budget: int) -> list[int]:
        """The best path of this budget, from T down to 0."""
        path, before = [self.T], 0
        for k in range(budget, 1, -1):
            step = int(self.D[k, before, path[-1]])
            before = path[-1]
            path.append(step)
        return [*path, 0]


def solve(L: Floats, triples: Floats, K: int) -> tuple[Floats, PairPaths]:
    """Least cost of every budget up to K, [K + 1], and the paths."""
    T = L.shape[0] - 1
    D = np.zeros((K + 1, T + 1, T + 1), np.uint16)
    costs = _recur(L, np.ascontiguousarray(triples), K, D)
    return costs, PairPaths(T, 1, D)


@compiled
def _recur(L: Floats, triples: Floats, K: int, D: NDArray[np.uint16]) -> Floats:
    T = L.shape[0] - 1
    costs = np.full(K + 1, np.inf)
    costs[1] = L[T, 0]
    C = np.full((T + 1, T + 1), np.inf)
    new = np.full((T + 1, T + 1), np.inf)
    for r in range(2, T + 1):
        for t in range(1, r):
            C[r, t] = L[t, 0]
    for k in range(2, K + 1):
        for s in range(1, T):
            if L[T, s] + C[T, s] < costs[k]:
                costs[k] = L[T, s] + C[T, s]
                D[k, 0, T] = s
        for r in range(2, T + 1):
            for t in range(1, r):
                least, at = np.inf, 0
                for s in range(1, t):
                    total = triples[r, t, s] + C[t, s]
                    if total < least:
                        least, at = total, s
                new[r, t] = least
                D[k, r, t] = at
        C, new = new, C
    return costs
