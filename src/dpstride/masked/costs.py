"""Stage 6. Costs of rounds: a round t → s reveals t − s tokens at c_t nats each, given the n − t that are known.

    L(t, s) = (t − s) c_t,  c_t = E[−ln p(x_l given the known tokens)] over samples, masks of t positions, and masked l

is linear in s, so `solve` needs no table. Its sum over rounds is an upper bound on E[−ln p] in nats per sequence, for chains
that reveal tokens in random order. Between times τ → σ in (0, 1], with each token masked with probability τ,

    L(τ, σ) = n (τ − σ) E[c_m],  m − 1 binomial of n − 1 tokens with probability τ

since m − 1 other tokens are masked besides a masked one; again linear, with different weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..objectives.step_costs import standard_error
from ..options import BEST, GIVEN
from ..solver import solve
from ..solver.costs import Lines, TableOrLines
from .process import MaskedProcess
from .schedule import BinomialSchedule, MaskedSchedule, MaskedScheduleSet
from .statistics import MaskedStatistics

Array = npt.NDArray[np.float64]
LN2 = math.log(2.0)
TABLE = 8192  # most counts if samples have different lengths, which need a table: half a GB for this many


@dataclass(frozen=True, eq=False)
class MaskedCosts(TableOrLines):
    """Costs of every round on a grid, for `solve`: nats per sequence, from `masked_costs` or `binomial_costs`.

    Attributes:
        tokens: [N], number of generated tokens of each sample.
        sequence: [N], the sequence that a sample belongs to.
        unit_totals: path of grid indices → nats of every sample [N].
        make: path, bits/token, standard error, stride → schedule.
        lines: the costs without a table; then ``table`` is None.
        table: L [T + 1, T + 1], if samples have different lengths.
    """

    tokens: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int64]
    unit_totals: Callable[[Sequence[int]], Array] = field(repr=False)
    make: Callable[[Sequence[int], float, float, str], Any] = field(repr=False)
    lines: Lines | None = field(default=None, repr=False)
    table: Array | None = field(default=None, repr=False)
    unit: str = "nats per sequence"
    pairs: None = None
    triples: None = None
    pairs_rule: str = ""
    scored: bool = False  # no bits/dim; bits/token have methods of their own

    def path_bpd(self, path: Sequence[int], cost: float | None = None) -> float:
        """Bits/token of a path of grid indices."""
        return self.bits_per_token(path)[0]

    def bits_per_token(self, path: Sequence[int]) -> tuple[float, float]:
        """Bits/token of a path of grid indices, the mean over all tokens of all samples, and its standard error."""
        return mean_bits(self.unit_totals(path), self.tokens, self.sequence)

    def schedule(self, path: Sequence[int], cost: float | None = None, stride: str = GIVEN) -> Any:
        """A path of grid indices as a schedule, with its bits/token."""
        return self.make(path, *self.bits_per_token(path), stride)


def masked_costs(statistics: MaskedStatistics) -> MaskedCosts:
    """Costs of rounds that reveal fixed numbers of tokens, from `estimate_masked`, as input of `solve`.

    If samples have different numbers of tokens, the same share of each is masked, rounded half up, and costs are a table.
    """
    process, nats = statistics.process, statistics.nats

    def unit_totals(path: Sequence[int]) -> Array:
        masked = statistics.masked_counts(list(path))
        return np.asarray((-np.diff(masked, axis=0) * nats[list(path[:-1])]).sum(axis=0))

    def make(path: Sequence[int], bits: float, error: float, stride: str) -> MaskedSchedule:
        counts = tuple(process.counts[list(path)].tolist())
        return MaskedSchedule(
            process.length, counts, stride, bits, standard_error=error, provenance=provenance_of(statistics)
        )

    lines = table = None
    if statistics.equal:
        means = nats.mean(axis=1)
        lines = Lines(process.length - process.counts.astype(np.float64), 2.0 * means, process.counts * means)
    else:
        table = _table(statistics)
    return MaskedCosts(statistics.sizes, statistics.sequence, unit_totals, make, lines=lines, table=table)


def binomial_costs(statistics: MaskedStatistics, times: npt.ArrayLike) -> MaskedCosts:
    """Costs of rounds between ``times``, ascending from 0 to 1, with binomial numbers of tokens, as input of `solve`.

    Needs statistics of every count, and samples of one length.
    """
    grid = np.asarray(times, dtype=np.float64)
    if grid.ndim != 1 or grid.size < 2 or grid[0] != 0.0 or grid[-1] != 1.0 or not (np.diff(grid) > 0.0).all():
        raise ValueError(f"times must rise strictly from 0 to 1, not {times!r:.120}.")
    n = statistics.process.length
    if n != statistics.process.T or not statistics.equal:
        raise ValueError(
            "Chains by times need c_t of every number of masked tokens, for samples of one length, but these statistics have "
            f"{statistics.process.T} of {n} counts. Estimate at every count, or score the times with bits_per_token."
        )
    per_token = _binomial_means(grid, statistics.nats)  # [times, N]

    def unit_totals(path: Sequence[int]) -> Array:
        revealed = -np.diff(grid[list(path)])
        return np.asarray(n * (revealed[:, None] * per_token[list(path[:-1])]).sum(axis=0))

    def make(path: Sequence[int], bits: float, error: float, stride: str) -> BinomialSchedule:
        return BinomialSchedule(tuple(grid[list(path)].tolist()), stride)

    means = per_token.mean(axis=1)
    lines = Lines(n * (1.0 - grid), 2.0 * means, n * grid * means)
    return MaskedCosts(statistics.sizes, statistics.sequence, unit_totals, make, lines=lines)


def masked_schedules(statistics: MaskedStatistics, max_budget: int | None = None) -> MaskedScheduleSet:
    """The best schedule of every number of rounds from saved statistics: no network pass."""
    costs = masked_costs(statistics)
    solution = solve(costs, max_budget)
    entries = {}
    for budget in range(1, solution.max_budget + 1):
        schedule = solution.schedule(budget)
        entries[budget] = (schedule.counts, schedule.bits, schedule.standard_error)
    return MaskedScheduleSet(statistics.process.length, entries, BEST, provenance_of(statistics))


def score_masked(statistics: MaskedStatistics, schedule: MaskedSchedule | BinomialSchedule) -> tuple[float, float]:
    """Bits/token of a schedule on held-out statistics, and its standard error: no network pass."""
    if isinstance(schedule, BinomialSchedule):
        costs = binomial_costs(statistics, schedule.times[::-1])
        return costs.bits_per_token(range(schedule.budget, -1, -1))
    if schedule.length != statistics.process.length:
        raise ValueError(
            f"The schedule is for {schedule.length} tokens, the statistics for {statistics.process.length}. Score it with "
            "bits_per_token."
        )
    return masked_costs(statistics).bits_per_token(statistics.process.indices_of(schedule.counts).tolist())


def mean_bits(nats: Array, tokens: npt.NDArray[np.int64], sequence: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Bits per token of samples with these nats and tokens [N], and the standard error over independent sequences."""
    _, place = np.unique(sequence, return_inverse=True)  # ids of sequences may be any integers
    totals, weights = (np.asarray(np.bincount(place, each), dtype=np.float64) for each in (nats, tokens))
    totals, weights = totals[weights > 0.0], weights[weights > 0.0]
    return float(totals.sum() / weights.sum()) / LN2, standard_error(totals / weights, weights) / LN2


