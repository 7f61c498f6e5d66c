"""Stage 6. The least-cost path of every budget, by dynamic programming over the table of step costs.

The stage knows nothing of diffusion: it takes numbers L[t, s] and returns paths T → … → 0. Everything about what the
numbers mean stays in the cost table it was given, which also turns a path into a Schedule. The kernels are in files
beside this one, one per kind of table, and all give the same costs and the same paths:

    recurrence.py   any table
    monge.py        tables whose argmins rise with t, found out by looking
    envelope.py     `posterior` variance, whose table need not exist
    second_order.py tables of triples, for samplers whose steps remember the one before
    paths.py        the argmins all of them leave, read by Solution.path
    compiled.py     how they are compiled, and the inner loop
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .paths import StoredPaths
    from .second_order import PairPaths

__all__ = ["Solution", "solve", "solve_lines"]


@dataclass(frozen=True, eq=False)
class Solution:
    """The best path of every budget K from 1 to `max_budget`, and its cost.

    Attributes:
        T: number of grid steps.
        max_budget: the largest budget that was solved for.
        costs: [max_budget + 1] nats without the prior, indexed by budget; inf where no path of that many steps exists
            (always at 0).
        table: the CostTable that was solved, or None for a plain array.
    """

    T: int
    max_budget: int
    costs: NDArray[np.float64]
    table: Any = field(repr=False)
    _paths: StoredPaths | PairPaths = field(repr=False)

    @property
    def best_budget(self) -> int:
        """The budget with the least cost; the smaller one if two are equal. More steps than this do not help."""
        return int(np.argmin(self.costs))

    def cost_nats(self, budget: int) -> float:
        """C[K, T]: the least cost of K steps from T to 0, in nats, without the prior."""
        return float(self.costs[self._checked_budget(budget)])

    def bpd(self, budget: int) -> float:
        """The least cost of K steps plus the prior, in bits per dimension."""
        cost_nats = self.cost_nats(budget)
        if not hasattr(self.table, "prior_nats"):
            given = "a plain array" if self.table is None else "costs that are not nats"
            raise ValueError(
                f"bits/dim needs the prior and the number of dimensions, but solve() was given {given}. "
                "Use cost_nats(K), or solve a CostTable."
            )
        return float((cost_nats + self.table.prior_nats) / (self.table.dims * math.log(2.0)))

    def path(self, budget: int) -> list[int]:
        """The best path of K steps: K + 1 grid indices from T down to 0.

        Among paths of equal cost it is the one that goes to the smallest s at its first step, then at its second, and
        so on: the path that argmin reads from the plain recurrence.
        """
        return self._paths.read(self._checked_budget(budget))

    def schedule(self, budget: int) -> Any:
        """The best path of K steps as a Schedule, made by the cost table that was solved."""
        path = self.path(budget)
        if self.table is None:
            raise ValueError(
                "A Schedule needs the grid's times and the options of the costs, but solve() was given a plain array. "
                "Use path(K), or solve a CostTable."
            )
        return self.table.schedule(path, self.cost_nats(budget), stride="dp")

    def plot(self) -> Figure:
        """Cost against budget and the steps of some budgets, as a matplotlib figure."""
        from ..report.notebook import plot_solution

        return plot_solution(self)

    def _repr_html_(self) -> str:
        from ..report.notebook import solution_html

        return solution_html(self)

    def _checked_budget(self, budget: int) -> int:
        K = operator.index(budget)
        if not 1 <= K <= self.max_budget:
            reason = f"T = {self.T}" if self.max_budget == self.T else f"max_budget = {self.max_budget} was solved for"
            raise ValueError(
                f"A budget must lie between 1 and {self.max_budget} ({reason}), but {K} was asked for."
                + (" Solve again with a larger max_budget." if self.max_budget < K <= self.T else "")
            )
        if self._paths.first > K:
            raise ValueError(
                "Budget 1 is undefined with the respaced decoder, whose variance needs a second step. "
                "Ask for 2 steps or more, or choose another decoder."
            )
        if not np.isfinite(self.costs[K]):
            raise ValueError(
                f"Every path of {K} steps has infinite cost. Budgets with a finite path: "
                f"{_ranges(np.flatnonzero(np.isfinite(self.costs)))}."
            )
        return K


def solve(costs: Any, max_budget: int | None = None, progress: bool = False) -> Solution:
    """The best path of every budget up to `max_budget`, exactly (Watson et al. 2021, section 4.2).

        C[0, 0] = 0,  C[0, t] = inf,  C[k, t] = min over s < t of C[k − 1, s] + L[t, s]

    Args:
        costs: a CostTable, or a plain array L [T+1, T+1] in nats, where L[t, s] is the cost of the step t → s. A step
            always goes down, so entries with s >= t play no part, whatever they hold; inf below the diagonal
            forbids a step. With a table's `pairs`, where pairs[t2, t1] is the cost of the last two steps
            t2 → t1 → 0 together, C[2, t2] = min over t1 of pairs[t2, t1] is the base case and L[t, 0] is not used. With
            `triples`, where triples[r, t, s] is the cost of t → s after r → t, L is that of first and last steps.
        max_budget: the largest budget wanted, at most T; all T budgets if None.
        progress: show a progress bar if it takes long (only ever on a terminal).

    Ties go to the smallest s at every step, so the answer does not depend on the kernel or the number of threads.
    """
    from . import monge, recurrence
    from .paths import StoredPaths

    table = costs if hasattr(costs, "L") else None
    pairs = getattr(table, "pairs", None)
    first_s = 0 if pairs is None else 1
    L = _checked_table(costs if table is None else table.L, "L", first_s)
    T = L.shape[0] - 1
    if pairs is not None:
        pairs = _checked_table(pairs, "pairs", first_s)
        if pairs.shape != L.shape:
            raise ValueError(
                f"pairs must have the shape of L, {L.shape}, but has {pairs.shape}. Compute both together."
            )
    K = _checked_max_budget(max_budget, T)
    if (triples := getattr(table, "triples", None)) is not None:
        from . import second_order

        return _solution(T, K, *second_order.solve(L, triples, K), table)
    first_budget = 1 if pairs is None else 2
    if first_budget > K:
        raise ValueError(
            f"The respaced decoder needs a second step, but T = {T} and max_budget = {K} leave only one. "
            "Allow at least 2 steps, or choose another decoder."
        )

    paths = StoredPaths.empty(T, first_budget, K)
    if pairs is None:
        base = L[:, 0]
    else:
        base = np.full(T + 1, np.inf)
        for t2 in range(2, T + 1):
            t1 = 1 + int(pairs[t2, 1:t2].argmin())
            base[t2], paths.D[paths.at(2, t2)] = pairs[t2, t1], t1
    violation = monge.violation(L, first_budget) if monge.pays(T, K) else math.inf
    final = monge.solve(L, base, K, violation, paths) if violation < math.inf else None
    if final is None:
        final = recurrence.solve(L, base, K, paths, progress=progress)
    return _solution(T, K, final, paths, table)


def solve_lines(snr: ArrayLike, M: ArrayLike, decoder: ArrayLike, max_budget: int, *, table: Any = None) -> Solution:
    """solve() for `posterior` variance without making its table: for grids of 100,000 points.

        L[t, s] = ½ (snr[s] − snr[t]) M[t] for 1 <= s < t,  L[t, 0] = decoder[t]

    Exact for any M. Costs are those of the table to rounding; where two paths cost the same to rounding, either may be
    returned. O(K T log T) time; 2 K T bytes, or 4 K T from T = 65,536 on.

    Args:
        snr: [T+1] signal-to-noise ratio, falling; index 0 is not read.
        M: [T+1] E Σ e², the expected squared error of x̂_0 summed over dimensions; index 0 is not read.
        decoder: [T+1] nats, inf where the last step may not start; index 0 is not read.
        max_budget: the largest budget wanted, at most T.
        table: what supplies `prior_nats`, `dims` and `schedule(steps, cost_nats)` for the Solution, as a CostTable does.
    """
    from . import envelope

    arrays = {"snr": _checked_row(snr, "snr"), "M": _checked_row(M, "M"), "decoder": _checked_row(decoder, "decoder")}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"snr, M and decoder must be given on one grid, but have lengths {lengths}.")
    T = lengths["snr"] - 1
    K = _checked_max_budget(max_budget, T)
    for name, wrong, rule in (
        ("snr", ~np.isfinite(arrays["snr"]) | (arrays["snr"] < 0), "be finite and not negative"),
        (
            "snr",
            np.append(arrays["snr"][1:] > arrays["snr"][:-1], False),
            "not rise with t; index 0 is clean data, index T is noise",
        ),
        ("M", ~np.isfinite(arrays["M"]) | (arrays["M"] < 0), "be finite and not negative, being a mean of squares"),
        ("decoder", ~(arrays["decoder"] > -np.inf), "be finite, or inf for a forbidden last step"),
    ):
        wrong[0] = False
        if wrong.any():
            t = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"{name} must {rule}, but {name}[{t}] = {arrays[name][t]}.")
    costs, paths = envelope.solve(arrays["snr"], arrays["M"], arrays["decoder"], K)
    return _solution(T, K, costs, paths, table)


def _solution(T: int, K: int, costs: NDArray[np.float64], paths: StoredPaths | PairPaths, table: Any) -> Solution:
    if not np.isfinite(costs).any():
        raise ValueError(
            f"Every path from T = {T} to 0 with at most {K} steps has infinite cost. "
            "Look for rows of L that are inf everywhere below the diagonal, or allow more steps."
        )
    costs.setflags(write=False)
    return Solution(T, K, costs, table, paths)


def _checked_table(values: ArrayLike, name: str, first_s: int) -> NDArray[np.float64]:
    """The table as float64 in C order (itself if so already), with nothing that poisons a sum at first_s <= s < t."""
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
    table.flags.writeable = False  # of this view only: kernels are compiled once, for tables that can not be written

    # One pass without temporaries settles almost every table: min() passes on NaN and -inf wherever they are.
    # -1.7e308 / T: with costs above it no sum of T of them overflows to -inf, which would meet inf and become NaN.
    lowest_allowed = -1.7e308 / T
    if not table.min() >= lowest_allowed:
        for t in range(first_s + 1, T + 1):
            row = table[t, first_s:t]
            if not row.min() >= lowest_allowed:
                s = first_s + int(np.flatnonzero(~(row >= lowest_allowed))[0])
                raise ValueError(
                    f"{name} must be finite or inf for s < t, but {name}[{t}, {s}] = {table[t, s]}. "
                    "Use inf for a forbidden step; a NaN usually means the network returned one at that t."
                )
    return table


def _checked_row(values: ArrayLike, name: str) -> NDArray[np.float64]:
    row = np.ascontiguousarray(values, dtype=np.float64)
    if row.ndim != 1 or len(row) < 2:
        raise ValueError(f"{name} must be one row [T+1] with T >= 1, but its shape is {row.shape}.")
    return row


def _checked_max_budget(max_budget: int | None, T: int) -> int:
    K = T if max_budget is None else operator.index(max_budget)
    if not 1 <= K <= T:
        raise ValueError(
            f"max_budget must lie between 1 and T = {T}, but is {K}. A path has at most one step per grid step."
        )
    return K


def _ranges(numbers: NDArray[np.int64]) -> str:
    """Sorted numbers as text, runs shortened: [1, 2, 3, 7] → "1-3, 7"."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
