"""Regret: how far from the best the chosen paths may be, given what was evaluated; and where to look next.

Two things are unknown when a path is chosen: what other samples would have given, and what lies between the evaluated
times. Replicates draw both. The samples are resampled with replacement (images are shared by all t, so whole samples, or
blocks of samples where statistics are kept by block). Between two evaluated times the interpolated curve is moved by a
random amount whose size comes from leaving one evaluated time out: what the others predict for it, less what Monte Carlo
noise explains. Each replicate is a possible truth with its own table, and the regret in it is what the chosen path costs
there less what the best path costs there. Near the optimum regret is quadratic in the errors of the table, so the spread
of the replicates around the estimate is that of the estimate around the truth; and the regret of the replicate's path
under the estimate is another draw of the same. The larger of the two is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..objectives.engine import ElboEngine
from ..options import CostOptions
from ..statistics.artefact import Statistics
from ..statistics.coordinate import monotone_cubic
from ..statistics.interpolate import fill
from ..variances import Errors, Steps
from .candidates import REACHES, Array, Candidates, Indices

LN2 = math.log(2.0)
NEIGHBOURS = 2  # on either side, whose misses count too where one evaluated time is left out
BEND = 3.0  # nats of log-SNR within which a curve may turn from one line to another
APART = 0.125  # of a gap: how far from its ends a time has to be for what is missed there to tell anything
CONFIDENCE = 0.95
REPLICATES = 200


def _growth(width: Any) -> Any:
    """Growth of the error in the middle of a gap with its width.

    That of a cubic falls with the square at least, once the gap is narrower than what bends in it: a few nats of log-SNR.
    """
    return width**2 / (1.0 + (width / BEND) ** 2)


def _around(known: Array, j: int) -> tuple[int, int]:
    """The nearest evaluated times on either side that leave j well inside their gap.

    The two sides of a kink lie next to each other: one that is left out alone is told by the other, and nothing is tested.
    """
    low, high = j - 1, j + 1
    while high < known.size - 1 and known[high] - known[j] < APART * (known[high] - known[low]):
        high += 1
    while low > 0 and known[j] - known[low] < APART * (known[high] - known[low]):
        low -= 1
    return low, high


@dataclass(frozen=True)
class Belief:
    """Belief after a round: regret by replicate and budget, in bits/dim."""

    budgets: tuple[int, ...]
    regret: Array  # [replicates, budgets]
    gaps: Indices  # [gaps, 2] neighbouring evaluated times with others between them
    weights: Array  # [gaps] how much cost hangs on what is unknown there, bits/dim
    worth: npt.NDArray[np.bool_]  # [gaps] whether it is more than the noise that another evaluated time would bring

    @property
    def mean(self) -> Array:
        """Expected regret of each budget."""
        return np.asarray(self.regret.mean(axis=0))

    @property
    def upper(self) -> Array:
        """Upper bound of each budget's regret with 95% confidence."""
        return np.quantile(self.regret, CONFIDENCE, axis=0)


def believe(
    statistics: Statistics,
    evaluated: npt.ArrayLike,
    budgets: Sequence[int],
    options: CostOptions,
    seed: int = 0,
) -> Belief:
    """Judge from rows ``evaluated`` of ``statistics`` the paths that would be chosen from them."""
    return _Judge(statistics, evaluated, options).belief(tuple(budgets), np.random.default_rng(seed))