def provenance_of(statistics: MaskedStatistics) -> Mapping[str, Any]:
    """Provenance of schedules found from these statistics, as stored in files."""
    kept = {name: value for name, value in statistics.identity.items() if name != "behaviour"}
    return {**kept, "samples": statistics.samples}


def _table(statistics: MaskedStatistics) -> Array:
    """L for samples of different lengths: the mean over samples of (t_i − s_i) c_{t,i}, summed up length by length."""
    process: MaskedProcess = statistics.process
    if process.T > TABLE:
        raise ValueError(
            f"Samples of different lengths need a table of costs, of at most {TABLE} counts, but there are {process.T}. Give "
            "counts= to estimate_masked, or sequences of one length."
        )
    L = np.zeros((process.T + 1, process.T + 1))
    for size in np.unique(statistics.sizes):
        who = statistics.sizes == size
        masked = statistics.masked_counts()[:, who][:, 0].astype(np.float64)
        L += (masked[:, None] - masked) * statistics.nats[:, who].sum(axis=1)[:, None]
    L /= statistics.samples
    L[np.triu_indices(process.T + 1)] = np.inf
    return L


def _binomial_means(times: Array, nats: Array) -> Array:
    """E[c_m] of every sample at every time [times, N], with m − 1 binomial of n − 1."""
    from scipy.stats import binom

    n = len(nats) - 1
    others = np.arange(n)
    return np.stack([binom.pmf(others, n - 1, time) @ nats[1:] for time in times])
