"""Regret: how far the chosen paths may be from the best, given the evaluated times; and where to evaluate next.

Two things are unknown when a path is chosen: the results on other samples, and the curve between the evaluated times.
Replicates draw both. The samples are resampled with replacement (images are shared by all t, so whole samples, or blocks of
samples if statistics are stored by block). Between two evaluated times the interpolated curve is moved by a random amount
whose size comes from leaving one evaluated time out: the error with which the others predict it, less what Monte Carlo
noise explains. Each replicate is a possible truth with its own table, and the regret in it is the cost of the chosen path
there less the cost of the best path there. Near the optimum regret is quadratic in the errors of the table, so the spread
of the replicates around the estimate is that of the estimate around the truth; and the regret of the replicate's path
under the estimate is another draw of the same. The larger of the two is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..objectives.engine import ElboEngine
from ..statistics.interpolate import fill
from ..variances import Errors, Steps
from .candidates import REACHES, Array, Candidates, Indices
from .gaps import NEIGHBOURS, Gaps, around, gaps_between

LN2 = math.log(2.0)
CONFIDENCE = 0.95
REPLICATES = 200


@dataclass(frozen=True)
class Belief:
    """The judgement after a round: regret by replicate and budget, in the unit of `Judge.scale`."""

    budgets: tuple[int, ...]
    regret: Array  # [replicates, budgets]
    gaps: Indices  # [gaps, 2] neighbouring evaluated times with others between them
    weights: Array  # [gaps] the uncertain cost that each contributes, in the same unit
    worth: npt.NDArray[np.bool_]  # [gaps] whether that is more than the noise of another evaluated time

    @property
    def mean(self) -> Array:
        """Expected regret of each budget."""
        return np.asarray(self.regret.mean(axis=0))

    @property
    def upper(self) -> Array:
        """Upper bound of each budget's regret with 95% confidence."""
        return np.quantile(self.regret, CONFIDENCE, axis=0)


