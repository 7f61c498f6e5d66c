"""Stage 5. The least-cost path of every budget, by dynamic programming over the costs of steps.

The stage knows nothing of diffusion: it takes numbers L[t, s] and returns paths T → … → 0. The meaning of the numbers stays
with the costs (`costs.Costs` is their interface), which also turn a path into a Schedule. The kernels are in files beside this
one, one per kind of costs:

    recurrence.py   any table
    envelope.py     lines, which need no table
    second_order.py tables of triples, for samplers whose steps depend on the step before
    paths.py        the argmins of all kernels, read by Solution.path
    compiled.py     the vectorised inner loop of recurrence.py
    front.py        the trade-off between two costs, by solving for many weights
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..options import BEST
from ..runs.numbers import spans, whole_number
from .costs import Costs, Lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .paths import StoredPaths
    from .second_order import PairPaths

__all__ = ["Costs", "Lines", "Solution", "solve", "solve_lines"]

PLAIN_UNIT = "nats, without the prior"  # assumed for a plain array


@dataclass(frozen=True, eq=False)
class Solution:
    """The best path of every budget K from 1 to `max_budget`, and its cost.

    Attributes:
        costs: [max_budget + 1] in the unit of the table, indexed by budget; inf where no path of that many steps exists
            (always at 0).
        table: the costs that were solved, or None for a plain array or lines.
    """

    costs: NDArray[np.float64]
    table: Costs | None = field(repr=False)
    _paths: StoredPaths | PairPaths = field(repr=False)

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return self._paths.T

    @property
    def max_budget(self) -> int:
        """The largest budget that was solved."""
        return len(self.costs) - 1

    @property
    def best_budget(self) -> int:
        """The budget with the least cost; the smaller one if two are equal. More steps than this do not help."""
        return int(np.argmin(self.costs))

    @property
    def unit(self) -> str:
        """The unit of the costs, in words."""
        return PLAIN_UNIT if self.table is None else self.table.unit

    @property
    def scored(self) -> bool:
        """True if paths have bits/dim."""
        return self.table is not None and self.table.scored

    def cost(self, budget: int) -> float:
        """C[K, T]: the least cost of K steps from T to 0, in the unit of the table (nats of the ELBO: without the prior)."""
        return float(self.costs[self._checked_budget(budget)])

    def cost_nats(self, budget: int) -> float:
        """The least cost of K steps from T to 0, in nats, without the prior; `cost` is for every unit."""
        if not self.unit.startswith("nats"):
            warnings.warn(
                f"cost_nats of costs that are not nats ({self.unit}) will be an error; use cost(K).",
                DeprecationWarning,
                stacklevel=2,
            )
        return self.cost(budget)

    def bpd(self, budget: int) -> float:
        """Bits per dimension of the best path of K steps, the prior included."""
        cost = self.cost(budget)
        if self.table is None:
            raise ValueError(
                "bits/dim needs the prior and the number of dimensions, but solve() was given a plain array. "
                "Use cost(K), or solve the result of elbo_costs."
            )
        return self.table.path_bpd(self.path(budget), cost)

    def path(self, budget: int) -> list[int]:
        """The best path of K steps: K + 1 grid indices from T down to 0.

        Among paths of equal cost it is the one that goes to the smallest s at its first step, then at its second, and
        so on, as argmin finds it in the plain recurrence.
        """
        return self._paths.read(self._checked_budget(budget))

    def schedule(self, budget: int) -> Any:
        """The best path of K steps as a Schedule, made by the costs that were solved."""
        path = self.path(budget)
        if self.table is None:
            raise ValueError(
                "A Schedule needs the grid's times and the options of the costs, but solve() was given a plain array. "
                "Use path(K), or solve the result of elbo_costs."
            )
        return self.table.schedule(path, self.cost(budget), stride=BEST)

    def plot(self) -> Figure:
        """Cost against budget and the steps of some budgets, as a matplotlib figure."""
        from ..report.notebook import plot_solution

        return plot_solution(self)

    def _repr_html_(self) -> str:
        from ..report.notebook import solution_html

        return solution_html(self)

    def _checked_budget(self, budget: int) -> int:
        K = whole_number(budget, "A budget must be a whole number of steps", -math.inf)
        if not 1 <= K <= self.max_budget:
            reason = f"T = {self.T}" if self.max_budget == self.T else f"solved with max_budget = {self.max_budget}"
            raise ValueError(
                f"A budget must lie between 1 and {self.max_budget} ({reason}), not {K}."
                + (" Solve again with a larger max_budget." if self.max_budget < K <= self.T else "")
            )
        if self._paths.first > K:
            assert self.table is not None
            raise ValueError(f"Budget {K} is undefined. {self.table.pairs_rule}")
        if not np.isfinite(self.costs[K]):
            raise ValueError(
                f"Every path of {K} steps has infinite cost. Budgets with a finite path: "
                f"{spans(np.flatnonzero(np.isfinite(self.costs)).tolist())}."
            )
        return K


def solve(costs: Costs | Lines | ArrayLike, max_budget: int | None = None, progress: bool = False) -> Solution:
    """The best path of every budget up to `max_budget`, exactly (Watson et al. 2021, section 4.2).

        C[0, 0] = 0,  C[0, t] = inf,  C[k, t] = min over s < t of C[k − 1, s] + L[t, s]

    Args:
        costs: `StepCosts` (of `elbo_costs`, `trajectory_costs`, …), `Lines`, or a plain array L [T+1, T+1], where L[t, s] is
            the cost of the step t → s. A step always goes down, so entries with s >= t are ignored; inf below the diagonal
            forbids a step. With `pairs`, where pairs[t2, t1] is the cost of the last two steps
            t2 → t1 → 0 together, C[2, t2] = min over t1 of pairs[t2, t1] is the base case and L[t, 0] is not used. With
            `triples`, where triples[r, t, s] is the cost of t → s after r → t, L holds the costs of first and last steps.
            `Lines` are solved without a table, in O(T log T) per budget.
        max_budget: the largest budget wanted, at most T; all T budgets if None.
        progress: show a progress bar if it takes long (only ever on a terminal).

    Ties go to the smallest s at every step, so the answer does not depend on the kernel or the number of threads. Only with
    lines, whose sums are rounded differently, either of two paths may be returned whose costs are equal up to rounding.
    """
    table = costs if _has_meaning(costs) else None
    lines = costs if isinstance(costs, Lines) else None if table is None else table.lines
    if lines is not None:
        return _solve_lines(lines, max_budget, table)
    pairs, triples = (None, None) if table is None else (table.pairs, table.triples)
    first_s = 0 if pairs is None else 1
    if table is None and np.asarray(costs).dtype == object:
        raise ValueError(
            f"solve takes costs of steps, not a {type(costs).__name__}. Give the result of elbo_costs(statistics), Lines, or "
            "an array L[t, s]."
        )
    L = _checked_table(costs if table is None else table.L, "L", first_s)  # type: ignore[arg-type]
    T = L.shape[0] - 1
    if pairs is not None:
        pairs = _checked_table(pairs, "pairs", first_s)
        if pairs.shape != L.shape:
            raise ValueError(
                f"pairs must have the shape of L, {L.shape}, but has {pairs.shape}. Compute both together."
            )
    K = _checked_max_budget(max_budget, T)
    if triples is not None:
        from . import second_order

        return _solution(*second_order.solve(L, triples, K), table)
    first_budget = 1 if pairs is None else 2
    if first_budget > K:
        assert table is not None
        raise ValueError(f"T = {T} and max_budget = {K} leave only one step. {table.pairs_rule}")
    from . import recurrence
    from .paths import StoredPaths

    paths = StoredPaths.empty(T, first_budget, K)
    if pairs is None:
        base = L[:, 0]
    else:
        base = np.full(T + 1, np.inf)
        for t2 in range(2, T + 1):
            t1 = 1 + int(pairs[t2, 1:t2].argmin())
            base[t2], paths.D[paths.at(2, t2)] = pairs[t2, t1], t1
    return _solution(recurrence.solve(L, base, K, paths, progress=progress), paths, table)


def solve_lines(
    snr: ArrayLike, M: ArrayLike, decoder: ArrayLike, max_budget: int, *, table: Costs | None = None
) -> Solution:
    """Deprecated: ``solve(Lines(snr, M, decoder), max_budget)``."""
    warnings.warn(
        "solve_lines is deprecated; use solve(Lines(snr, M, decoder), max_budget).", DeprecationWarning, stacklevel=2
    )
    return replace(_solve_lines(Lines(snr, M, decoder), max_budget, None), table=table)


def _has_meaning(costs: object) -> TypeGuard[Costs]:
    return hasattr(costs, "path_bpd")


def _solve_lines(lines: Lines, max_budget: int | None, table: Costs | None) -> Solution:
    """Exact for any weights; costs are those of the table to rounding. O(K T log T) time; 2 K T bytes, 4 from T = 65,536 on."""
    from . import envelope

    rows = {name: _checked_row(getattr(lines, name), name) for name in ("levels", "weights", "last")}
    lengths = {name: len(row) for name, row in rows.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"levels, weights and last must be given on one grid, but have lengths {lengths}.")
    T = lengths["levels"] - 1
    K = _checked_max_budget(max_budget, T)
    levels, weights, last = rows.values()
    rises = np.append(levels[1:] > levels[:-1], False)
    for name, wrong, rule in (
        ("levels", ~np.isfinite(levels) | (levels < 0), "be finite and not negative"),
        ("levels", rises, "not rise with t; index 0 is the end of every path, index T its start"),
        ("weights", ~np.isfinite(weights) | (weights < 0), "be finite and not negative"),
        ("last", ~(last > -np.inf), "be finite, or inf for a forbidden last step"),
    ):
        wrong[0] = False
        if wrong.any():
            t = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"{name} must {rule}, but {name}[{t}] = {rows[name][t]}.")
    return _solution(*envelope.solve(levels, weights, last, K), table)


def _solution(costs: NDArray[np.float64], paths: StoredPaths | PairPaths, table: Costs | None) -> Solution:
    if not np.isfinite(costs).any():
        raise ValueError(
            f"Every path from T = {paths.T} to 0 with at most {len(costs) - 1} steps has infinite cost. "
            "Look for rows of L that are inf everywhere below the diagonal, or allow more steps."
        )
    costs.setflags(write=False)
    return Solution(costs, table, paths)


def _checked_table(values: ArrayLike, name: str, first_s: int) -> NDArray[np.float64]:
    """The table as float64 in C order (without a copy if it is so), checked for values that poison sums at first_s <= s < t."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(
            f"{name} must be a square table [T+1, T+1], but its shape is {array.shape}. Index it as L[t, s]."
        )
    T = array.shape[0] - 1
    if T < 1:
        raise ValueError(f"{name} must have at least one step (T >= 1), but its shape is {array.shape}.")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, but its dtype is {array.dtype}. Convert it to float64.")
    table = np.require(array, np.float64, ["C", "ALIGNED"]).view()
    table.flags.writeable = False  # of this view only: kernels are compiled once, for read-only tables

    # One pass without temporaries settles almost every table: min() passes on NaN and -inf wherever they are.
    # -1.7e308 / T: with costs above it no sum of T of them overflows to -inf, which plus inf would be NaN.
    lowest_allowed = -1.7e308 / T
    if not table.min() >= lowest_allowed:
        for t in range(first_s + 1, T + 1):
            row = table[t, first_s:t]
            if not row.min() >= lowest_allowed:
                s = first_s + int(np.flatnonzero(~(row >= lowest_allowed))[0])
                raise ValueError(
                    f"{name} must be finite or inf for s < t, but {name}[{t}, {s}] = {table[t, s]}. "
                    "Use inf for a forbidden step; a NaN comes from whatever computed the table."
                )
    return table


def _checked_row(values: ArrayLike, name: str) -> NDArray[np.float64]:
    row = np.ascontiguousarray(values, dtype=np.float64)
    if row.ndim != 1 or len(row) < 2:
        raise ValueError(f"{name} must be one row [T+1] with T >= 1, but its shape is {row.shape}.")
    return row


def _checked_max_budget(max_budget: int | None, T: int) -> int:
    K = T if max_budget is None else whole_number(max_budget, "max_budget must be a whole number of steps", -math.inf)
    if not 1 <= K <= T:
        raise ValueError(
            f"max_budget must lie between 1 and T = {T}, but is {K}. A path has at most one step per grid step."
        )
    return K
