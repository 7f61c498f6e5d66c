"""What solutions are compared with: every path there is, and the plain recurrence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstride.solver import Lines

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """As much of StepCosts as the solver uses: its Protocol, and nothing of diffusion."""

    L: Array
    pairs: Array | None = None
    triples: Array | None = None
    lines: Lines | None = None
    pairs_rule: str = "It takes two to walk here."
    unit: str = "steps of a walk"
    scored: bool = True

    def path_bpd(self, path: Sequence[int], cost: float | None = None) -> float:
        assert len(path) >= 2
        assert cost is not None
        return 2.0 * cost

    def schedule(self, path: Sequence[int], cost: float | None = None, stride: str = "") -> object:
        assert stride == "dp"
        return tuple(path), cost


def path_cost(L: Array, path: tuple[int, ...] | list[int], pairs: Array | None = None) -> float:
    """The sum in the recurrence's own order, from 0 up, so that equal sums are equal floats."""
    if pairs is not None:
        return sum((L[t, s] for s, t in itertools.pairwise(path[-3::-1])), pairs[path[-3], path[-2]])
    return sum((L[t, s] for s, t in itertools.pairwise(path[::-1])), 0.0)
