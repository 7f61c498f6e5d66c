"""Storage for the argmins of every kernel, from which paths are read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs.kernels import compiled
from .compiled import WIDTH

Integers = NDArray[np.int64]


class StoredPaths(NamedTuple):
    """D[k, t], the first step of the best path of k steps from t, for k from `first` on; a tuple, as kernels take it.

    It is stored in blocks of WIDTH consecutive budgets, without the half where k > t: block b holds k = first + WIDTH·b + j for
    t >= first + WIDTH·b, and D[k, t] is at starts[b] + WIDTH·t + j.
    """

    T: int
    first: int
    starts: Integers
    D: NDArray[Any]

    @classmethod
    def empty(cls, T: int, first: int, last: int) -> StoredPaths:
        """Room for k from `first` to `last`, filled with 0."""
        lowest_t = np.arange(first, last + 1, WIDTH)
        sizes = WIDTH * (T + 1 - lowest_t)
        starts = np.cumsum(sizes) - sizes - WIDTH * lowest_t
        return cls(T, first, starts, np.zeros(sizes.sum(), np.uint16 if T < 2**16 else np.uint32))

    def at(self, k: Any, t: Any) -> Any:
        """Position of D[k, t]; k or t may be an array."""
        block, column = np.divmod(np.asarray(k) - self.first, WIDTH)
        return self.starts[block] + WIDTH * t + column

    def read(self, budget: int) -> list[int]:
        """The best path of this budget, from T down to 0."""
        path: list[int] = _read(self, budget).tolist()
        return path if self.first == 1 else [*path, 0]


@compiled
def _read(paths: StoredPaths, budget: int) -> Integers:
    """Follow D from (T, budget), until D[first, t] has been read too."""
    path = np.empty(budget - paths.first + 2, np.int64)
    path[0] = paths.T
    for step in range(budget - paths.first + 1):
        block, column = divmod(budget - step - paths.first, WIDTH)
        path[step + 1] = paths.D[paths.starts[block] + WIDTH * path[step] + column]
    return path