class _Judge(Candidates):
    """Uncertainty between the evaluated times, and what it and the samples mean for the chosen paths."""

    def _row_unknown(self, weights: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """`unknown` of ln Σ e²; of learned variances, of what steps of each of `REACHES` cost. [3, n]"""
        where = np.searchsorted(self.grid, self.known)
        if not self.learned or self.grid.size == 1:  # a single time has no steps above 0
            error, worth = self._error_unknown(weights)
            return np.stack([error] * len(REACHES)), worth
        missed = self._learned_misses()
        # The first time has no steps of its own; it is given the level of the second.
        of_reach = [
            self.unknown(
                np.array([self._step_level(max(i, 1), reach, weights) for i in where.tolist()]), missed[:, column]
            )
            for column, reach in enumerate(REACHES)
        ]
        return np.stack([error for error, _ in of_reach]), np.any([worth for _, worth in of_reach], axis=0)

    def _error_unknown(self, weights: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """`unknown` of ln Σ e², which is interpolated as the error of what the network predicts."""
        squared = self.squared_error[np.searchsorted(self.grid, self.known)] @ weights
        least = 0.1 * squared[:, :1]  # a stretched replicate must not take it below zero
        return self.unknown(np.log(np.maximum(np.maximum(squared, least), 1e-300) * self.gain[self.known, None]))

    def _decoder_unknown(self, decoder: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """`unknown` of the decoder's cost, in nats, beyond what Σ e² says of it."""
        rough, _ = self.rough_decoder
        error, worth = self.unknown((decoder / rough[:, None])[np.searchsorted(self.grid, self.known)])
        return np.where(np.isfinite(rough), rough, 0.0) * error, worth

    def _learned_misses(self) -> Array:
        """ln of what steps from each evaluated time would cost by the other times, less what they do. [known, reaches]"""
        missed = np.zeros((self.known.size, len(REACHES)))
        for row, t in enumerate(self.known[1:-1].tolist(), start=1):
            low, high = _around(self.place.u[self.known], row)
            others = np.isin(np.arange(self.process.T + 1), np.delete(self.known, np.arange(low + 1, high)))
            i = int(np.searchsorted(self.grid, t))
            at = np.array([self._reached(i, reach)[0] for reach in REACHES])
            filled = fill(self.needed, others, rows=[t])
            costs = ElboEngine(filled, self.engine.options, self.engine.fitted).step_nats(t, self.grid[at])
            missed[row] = np.log(np.maximum(costs, 1e-300) / np.maximum(self.estimate[i * (i - 1) // 2 + at], 1e-300))
        return missed

    def _reached(self, i: int, reach: float) -> tuple[int, Array]:
        """The nearest candidate that is so far from candidate i, and how far all are that lie below."""
        u = self.place.u[self.grid[: i + 1]]
        far = (u[-1] - u[:-1]) / (u[-1] - u[0])
        return int((far >= reach).sum()) - 1, far

    def _step_level(self, i: int, reach: float, weights: Array) -> Array:
        """ln of what a step from i that goes so far costs per unit of snr; between two candidates, on the line."""
        j, far = self._reached(i, reach)
        pair = [j, min(j + 1, i - 1)]
        at = i * (i - 1) // 2 + np.array(pair)
        costs = self.estimate[at, None] + self._unit_deviations[at] @ (weights - self.sizes[:, None])
        level = np.log(np.maximum(costs, 1e-300) / self._steps.Delta[at, None])
        span = far[pair[0]] - far[pair[1]]
        share = 1.0 if span == 0.0 else max((reach - far[pair[1]]) / span, 0.0)
        return np.asarray(share * level[0] + (1.0 - share) * level[1])

    def unknown(self, levels: Array, missed: Array | None = None) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Interpolate between ``levels`` [known, replicates], the first of them the estimate.

        ``missed`` [known] is what the others say of each less what it is, where that is not by a monotone cubic. Returns the
        standard deviation at every candidate, and for the gap below each evaluated time whether it exceeds, in the middle,
        the noise that a row evaluated there would have of its own.
        """
        known, count = self.place.u[self.known], self.known.size
        # By evaluated time: squares of what the others miss there, beyond what noise explains; and of what they would miss
        # if the error in the middle of a gap as wide as 1 were 1, at its place in the gap and at no place too near an end.
        excess, scale, inside, noise = np.zeros((4, count))
        for j in range(1, count - 1):
            low, high = _around(known, j)
            others = np.delete(np.arange(count), np.arange(low + 1, high))
            by_cubic = monotone_cubic(known[others], levels[others])(known[j]) - levels[j]
            explained = float(by_cubic[1:].var())
            width = known[high] - known[low]
            w = (known[j] - known[low]) / width
            excess[j] = (by_cubic[0] if missed is None else missed[j]) ** 2 - explained
            scale[j], inside[j] = (
                (part * _growth(width)) ** 2 for part in (4.0 * w * (1.0 - w), max(4.0 * w * (1.0 - w), 0.25))
            )
            # What samples share at all t cancels in the miss; the noise of t and about half that of two others is left.
            noise[j] = math.sqrt(explained / 1.5)
        # A single miss may be small by chance: those around are asked too, and the larger answer is believed.
        around = [
            np.convolve(squares, np.ones(2 * NEIGHBOURS + 1))[NEIGHBOURS : NEIGHBOURS + count]
            for squares in (excess, scale)
        ]
        alone, pooled = (each / np.maximum(size, 1e-300) for each, size in ((excess, inside), around))
        curvature = np.sqrt(np.maximum(np.maximum(alone, pooled), 0.0))
        noise[[0, -1]] = noise[[min(1, count - 1), max(count - 2, 0)]]
        middle = np.maximum(curvature[1:], curvature[:-1]) * _growth(np.diff(known))
        worth = middle > 0.5 * (noise[1:] + noise[:-1])
        w = self.place.weight[self.grid]
        middle, worth = np.concatenate([[0.0], middle]), np.concatenate([[False], worth])
        return middle[np.searchsorted(self.known, self.grid)] * 4.0 * w * (1.0 - w), worth

    # --- beliefs ----------------------------------------------------------------------------------------------------------

    def belief(self, budgets: tuple[int, ...], rng: np.random.Generator) -> Belief:
        """Regret of the paths that the estimate chooses, in every replicate."""
        weights = self._resampled(rng)
        decoder = self.decoder @ weights
        row_error, row_worth = self._row_unknown(weights)
        error, error_worth = self._error_unknown(weights)
        decoder_error, decoder_worth = self._decoder_unknown(decoder)
        _, in_proportion = self.rough_decoder  # to Σ e²
        still = np.ones((len(REACHES), self.grid.size))
        estimate = self.table(self.steps(self.sizes, still), decoder[:, 0], max(budgets))
        chosen = [estimate.best(K) for K in budgets]
        gap = np.searchsorted(self.known, self.grid)  # of the candidates below known[gap] and above known[gap - 1]
        moves = rng.standard_t(2 * NEIGHBOURS + 1, (3, self.known.size, REPLICATES))  # from as many misses
        regret = np.empty((REPLICATES, len(budgets)))
        need = np.zeros(self.known.size)
        for r in range(REPLICATES):
            factor = np.exp(row_error * moves[0, gap, r])  # steps of all reaches are off together
            shifted = decoder[:, r + 1] + in_proportion * np.expm1(error * moves[1, gap, r])
            shifted += decoder_error * moves[2, gap, r]
            there, best = self._regret(chosen, budgets, weights[:, r + 1], factor, shifted)
            here = [estimate.costs(path).sum() - estimate.least[K] for (path, _), K in zip(best, budgets, strict=True)]
            regret[r] = np.maximum(there, here)
            for path, costs in best:
                np.add.at(need, gap[path[:-1] - 1], costs * row_error.max(axis=0)[path[:-1] - 1])
                need[gap[path[-2] - 1]] += (decoder_error + in_proportion * error)[path[-2] - 1]
        open_gaps = np.flatnonzero(np.diff(self.known) > 1) + 1
        return Belief(
            budgets=budgets,
            regret=regret / (self.dims * LN2),
            gaps=np.stack([self.known[open_gaps - 1], self.known[open_gaps]], axis=1),
            weights=need[open_gaps] / (REPLICATES * self.dims * LN2),
            worth=(row_worth | error_worth | decoder_worth)[open_gaps],
        )

    def _resampled(self, rng: np.random.Generator) -> Array:
        """Weights of the units in the estimate and in each replicate, [units, 1 + replicates].

        Resampling takes the spread of the units for that of the population. It is known only as well as a variance from
        2 units / (kurtosis − 1) degrees of freedom, so each replicate's distance from the estimate is stretched as that
        of a Student's t is: by a few percent for many samples, more for few or for samples of which few are far out.
        """
        units = self.sizes.size
        counts = rng.multinomial(units, np.full(units, 1.0 / units), size=REPLICATES)
        drawn = counts * self.sizes
        drawn /= drawn.sum(axis=1, keepdims=True)
        deviation = self.squared_error - self.squared_error.mean(axis=1, keepdims=True)
        variance = np.maximum((deviation**2).mean(axis=1), 1e-100)
        kurtosis = float(np.median((deviation**4).mean(axis=1) / variance**2))
        freedom = max(2.0 * units / max(kurtosis - 1.0, 0.1), 4.0)
        stretch = np.sqrt(freedom / rng.chisquare(freedom, size=REPLICATES))
        stretched = self.sizes + stretch[:, None] * (drawn - self.sizes)
        return np.concatenate([self.sizes[None], stretched]).T

    def _regret(
        self, chosen: list[Indices], budgets: tuple[int, ...], weights: Array, factor: Array, decoder: Array
    ) -> tuple[list[float], list[tuple[Indices, Array]]]:
        """Regret in nats of the chosen paths, and the best paths with the costs of their steps, the decoder left out."""
        table = self.table(self.steps(weights, factor), decoder, max(budgets))
        regret, best = [], []
        for path, K in zip(chosen, budgets, strict=True):
            costs = table.costs(path)
            if self.refits:  # the chosen path has the variances that were fitted with it
                steps = Steps(self.process, self.dims, self.grid[path[:-2] - 1], self.grid[path[1:-1] - 1])
                truth = self._mean_squared_error(weights, factor)[path[:-2] - 1]
                costs[:-1] = self.engine.variance.nats(steps, Errors(truth), self.engine.fitted)
            regret.append(float(costs.sum() - table.least[K]))
            other = table.best(K)
            best.append((other, np.append(table.costs(other)[:-1], 0.0)))
        return regret, best
