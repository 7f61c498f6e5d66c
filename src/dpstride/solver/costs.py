"""The interface of costs for `solve`: a table or lines, and the few facts that a `Solution` needs about them.

The solver sees numbers only. Their source (`objectives.StepCosts`) says what their unit is, why two last steps may have a joint
cost, and how a path becomes a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lines:
    """Step costs that need no table, for grids of 100,000 points: [T + 1] numbers each, with index 0 unused.

        L[t, s] = ½ (levels[s] − levels[t]) weights[t] for 1 <= s < t,  L[t, 0] = last[t]

    Attributes:
        levels: finite, not negative, and never rising with t.
        weights: finite and not negative, in any order.
        last: cost of the step t → 0; inf where the last step may not start.
    """

    levels: ArrayLike
    weights: ArrayLike
    last: ArrayLike

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return len(np.asarray(self.levels)) - 1

    def costs(self, t: NDArray[np.int64], s: NDArray[np.int64]) -> Floats:
        """L[t, s] of some steps."""
        levels, weights, last = (np.asarray(row, dtype=np.float64) for row in (self.levels, self.weights, self.last))
        inner = 0.5 * (np.where(s > 0, levels[s], 0.0) - levels[t]) * weights[t]
        return np.where(s > 0, inner, last[t])

    def table(self) -> Floats:
        """The whole table L, of 8 (T + 1)² bytes."""
        L = np.full((self.T + 1, self.T + 1), np.inf)
        for t in range(1, self.T + 1):
            L[t, :t] = self.costs(np.full(t, t), np.arange(t))
        return L


class TableOrLines:
    """Costs stored in one of the two forms."""

    table: Floats | None
    lines: Lines | None

    @cached_property
    def L(self) -> Floats:
        """The table [T + 1, T + 1]; computed from lines on first use."""
        if self.table is not None:
            return self.table
        assert self.lines is not None
        return self.lines.table()


class Costs(Protocol):
    """Step costs and their meaning; ``L`` is not read if there are ``lines``."""

    @property
    def L(self) -> Floats:
        """[T + 1, T + 1]: the cost of the step t → s at [t, s]."""

    @property
    def lines(self) -> Lines | None:
        """The costs as lines, or None."""

    @property
    def pairs(self) -> Floats | None:
        """[t2, t1]: the joint cost of the last two steps t2 → t1 → 0; None if each step has its own."""

    @property
    def triples(self) -> Floats | None:
        """[r, t, s]: the cost of t → s after r → t, for steps with memory; None for steps without."""

    @property
    def pairs_rule(self) -> str:
        """Why a path needs two steps, as a sentence with its remedy; only read if there are ``pairs``."""

    @property
    def unit(self) -> str:
        """The unit of the costs, in words."""

    @property
    def scored(self) -> bool:
        """True if a path has bits/dim."""

    def path_bpd(self, path: Sequence[int], cost: float | None = None) -> float:
        """Bits/dim of a path; if there are none, an error in the table's own words."""

    def schedule(self, path: Sequence[int], cost: float | None = None, stride: str = ...) -> Any:
        """A path as a schedule."""
