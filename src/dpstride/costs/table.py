"""Stage 5. `CostTable`: what the solver needs, whatever the objective behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..fitted import Fitted
from ..options import GIVEN
from ..process import ForwardProcess
from ..schedule import Schedule

Array = npt.NDArray[np.float64]
Path = Sequence[int] | npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CostTable:
    """Expected cost in nats of every step t → s, summed over dims.

    ``L[t, s]`` is infinite for s >= t. With the `respaced` decoder the last two steps are one: ``pairs[t2, t1]`` is the
    cost of t2 → t1 → 0, and column 0 of L is infinite. ``unit_terms`` gives the terms of a path, and ``unit_totals`` the
    totals of many paths, for every sample (or block of samples), from which standard errors come.
    """

    process: ForwardProcess
    L: Array = field(repr=False)
    prior_nats: float
    dims: int
    options: Mapping[str, Any]
    pairs: Array | None = field(default=None, repr=False)
    fitted: Fitted = field(default_factory=Fitted, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    unit_terms: Callable[[Path], tuple[Array, Array]] | None = field(default=None, repr=False)
    unit_totals: Callable[[Sequence[Path]], tuple[Array, Array]] | None = field(default=None, repr=False)
    prior_of: Callable[[int], float] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"<CostTable of {self.process.name}, T = {self.T}, {self.dims} dims: {told}>"

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return self.process.T

    def step_nats(self, steps: Path) -> Array:
        """Cost of each step of a path, the decoder last, without the prior: [K]."""
        t, s = np.asarray(steps[:-1]), np.asarray(steps[1:])
        if self.pairs is None:
            return np.asarray(self.L[t, s])
        if len(steps) < 3:
            raise ValueError("The respaced decoder takes its variance from a second step, so a path needs two steps.")
        costs = self.L[t, s]
        costs[-1] = self.pairs[steps[-3], steps[-2]] - self.L[steps[-3], steps[-2]]
        return np.asarray(costs)

    def bpd(self, nats: float, first_step: int | None = None) -> float:
        """Bits per dimension of a path cost in nats, the prior term of its first step added."""
        prior = self.prior_nats
        if first_step is not None and first_step != self.T:
            assert self.prior_of is not None
            prior = self.prior_of(first_step)
        return (nats + prior) / (self.dims * math.log(2.0))

    def standard_errors(self, paths: Sequence[Path]) -> list[float | None]:
        """Standard error in bits/dim of each path's cost, from totals per sample or block; None without statistics."""
        if self.unit_totals is None:
            return [None] * len(paths)
        totals, sizes = self.unit_totals(paths)
        return [standard_error(row, sizes) / (self.dims * math.log(2.0)) for row in totals]

    def schedule(self, steps: Path, cost_nats: float | None = None, stride: str = GIVEN) -> Schedule:
        """The path as a `Schedule` with its predicted bits/dim, error and provenance."""
        nats = float(self.step_nats(steps).sum()) if cost_nats is None else cost_nats
        return Schedule(
            process=self.process,
            steps=tuple(int(step) for step in steps),
            stride=stride,
            bpd=self.bpd(nats, int(steps[0])),
            standard_error=self.standard_errors([steps])[0],
            options=self.options,
            fitted=self.fitted,
            provenance=self.provenance,
        )


def standard_error(totals: Array, sizes: Array) -> float:
    """Standard error of the weighted mean of independent ``totals``, each the mean over ``sizes`` samples."""
    units = totals.size
    if units < 2:
        return math.nan
    weights = sizes / sizes.sum()
    deviations = totals - float(weights @ totals)
    return math.sqrt(float((weights**2) @ deviations**2) * units / (units - 1))
