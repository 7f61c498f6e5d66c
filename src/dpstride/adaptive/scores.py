"""Scores of paths from few evaluated times: how far they may be from those of every time, and where to evaluate next.

A score is a sum over the rows that a path visits. If rows are filled in, it differs for three reasons from the score of every
time on the same samples with the same noise: the interpolated curve is off, in the same way all over a gap; the evaluated rows
at the ends of a gap carry their own noise into every row between them; and those rows would have had noise of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..fitted import Fitted
from ..objectives.engine import PATHS_AT_ONCE, STEPS_AT_ONCE, ElboEngine, Path, Units
from ..objectives.step_costs import standard_error
from ..options import CostOptions
from ..statistics.artefact import Statistics
from ..statistics.interpolate import fill
from .candidates import REACHES, Array, Indices
from .gaps import Gaps
from .regret import LN2, Judge

SHARE = 0.1  # of a score's standard error, that interpolation may add before more times are evaluated
ADDED = 4  # times of every round, or a quarter of those evaluated
MOST = 64  # times that scores are taken from, unless the paths were chosen from more
# A gap's curve is moved by Student's t with 5 degrees of freedom: its 97.5% quantile over that of the normal.
STRETCH = 2.5706 / 1.9600
Evaluate = Callable[[Sequence[int]], Statistics]


@dataclass(frozen=True)
class Uncertainty:
    """Variances that interpolation adds to the scores of some paths, in squared nats.

    Their sum is that of a normal distribution whose 95% interval contains the difference from the score of every time.
    """

    curve: Array  # [paths, known] by the gap below each evaluated time
    ends: Array  # [paths, known] the noise of the evaluated rows, divided between the gaps on both sides
    own: Array  # [paths, T + 1] the noise that rows would have had of their own

    @property
    def nats(self) -> Array:
        """Standard deviations, [paths]."""
        return np.asarray(np.sqrt(self.curve.sum(axis=1) + self.ends.sum(axis=1) + self.own.sum(axis=1)))


class ScoreJudge(Judge):
    """Judge of the scores of paths on ``statistics``, whose rows ``evaluated`` were measured."""

    def __init__(
        self,
        statistics: Statistics,
        evaluated: npt.ArrayLike,
        options: CostOptions,
        fitted: Fitted | None = None,
    ) -> None:
        super().__init__(statistics, evaluated, options, fitted)
        self.scores = ElboEngine(fill(self.needed, self.place.mask), options, self.engine.fitted)
        weights = self._resampled(np.random.default_rng(0))
        self._of_errors = self.error_gaps(weights)
        self._of_rows = self.row_gaps(weights) if self.learned else [self._of_errors]
        self._of_decoder = self.decoder_gaps(self.decoder @ weights)
        self.gap = np.searchsorted(
            self.known, np.arange(self.process.T + 1)
        )  # index of the evaluated time at or above each t

    def interpolation(self, paths: Sequence[Path]) -> Array:
        """Standard errors that interpolation adds to the scores of these paths, in bits/dim."""
        arrays = [np.asarray(path) for path in paths]
        parts = [arrays[first : first + PATHS_AT_ONCE] for first in range(0, len(arrays), PATHS_AT_ONCE)]
        nats = [self.uncertainty(part).nats for part in parts]
        return np.concatenate([np.zeros(0), *nats]) / (self.dims * LN2)

    def standard_errors(self, paths: Sequence[Path]) -> Array:
        """Standard errors of the scores from differences between samples, in bits/dim."""
        totals, sizes = self.scores.unit_totals(paths)
        return np.array([standard_error(row, sizes) for row in totals]) / (self.dims * LN2)

    def uncertainty(self, paths: Sequence[Indices]) -> Uncertainty:
        """Uncertainty of the scores of at most a few hundred paths."""
        sums = _Sums(len(paths), self)
        where = np.repeat(np.arange(len(paths)), [path.size - 2 for path in paths])
        t, s = np.concatenate([path[:-2] for path in paths]), np.concatenate([path[1:-1] for path in paths])
        filled = ~self.place.mask[t]
        where, t, s = where[filled], t[filled], s[filled]
        costs = self._uncertain_costs(t, s)
        for gaps, share in zip(self._of_rows, self._shares(t, s), strict=True):
            sums.move(where, t, costs * share, gaps)
            sums.shake(where, t, costs * share, gaps)
        self._add_decoders(sums, np.array([path[-3:-1] if path.size > 2 else path[[0, 0]] for path in paths]))
        return sums.total()

    def _uncertain_costs(self, t: Indices, s: Indices) -> Array:
        """The part of step costs that is proportional to the quantity interpolated at t, in nats."""
        if not self.learned:
            _, b = self.scores.step_lines(t, s)
            return np.asarray(b * self.scores.statistics.squared_error.mean(axis=1)[t])
        kinds, at = np.unique(t * (self.process.T + 1) + s, return_inverse=True)
        units, costs = Units(self.scores.statistics, by_sample=False), np.zeros(kinds.size)
        for first in range(0, kinds.size, STEPS_AT_ONCE):
            some = kinds[first : first + STEPS_AT_ONCE]
            by_unit = self.scores.step_units(units, some // (self.process.T + 1), some % (self.process.T + 1))
            costs[first : first + some.size] = by_unit @ units.shares
        return np.asarray(costs[at.reshape(-1)])

    def _shares(self, t: Indices, s: Indices) -> Array:
        """Weights of each step's length among `REACHES`, [reaches, steps]."""
        if not self.learned:
            return np.ones((1, t.size))
        u = self.place.u
        far = (u[t] - u[s]) / (u[t] - u[1])
        return np.array([np.interp(far, REACHES, one) for one in np.eye(len(REACHES))])

    def _add_decoders(self, sums: _Sums, last: Indices) -> None:
        """Add the uncertainty of the last step, for the last two grid indices above 0 [paths, 2] of each path."""
        where = np.flatnonzero(~self.place.mask[last[:, 1]])
        t2, t = last[where].T
        rough, in_proportion = self.rough_decoder_at(t, self.scores.statistics.squared_error.mean(axis=1)[t])
        if self.engine.decoder.couples:
            ratio = self.over_last_pair(t2, t)
            rough, in_proportion = rough * ratio, in_proportion * ratio
        sums.move(where, t, in_proportion, self._of_errors, apart="error" if self.learned else None)
        if not self.engine.discretised:  # its cost is a line in Σ e²
            sums.shake(where, t, in_proportion, self._of_errors)
            return
        sums.move(where, t, rough, self._of_decoder, apart="decoder")
        sums.shake(where, t, rough, self._of_decoder)