class Judge(Candidates):
    """Uncertainty between the evaluated times and from the samples, and its effect on the chosen paths."""

    @cached_property
    def _at_known(self) -> Indices:
        """Positions of the evaluated times among the candidates."""
        return np.searchsorted(self.grid, self.known)

    def row_gaps(self, weights: Array) -> list[Gaps]:
        """Uncertainty of ln Σ e²; with a learned variance, of the costs of steps of each of `REACHES`."""
        if not self.learned or self.grid.size == 1:  # a single time has no steps above 0
            return [self.error_gaps(weights)] * len(REACHES)
        missed = self._learned_misses()
        # The first time has no steps of its own; it is given the level of the second.
        levels = [
            np.array([self._step_level(max(i, 1), reach, weights) for i in self._at_known.tolist()])
            for reach in REACHES
        ]
        u = self.place.u[self.known]
        return [gaps_between(u, level, missed[:, column]) for column, level in enumerate(levels)]

    def error_gaps(self, weights: Array) -> Gaps:
        """Uncertainty of ln Σ e², which is interpolated as the error of the network's output."""
        squared = self.squared_error[self._at_known] @ weights
        least = 0.1 * squared[:, :1]  # stretched replicates stay above zero
        levels = np.log(np.maximum(np.maximum(squared, least), 1e-300) * self.gain[self.known, None])
        return gaps_between(self.place.u[self.known], levels)

    def decoder_gaps(self, decoder: Array) -> Gaps:
        """Uncertainty of the ratio of the decoder's cost to `rough_decoder`, beyond that of Σ e²."""
        rough, _ = self.rough_decoder
        return gaps_between(self.place.u[self.known], (decoder / rough[:, None])[self._at_known])

    def _row_unknown(self, weights: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """`row_gaps` at every candidate, [reaches, n], and for each gap whether any is worth evaluating."""
        of_reach = [self._spread(gaps) for gaps in self.row_gaps(weights)]
        return np.stack([error for error, _ in of_reach]), np.any([worth for _, worth in of_reach], axis=0)

    def _decoder_unknown(self, decoder: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """`decoder_gaps` at every candidate, in nats."""
        rough, _ = self.rough_decoder
        error, worth = self._spread(self.decoder_gaps(decoder))
        return np.where(np.isfinite(rough), rough, 0.0) * error, worth

    def _learned_misses(self) -> Array:
        """ln of the costs of steps from each evaluated time by prediction from the others, less their own. [known, reaches]"""
        missed = np.zeros((self.known.size, len(REACHES)))
        for row, t in enumerate(self.known[1:-1].tolist(), start=1):
            low, high = around(self.place.u[self.known], row)
            others = np.isin(np.arange(self.process.T + 1), np.delete(self.known, np.arange(low + 1, high)))
            i = int(np.searchsorted(self.grid, t))
            at = np.array([self._reached(i, reach)[0] for reach in REACHES])
            filled = fill(self.needed, others, rows=[t])
            costs = ElboEngine(filled, self.engine.options, self.engine.fitted).step_nats(t, self.grid[at])
            missed[row] = np.log(np.maximum(costs, 1e-300) / np.maximum(self.estimate[i * (i - 1) // 2 + at], 1e-300))
        return missed

    def _reached(self, i: int, reach: float) -> tuple[int, Array]:
        """The nearest candidate at this reach or beyond from candidate i, and the reach of all that lie below."""
        u = self.place.u[self.grid[: i + 1]]
        far = (u[-1] - u[:-1]) / (u[-1] - u[0])
        return int((far >= reach).sum()) - 1, far

    def _step_level(self, i: int, reach: float, weights: Array) -> Array:
        """ln of the cost of a step from i of this reach per unit of snr, linear between two candidates."""
        j, far = self._reached(i, reach)
        pair = [j, min(j + 1, i - 1)]
        at = i * (i - 1) // 2 + np.array(pair)
        costs = self.estimate[at, None] + self._unit_deviations[at] @ (weights - self.sizes[:, None])
        level = np.log(np.maximum(costs, 1e-300) / self._steps.Delta[at, None])
        span = far[pair[0]] - far[pair[1]]
        share = 1.0 if span == 0.0 else max((reach - far[pair[1]]) / span, 0.0)
        return np.asarray(share * level[0] + (1.0 - share) * level[1])

    def unknown(self, levels: Array, missed: Array | None = None) -> tuple[Array, npt.NDArray[np.bool_]]:
        """`gaps_between` these levels of the evaluated times, at every candidate, and whether gaps are worth evaluating."""
        return self._spread(gaps_between(self.place.u[self.known], levels, missed))

    def _spread(self, gaps: Gaps) -> tuple[Array, npt.NDArray[np.bool_]]:
        return gaps.at(np.searchsorted(self.known, self.grid), self.place.weight[self.grid]), gaps.worth

    # --- beliefs ----------------------------------------------------------------------------------------------------------

    def scale(self, least: Array) -> Array:
        """Divisor of costs that gives the unit of regret, bits/dim; ``least`` are the costs of the best paths, [budgets]."""
        return np.full(least.shape, self.dims * LN2)

    def belief(self, budgets: Sequence[int], seed: int = 0) -> Belief:
        """Regret of the paths that the estimate chooses, in every replicate."""
        budgets, rng = tuple(budgets), np.random.default_rng(seed)
        weights = self._resampled(rng)
        decoder = self.decoder @ weights
        row_error, row_worth = self._row_unknown(weights)
        error, error_worth = self._spread(self.error_gaps(weights))
        decoder_error, decoder_worth = self._decoder_unknown(decoder)
        _, in_proportion = self.rough_decoder  # to Σ e²
        still = np.ones((len(REACHES), self.grid.size))
        estimate = self.table(self.steps(self.sizes, still), decoder[:, 0], max(budgets))
        chosen = [estimate.best(K) for K in budgets]
        scale = self.scale(estimate.least[list(budgets)])
        gap = np.searchsorted(self.known, self.grid)  # of the candidates below known[gap] and above known[gap - 1]
        moves = rng.standard_t(2 * NEIGHBOURS + 1, (3, self.known.size, REPLICATES))  # as many errors are pooled
        regret = np.empty((REPLICATES, len(budgets)))
        need = np.zeros(self.known.size)
        for r in range(REPLICATES):
            factor = np.exp(row_error * moves[0, gap, r])  # steps of all reaches are off together
            shifted = decoder[:, r + 1] + in_proportion * np.expm1(error * moves[1, gap, r])
            shifted += decoder_error * moves[2, gap, r]
            there, best = self._regret(chosen, budgets, weights[:, r + 1], factor, decoder=shifted)
            here = [estimate.costs(path).sum() - estimate.least[K] for (path, _), K in zip(best, budgets, strict=True)]
            regret[r] = np.maximum(there, here)
            for (path, costs), unit in zip(best, scale, strict=True):
                np.add.at(need, gap[path[:-1] - 1], costs * row_error.max(axis=0)[path[:-1] - 1] / unit)
                need[gap[path[-2] - 1]] += (decoder_error + in_proportion * error)[path[-2] - 1] / unit
        open_gaps = np.flatnonzero(np.diff(self.known) > 1) + 1
        return Belief(
            budgets=budgets,
            regret=regret / scale,
            gaps=np.stack([self.known[open_gaps - 1], self.known[open_gaps]], axis=1),
            weights=need[open_gaps] / REPLICATES,
            worth=(row_worth | error_worth | decoder_worth)[open_gaps],
        )

    def _resampled(self, rng: np.random.Generator) -> Array:
        """Weights of the units in the estimate and in each replicate, [units, 1 + replicates].

        Resampling uses the spread of the units as that of the population. It is known only as well as a variance from
        2 units / (kurtosis − 1) degrees of freedom, so each replicate's distance from the estimate is stretched as that
        of a Student's t is: by a few percent for many samples, more for few samples or samples with a few outliers.
        """
        units = self.sizes.size
        counts = rng.multinomial(units, np.full(units, 1.0 / units), size=REPLICATES)
        drawn = counts * self.sizes
        drawn /= drawn.sum(axis=1, keepdims=True)
        deviation = self.squared_error - self.squared_error.mean(axis=1, keepdims=True) * self.units.dims_ratio
        variance = np.maximum((deviation**2).mean(axis=1), 1e-100)
        kurtosis = float(np.median((deviation**4).mean(axis=1) / variance**2))
        freedom = max(2.0 * units / max(kurtosis - 1.0, 0.1), 4.0)
        stretch = np.sqrt(freedom / rng.chisquare(freedom, size=REPLICATES))
        stretched = self.sizes + stretch[:, None] * (drawn - self.sizes)
        return self.units.balanced(np.concatenate([self.sizes[None], stretched]).T)

    def _regret(
        self, chosen: list[Indices], budgets: tuple[int, ...], weights: Array, factor: Array, decoder: Array
    ) -> tuple[list[float], list[tuple[Indices, Array]]]:
        """Regret in nats of the chosen paths, and the best paths with the costs of their steps, without the decoder."""
        table = self.table(self.steps(weights, factor), decoder, max(budgets))
        regret, best = [], []
        for path, K in zip(chosen, budgets, strict=True):
            costs = table.costs(path)
            if self.refits:  # the chosen path keeps the variances that were fitted with it
                steps = Steps(self.process, self.dims, self.grid[path[:-2] - 1], self.grid[path[1:-1] - 1])
                truth = self._mean_squared_error(weights, factor)[path[:-2] - 1]
                costs[:-1] = self.engine.variance.nats(steps, Errors(truth), self.engine.fitted)
            regret.append(float(costs.sum() - table.least[K]))
            other = table.best(K)
            best.append((other, np.append(table.costs(other)[:-1], 0.0)))
        return regret, best
