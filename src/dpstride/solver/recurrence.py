"""Any table: the recurrence of section 4.2, and paths read back by comparing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CostPaths:
    """C[k, t] of a solved table. No argmins are kept: a path is found again by the sums that made C."""

    L: NDArray[np.float64]
    pairs: NDArray[np.float64] | None
    C: NDArray[np.float64]

    def final_costs(self) -> NDArray[np.float64]:
        """C[k, T] for every k."""
        return self.C[:, -1].copy()

    def read(self, budget: int) -> list[int]:
        """The best path of this budget, from T down to 0."""
        t = self.L.shape[0] - 1
        path = [t]
        for k in range(budget, 1, -1):
            # From s = 1: only the last step goes to 0, and with pairs the table's column 0 holds anything.
            candidates = (
                self.pairs[t, 1:t] if self.pairs is not None and k == 2 else self.C[k - 1, 1:t] + self.L[t, 1:t]
            )
            t = 1 + int(candidates.argmin())
            path.append(t)
        return [*path, 0]


def solve(L: NDArray[np.float64], pairs: NDArray[np.float64] | None, K: int) -> CostPaths:
    """C[k, t] for k = 0..K and every t, from a checked table."""
    T = L.shape[0] - 1
    C = np.full((K + 1, T + 1), np.inf)
    if pairs is None:
        C[0, 0] = 0.0
        for t in range(1, T + 1):
            C[1:, t] = (C[:-1, :t] + L[t, :t]).min(axis=1)
    else:
        for t in range(2, T + 1):
            C[3:, t] = (C[2:-1, 1:t] + L[t, 1:t]).min(axis=1)
            C[2, t] = pairs[t, 1:t].min()
    return CostPaths(L, pairs, C)