class _Sums:
    """Standard deviations of paths: those that move together are added, and squared at the end."""

    def __init__(self, paths: int, judge: ScoreJudge) -> None:
        self.place, self.gap, self.known = judge.place, judge.gap, judge.known
        self.curves: dict[str | None, Array] = {}
        self.ends = np.zeros((paths, self.known.size))
        self.own = np.zeros((paths, self.place.mask.size))

    def move(self, where: Indices, t: Indices, nats: Array, gaps: Gaps, apart: str | None = None) -> None:
        """Move the curve between evaluated rows; ``apart`` names a curve that moves by itself."""
        curve = self.curves.setdefault(apart, np.zeros_like(self.ends))
        np.add.at(curve, (where, self.gap[t]), nats * gaps.at(self.gap[t], self.place.weight[t]))

    def shake(self, where: Indices, t: Indices, nats: Array, gaps: Gaps) -> None:
        """Add the noise that evaluated rows carry into those between them, and the own noise of these."""
        gap, w = self.gap[t], self.place.weight[t]
        below, above = nats * (1.0 - w) * gaps.noise[gap - 1], nats * w * gaps.noise[gap]
        np.add.at(self.ends, (where, gap - 1), below)
        np.add.at(self.ends, (where, gap), above)
        np.add.at(self.own, (where, t), below + above)

    def total(self) -> Uncertainty:
        curve = sum((each**2 for each in self.curves.values()), np.zeros_like(self.ends))
        ends = 0.5 * self.ends**2
        ends[:, 1:] += ends[:, :-1].copy()
        ends[:, -1] += 0.5 * self.ends[:, -1] ** 2
        if self.known.size > 1:  # there is no gap below the first
            ends[:, 1] += ends[:, 0]
            ends[:, 0] = 0.0
        return Uncertainty(STRETCH**2 * curve, ends, self.own**2)


def refine_scores(
    evaluate: Evaluate,
    finish: Evaluate,
    paths: Sequence[Path],
    options: CostOptions,
    *,
    fitted: Fitted | None,
    first: Sequence[int],
    limit: int,
) -> Statistics:
    """Statistics from few grid indices, enough for scores of ``paths`` to which interpolation adds little uncertainty.

    ``evaluate`` returns statistics whose rows at the given grid indices are estimated, and ``finish`` those with all rows
    filled in. It begins with the indices ``first``, and adds more until interpolation contributes less than `SHARE` of each
    score's standard error, or until there are ``limit`` of them.
    """
    indices, arrays = np.unique(np.asarray(first, dtype=np.int64)), [np.asarray(path) for path in paths]
    while True:
        statistics = evaluate(indices.tolist())
        mask = np.isin(np.arange(statistics.process.T + 1), indices)
        room = min(limit, statistics.process.T) - indices.size
        if room <= 0:
            break
        judge = ScoreJudge(statistics, mask, options, fitted)
        added = next_indices(judge, arrays, min(max(ADDED, indices.size // 4), room))
        if added.size == 0:
            break
        indices = np.union1d(indices, added)
    statistics = finish(indices.tolist())
    return statistics if (statistics.evaluated == mask).all() else fill(statistics, mask)


def most_indices(T: int, chosen: int) -> int:
    """Return the most grid indices to score at: with those that chose the paths, a sixteenth of a grid of 1,000 or more."""
    return min(max(min(max(T, 1000) // 16 - chosen, MOST), chosen + 2 * ADDED), T)


def next_indices(judge: ScoreJudge, paths: Sequence[Indices], count: int) -> Indices:
    """Return the grid indices that make the scores of these paths most certain; none if they are certain enough."""
    found, least = judge.uncertainty(paths), np.maximum(judge.standard_errors(paths) * judge.dims * LN2, 1e-12)
    uncertain = found.nats > SHARE * least
    if not uncertain.any():
        return np.zeros(0, dtype=np.int64)
    curve, ends, own = (
        (each[uncertain] / least[uncertain, None] ** 2).sum(axis=0) for each in (found.curve, found.ends, found.own)
    )
    by_gap = curve + ends + np.bincount(judge.gap, weights=own, minlength=judge.known.size)
    by_gap[1:][np.diff(judge.known) < 2] = 0.0
    added = []
    for gap in np.argsort(-by_gap, kind="stable")[:count].tolist():
        if by_gap[gap] > 0.0:
            inside = np.arange(judge.known[gap - 1] + 1, judge.known[gap])
            w = judge.place.weight[inside]
            # The middle tells most about the curve; a row that the paths visit need not be filled in once evaluated.
            added.append(int(inside[(own[inside] + (curve + ends)[gap] * 4.0 * w * (1.0 - w)).argmax()]))
    return np.array(added, dtype=np.int64)
