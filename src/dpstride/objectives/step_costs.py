"""Stage 6. `StepCosts`: the cost of every step of a grid, whatever the objective behind it.

One class for all objectives, because a path is chosen, scored, plotted and saved in the same way for each: the numbers, their
unit in words, and how bits/dim and standard errors of a path are computed, if it has any.
"""

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
from ..solver.costs import Lines, TableOrLines

Array = npt.NDArray[np.float64]
Path = Sequence[int] | npt.NDArray[np.int64]
NATS = "nats, without the prior"


@dataclass(frozen=True, eq=False, kw_only=True)
class StepCosts(TableOrLines):
    """Expected cost of every step t → s of a grid, as a table or as lines.

    Attributes:
        process: the grid.
        dims: number of data dimensions; for a model that is given some elements, how many count in the mean of the samples.
        table: ``L`` [T + 1, T + 1], infinite for s >= t; None if there are ``lines``.
        lines: the costs of a fine grid, without a table.
        pairs: ``pairs[t2, t1]`` is the joint cost of the last two steps t2 → t1 → 0, if they have one; then column 0 of L is
            not used.
        pairs_rule: why they have a joint cost, as a sentence with its remedy.
        triples: ``triples[r, t, s]`` is the cost of t → s after r → t, for a sampler with memory; L then holds the costs of
            first and last steps, which have no memory.
        unit: the unit of a cost, in words.
        options: the options of the objective, as they are recorded with schedules.
        fitted: numbers fitted on the data behind the costs.
        provenance: where the costs come from.
        prior: t → nats of the prior term of a path from t, where the costs are nats of the negative ELBO.
        unit_terms: the terms of a path for every sample (or block of samples), and the sizes of these.
        unit_totals: the totals of many paths, from which standard errors come.
        likelihood: the costs that give a path its bits/dim, if these are of another objective.
        parts: other costs of the same grid, recorded with every path by name.
    """

    process: ForwardProcess
    dims: float
    table: Array | None = field(default=None, repr=False)
    lines: Lines | None = field(default=None, repr=False)
    pairs: Array | None = field(default=None, repr=False)
    pairs_rule: str = ""
    triples: Array | None = field(default=None, repr=False)
    unit: str = NATS
    options: Mapping[str, Any] = field(default_factory=dict)
    fitted: Fitted = field(default_factory=Fitted, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    prior: Callable[[int], float] | None = field(default=None, repr=False)
    unit_terms: Callable[[Path], tuple[Array, Array]] | None = field(default=None, repr=False)
    unit_totals: Callable[[Sequence[Path]], tuple[Array, Array]] | None = field(default=None, repr=False)
    likelihood: StepCosts | None = field(default=None, repr=False)
    parts: Mapping[str, StepCosts] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if (self.table is None) == (self.lines is None):
            raise ValueError("Step costs are a table or lines: give one of the two.")

    def __repr__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"<StepCosts of {self.process.name}, T = {self.T}, {self.dims:.10g} dims, {self.unit}: {options}>"

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return self.process.T

    # --- a path --------------------------------------------------------------------------------------------------------

    def step_costs(self, path: Path) -> Array:
        """Cost of each step of a path, the last one last: [K]."""
        t, s = np.asarray(path[:-1]), np.asarray(path[1:])
        costs = self.lines.costs(t, s) if self.lines is not None else self.L[t, s]
        if self.pairs is not None:
            if len(path) < 3:
                raise ValueError(self.pairs_rule)
            costs[-1] = self.pairs[path[-3], path[-2]] - self.L[path[-3], path[-2]]
        if self.triples is not None and len(path) > 3:
            costs[1:-1] = self.triples[t[:-2], t[1:-1], s[1:-1]]
        return np.asarray(costs)

    step_nats = step_costs

    def cost(self, path: Path) -> float:
        """Cost of a whole path, in `unit`."""
        return float(self.step_costs(path).sum())

    def schedule(self, path: Path, cost: float | None = None, stride: str = GIVEN) -> Schedule:
        """A path as a `Schedule` with its predicted bits/dim and error; if it has none, its cost is in the provenance."""
        total = self.cost(path) if cost is None else cost
        return Schedule(
            process=self.process,
            steps=tuple(int(index) for index in path),
            stride=stride,
            bpd=self.path_bpd(path, total) if self.scored else None,
            standard_error=self.standard_errors([path])[0],
            options=self.options,
            fitted=self.fitted,
            provenance={
                **self.provenance,
                **{name: values[0] for name, values in self.recorded([path], [total]).items()},
            },
        )

    def recorded(self, paths: Sequence[Path], costs: Sequence[float]) -> dict[str, list[float]]:
        """Costs of several paths other than bits/dim, by the name under which schedules store them."""
        own = {} if self.prior is not None or self.parts else {"cost": list(costs)}
        return own | {f"{name}_cost": [part.cost(path) for path in paths] for name, part in self.parts.items()}

    # --- bits/dim ------------------------------------------------------------------------------------------------------

    @property
    def scored(self) -> bool:
        """True if a path has bits/dim."""
        return self.prior is not None or self.likelihood is not None

    @property
    def prior_nats(self) -> float:
        """The prior term of a path from T, which does not depend on the path."""
        return self._prior_nats(None)

    def bpd(self, nats: float, first_step: int | None = None) -> float:
        """Bits per dimension of a path cost in nats, the prior term of its first step added."""
        return (nats + self._prior_nats(first_step)) / (self.dims * math.log(2.0))

    def path_bpd(self, path: Path, cost: float | None = None) -> float:
        """Bits per dimension of a path; ``cost``, if known, is its cost in `unit`."""
        if self.likelihood is not None:
            return self.likelihood.path_bpd(path)
        return self.bpd(self.cost(path) if cost is None else cost, int(path[0]))

    def standard_errors(self, paths: Sequence[Path]) -> list[float | None]:
        """Standard error in bits/dim of each path's cost, from totals per sample or block; None without statistics."""
        if self.likelihood is not None:
            return self.likelihood.standard_errors(paths)
        if self.unit_totals is None:
            return [None] * len(paths)
        totals, sizes = self.unit_totals(paths)
        return [standard_error(row, sizes) / (self.dims * math.log(2.0)) for row in totals]

    def _prior_nats(self, first_step: int | None) -> float:
        if self.prior is None:
            raise ValueError(
                f"bits/dim need the costs of the ELBO, but these costs are not nats ({self.unit}). Use cost(K), or solve the "
                "result of elbo_costs."
            )
        return self.prior(self.T if first_step is None else first_step)


def standard_error(totals: Array, sizes: Array) -> float:
    """Standard error of the weighted mean of independent ``totals``, each the mean over ``sizes`` samples."""
    units = totals.size
    if units < 2:
        return math.nan
    weights = sizes / sizes.sum()
    deviations = totals - float(weights @ totals)
    return math.sqrt(float((weights**2) @ deviations**2) * units / (units - 1))


CostTable = StepCosts  # names of the first release
TrajectoryTable = StepCosts
