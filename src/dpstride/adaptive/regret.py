"""How far from the best the chosen paths may be, given what was evaluated; and where to look next.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..costs.decoder import decoder_curve, decoder_nats_at, respaced_row
from ..costs.steps import LEARNED, fit_factors, fixed_step, learned_step, snr_difference, step_row
from ..costs.units import unit_terms
from ..fitted import Fitted
from ..solver import recurrence
from ..solver.paths import StoredPaths
from ..statistics import artefact
from ..statistics.artefact import BLOCK_NODES, Statistics
from ..statistics.bins import chebyshev_matrix
from ..statistics.interpolate import Place, check_evaluated, fill, fill_samples, noise_coordinate

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
LN2 = math.log(2.0)
REACHES = (1 / 16, 1 / 2)  # of a short step and of a long one, of the way to the first time in the noise coordinate
NEIGHBOURS = 2  # on either side, whose misses count too where one evaluated time is left out
CONFIDENCE = 0.95
REPLICATES = 200
CANDIDATES = 320  # grid indices among which replicates look for their best path; enough for shifts of 64 steps


@dataclass(frozen=True)
class Belief:
    """What is believed after a round: regret by replicate and budget, in bits/dim."""

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
        """What the regret of each budget is below with 95% confidence."""
        return np.quantile(self.regret, CONFIDENCE, axis=0)


def believe(
    statistics: Statistics,
    evaluated: npt.ArrayLike,
    budgets: Sequence[int],
    options: Mapping[str, Any],
    seed: int = 0,
) -> Belief:
    """What rows ``evaluated`` of ``statistics`` say about the paths that would be chosen from them."""
    return _Candidates(statistics, evaluated, options).belief(tuple(budgets), np.random.default_rng(seed))


def candidate_grid(u: Array, evaluated: Indices, count: int = CANDIDATES) -> Indices:
    """About ``count`` grid indices even in ``u``, and those ``evaluated``."""
    T = u.size - 1
    if count >= T:
        return np.arange(1, T + 1)
    nearest = np.searchsorted(u[1:], np.linspace(u[1], u[-1], count)) + 1
    return np.unique(np.concatenate([np.minimum(nearest, T), evaluated]))


class _Table:
    """A replicate's costs, L[t, s] and with the `respaced` decoder pairs[t2, t1], and its best paths."""

    def __init__(self, L: Array, pairs: Array | None, last: int) -> None:
        self.L, self.pairs = L, pairs
        T, first = L.shape[0] - 1, 1 if pairs is None else 2
        self.paths = StoredPaths.empty(T, first, last)
        base = L[:, 0]
        if pairs is not None:
            t2 = np.arange(2, T + 1)
            t1 = pairs[2:].argmin(axis=1)
            base = np.concatenate([[np.inf, np.inf], pairs[t2, t1]])
            self.paths.D[self.paths.at(2, t2)] = t1
        L.flags.writeable = False  # kernels are compiled for tables that can not be written
        # One thread: replicates are many, and small.
        self.least = recurrence.solve(L, base, last, self.paths, workers=1)

    def best(self, budget: int) -> Indices:
        """The best path of so many steps."""
        return np.array(self.paths.read(budget))

    def costs(self, path: Indices) -> Array:
        """Costs of the steps of a path, the decoder last."""
        costs = self.L[path[:-1], path[1:]].copy()
        if self.pairs is not None:
            costs[-1] = self.pairs[path[-3], path[-2]] - costs[-2]
        return costs


class _Candidates:
    """Step and decoder costs on the candidate grid, by unit (sample or block), and what is unknown about them.

    Positions i = 0 … n − 1 are grid indices ``grid[i]``; in tables, where 0 is clean data, they are i + 1.
    """

    def __init__(self, statistics: Statistics, evaluated: npt.ArrayLike, options: Mapping[str, Any]) -> None:
        mask = check_evaluated(statistics.process, evaluated)
        self.process, self.dims, self.options = statistics.process, statistics.dims, options
        u = noise_coordinate(self.process, float(statistics.data_square.mean()))
        self.known = np.flatnonzero(mask)
        self.grid = candidate_grid(u, self.known)
        self.learned = options["variance"] in LEARNED
        self.needed = self._needed(statistics)
        self.filled = fill(self.needed, mask, rows=self.grid)
        self.place = Place.between(statistics, mask, self.grid)
        by_block = self.learned or (
            statistics.data_range.levels is not None and options["decoder"] in ("respaced", "optimal")
        )
        self.blocks = statistics.block_of_sample if by_block else np.arange(statistics.samples)
        self.sizes = np.bincount(self.blocks) / statistics.samples
        self.t, self.s = np.tril_indices(self.grid.size, -1)

    def _needed(self, statistics: Statistics) -> Statistics:
        """The fields that the options read: distributions take long to fill."""
        unused: list[str] = [] if self.learned else ["fraction_bins", "fraction_blocks", "fraction_sum"]
        respaced = self.options["decoder"] == "respaced"
        unused += [] if self.learned and respaced else ["learned_decoder", "learned_decoder_blocks"]
        unused += [] if self.options["decoder"] != "upper" else ["residual_bins", "decoder_blocks"]
        nothing: dict[str, Any] = dict.fromkeys(unused)
        return replace(statistics, **nothing)

    # --- by unit -------------------------------------------------------------------------------------------------------

    def by_unit(self, values: Array) -> Array:
        """Means over the samples of each unit, along the last axis."""
        first = np.searchsorted(self.blocks, np.arange(self.sizes.size))
        return np.asarray(np.add.reduceat(values, first, -1) / (self.sizes * self.filled.samples))

    @cached_property
    def fitted(self) -> Fitted:
        """Numbers of `optimal` options; the decoder's at evaluated times only."""
        variance = None
        if self.options["decoder"] == "optimal":
            variance = np.full(self.process.T + 1, np.nan)
            variance[self.known] = [_best_decoder_variance(self.filled, int(t), self.options) for t in self.known]
        squared = self.filled.mean_squared_error if self.options["variance"] == "optimal" else None
        # What other factors would be in a replicate is left out: near the best ones they cost the same.
        factors = fit_factors(self.filled, self.grid) if self.options["variance"] == "learned_optimal" else None
        return Fitted(squared, variance, factors)

    @cached_property
    def squared_error(self) -> Array:
        """Σ e² of each unit, [n, units]."""
        return self.by_unit(self.filled.squared_error[self.grid])

    @cached_property
    def decoder(self) -> Array:
        """Cost of the last step of each unit, [n, units]; `respaced` at one t2 for each t1, for its spread alone."""
        by_time = np.zeros((self.process.T + 1, self.sizes.size))
        for t in self.known.tolist():
            by_time[t] = self._decoder_at(t)
        filled = fill_samples(by_time, self.place, "signed")[self.grid]
        if self.options["decoder"] == "first_pair" and self.process.origin[1] == 1:
            # One variance of its own at one t: a shift of its cost, not of what is unknown about it.
            filled[0] += decoder_nats_at(self.filled, 1, self.options, self.fitted) - self.sizes @ filled[0]
        return filled

    def _decoder_at(self, t: int) -> Array:
        options, path = dict(self.options), [t, 0]
        if options["decoder"] == "first_pair":
            options["decoder"] = "upper"
        if options["decoder"] == "respaced":
            t = min(t, self.process.T - 1)
            quarter = np.searchsorted(-self._snr, -0.25 * self._snr[t])
            path = [min(int(quarter), self.process.T), t, 0]
        terms, sizes = unit_terms(self.filled, path, options, self.fitted)
        units = self.by_unit(terms[:, -2]) if sizes.size == self.blocks.size else terms[:, -2]
        if options["decoder"] == "optimal":  # blocks are kept to three digits
            units = units + decoder_nats_at(self.filled, t, options, self.fitted) - self.sizes @ units
        return np.asarray(units)

    @cached_property
    def _snr(self) -> Array:
        return np.concatenate([[np.inf], (self.process.f[1:] / self.process.g[1:]) ** 2])

    # --- tables --------------------------------------------------------------------------------------------------------

    @cached_property
    def estimate(self) -> Array:
        """Costs of steps at the positions (t, s), from the filled statistics."""
        rows = [
            step_row(self.filled, int(self.grid[i]), self.grid[:i], self.options["variance"], self.fitted)
            for i in range(1, self.grid.size)
        ]
        return np.concatenate(rows) if rows else np.zeros(0)

    @cached_property
    def _respaced(self) -> Array:
        """Dec(t1, t2) at positions (t, s) = (t2, t1)."""
        full = np.full((self.grid.size, self.grid.size), np.inf)
        for i, t1 in enumerate(self.grid[:-1].tolist()):
            full[i + 1 :, i] = respaced_row(self.filled, t1, self.options)[self.grid[i + 1 :] - t1 - 1]
        return full[self.t, self.s]

    @cached_property
    def _unit_deviations(self) -> Array:
        """Learned variance: cost of each step for each block, less their mean, [steps, blocks]."""
        rows = []
        for i in range(1, self.grid.size):
            t, s = int(self.grid[i]), self.grid[:i]
            delta = 2.0 * np.log(self.process.g[t] / self.process.g[s])
            blocks = self.filled.fraction_blocks
            assert blocks is not None
            assert self.filled.fraction_sum is not None
            nodes = chebyshev_matrix(*artefact.fraction_range(self.process, t), BLOCK_NODES, delta)
            decay, weighted = np.exp(blocks[t] @ nodes.T).swapaxes(0, 1)
            fraction = self.by_unit(self.filled.fraction_sum[t])[:, None]
            costs = learned_step(
                self.process, t, s, self.dims, fraction, decay, weighted, self.options["variance"], self.fitted
            )
            rows.append((costs - self.sizes @ costs).T)
        return np.concatenate(rows)

    @cached_property
    def _linear(self) -> tuple[Array, Array]:
        """`posterior` and `upper` cost a + b Σ e²."""
        t, s = self.grid[self.t], self.grid[self.s]
        a, b = (
            np.broadcast_to(fixed_step(self.process, t, s, self.dims, at, self.options["variance"], Fitted()), t.shape)
            for at in (0.0, 1.0)
        )
        return a, b - a

    @cached_property
    def _snr_difference(self) -> Array:
        return snr_difference(self.process, self.grid[self.t], self.grid[self.s])

    def _mean_squared_error(self, weights: Array, factor: Array) -> Array:
        """E Σ e² at every candidate; a stretched replicate must not take it below zero."""
        least = 0.1 * self.squared_error @ self.sizes
        return np.asarray(np.maximum(self.squared_error @ weights, least) * factor[0])

    @cached_property
    def _long(self) -> Array:
        """How much each step is a long one: 0 if it reaches as far as the first of `REACHES`, 1 as the second."""
        u = self.place.u[self.grid]
        far = (u[self.t] - u[self.s]) / (u[self.t] - u[0])
        return np.asarray(np.clip((far - REACHES[0]) / (REACHES[1] - REACHES[0]), 0.0, 1.0))

    def steps(self, weights: Array, factor: Array) -> Array:
        """Costs of all steps where units have these weights and short and long steps of rows are off by ``factor`` [2, n]."""
        if self.learned:
            costs = self.estimate + self._unit_deviations @ (weights - self.sizes)
            short, long = np.log(factor)
            off = np.exp(short[self.t] + self._long * (long - short)[self.t])
            return np.asarray(np.maximum(costs, 0.1 * self.estimate) * off)
        squared_error = self._mean_squared_error(weights, factor)[self.t]
        if self.options["variance"] == "optimal":
            return np.asarray(0.5 * self.dims * np.log1p(self._snr_difference * squared_error / self.dims))
        a, b = self._linear
        return a + b * squared_error

    def table(self, steps: Array, decoder: Array, last: int) -> _Table:
        """The table with these costs of steps and of the decoder, solved for budgets up to ``last``."""
        n = self.grid.size
        L = np.full((n + 1, n + 1), np.inf)
        L[self.t + 1, self.s + 1] = steps
        if self.options["decoder"] != "respaced":
            L[1:, 0] = decoder
            return _Table(L, None, last)
        pairs = np.full_like(L, np.inf)
        shift = decoder - self.decoder @ self.sizes
        pairs[self.t + 1, self.s + 1] = steps + self._respaced + shift[self.s]
        return _Table(L, pairs, last)

    # --- the unknown between evaluated times -----------------------------------------------------------------------------

    def _row_unknown(self, weights: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """`unknown` of ln Σ e²; of learned variances, of what short steps cost and of what long ones do. [2, n]"""
        where = np.searchsorted(self.grid, self.known)
        if not self.learned:
            error, worth = self.unknown(np.log(np.maximum(self.squared_error[where] @ weights, 1e-300)))
            return np.stack([error, error]), worth
        missed = self._learned_misses()
        of_reach = [
            self.unknown(
                np.array([self._step_level(max(i, 1), reach, weights) for i in where.tolist()]), missed[:, column]
            )
            for column, reach in enumerate(REACHES)
        ]
        return np.stack([error for error, _ in of_reach]), np.any([worth for _, worth in of_reach], axis=0)

    def _learned_misses(self) -> Array:
        """ln of what steps from each evaluated time would cost by the other times, less what they do. [known, reaches]"""
        missed = np.zeros((self.known.size, len(REACHES)))
        for row, t in enumerate(self.known[1:-1].tolist(), start=1):
            others = np.isin(np.arange(self.process.T + 1), self.known)
            others[t] = False
            i = int(np.searchsorted(self.grid, t))
            at = np.array([self._reached(i, reach)[0] for reach in REACHES])
            filled = fill(self.needed, others, rows=[t])
            costs = step_row(filled, t, self.grid[at], self.options["variance"], self.fitted)
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
        level = np.log(np.maximum(costs, 1e-300) / self._snr_difference[at, None])
        span = far[pair[0]] - far[pair[1]]
        share = 1.0 if span == 0.0 else max((reach - far[pair[1]]) / span, 0.0)
        return np.asarray(share * level[0] + (1.0 - share) * level[1])

    def unknown(self, levels: Array, missed: Array | None = None) -> tuple[Array, npt.NDArray[np.bool_]]:
        """What was interpolated between ``levels`` [known, replicates], the first of them the estimate.

        ``missed`` [known] is what the others say of each less what it is, where that is not by a monotone cubic. Returns the
        standard deviation at every candidate, and for the gap below each evaluated time whether it exceeds, in the middle,
        the noise that a row evaluated there would have of its own.
        """
        from scipy.interpolate import PchipInterpolator

        known, count = self.place.u[self.known], self.known.size
        # By evaluated time: squares of what the others miss there, beyond what noise explains; and of what they would miss
        # if the error in the middle of a gap as wide as 1 were 1.
        excess, scale, noise = np.zeros((3, count))
        for j in range(1, count - 1):
            others = np.delete(np.arange(count), j)
            by_cubic = PchipInterpolator(known[others], levels[others])(known[j]) - levels[j]
            explained = float(by_cubic[1:].var())
            width = known[j + 1] - known[j - 1]
            w = (known[j] - known[j - 1]) / width
            excess[j] = (by_cubic[0] if missed is None else missed[j]) ** 2 - explained
            scale[j] = (max(4.0 * w * (1.0 - w), 0.25) * width**2) ** 2
            # What samples share at all t cancels in the miss; the noise of t and about half that of two others is left.
            noise[j] = math.sqrt(explained / 1.5)
        # A single miss may be small by chance: those around are asked too, and the larger answer is believed.
        around = [
            np.convolve(squares, np.ones(2 * NEIGHBOURS + 1))[NEIGHBOURS : NEIGHBOURS + count]
            for squares in (excess, scale)
        ]
        alone, pooled = (each / np.maximum(size, 1e-300) for each, size in ((excess, scale), around))
        curvature = np.sqrt(np.maximum(np.maximum(alone, pooled), 0.0))
        noise[[0, -1]] = noise[[min(1, count - 1), max(count - 2, 0)]]
        # The error of a monotone cubic falls with the square of the gap at least.
        middle = np.maximum(curvature[1:], curvature[:-1]) * np.diff(known) ** 2
        worth = middle > 0.5 * (noise[1:] + noise[:-1])
        w = self.place.weight[self.grid]
        middle, worth = np.concatenate([[0.0], middle]), np.concatenate([[False], worth])
        return middle[np.searchsorted(self.known, self.grid)] * 4.0 * w * (1.0 - w), worth

    # --- beliefs ----------------------------------------------------------------------------------------------------------

    def belief(self, budgets: tuple[int, ...], rng: np.random.Generator) -> Belief:
        """Regret of the paths that the estimate chooses, in every replicate."""
        weights = self._resampled(rng)
        decoder = self.decoder @ weights
        where = np.searchsorted(self.grid, self.known)
        row_error, row_worth = self._row_unknown(weights)
        decoder_error, decoder_worth = self.unknown(decoder[where])
        still = np.ones((2, self.grid.size))
        estimate = self.table(self.steps(self.sizes, still), decoder[:, 0], max(budgets))
        chosen = [estimate.best(K) for K in budgets]
        gap = np.searchsorted(self.known, self.grid)  # of the candidates below known[gap] and above known[gap - 1]
        moves = rng.standard_t(2 * NEIGHBOURS + 1, (2, self.known.size, REPLICATES))  # from as many misses
        regret = np.empty((REPLICATES, len(budgets)))
        need = np.zeros(self.known.size)
        for r in range(REPLICATES):
            factor = np.exp(row_error * moves[0, gap, r])
            shifted = decoder[:, r + 1] + decoder_error * moves[1, gap, r]
            there, best = self._regret(chosen, budgets, weights[:, r + 1], factor, shifted)
            here = [estimate.costs(path).sum() - estimate.least[K] for (path, _), K in zip(best, budgets, strict=True)]
            regret[r] = np.maximum(there, here)
            for path, costs in best:
                np.add.at(need, gap[path[:-1] - 1], costs * row_error.max(axis=0)[path[:-1] - 1])
                need[gap[path[-2] - 1]] += decoder_error[path[-2] - 1]
        open_gaps = np.flatnonzero(np.diff(self.known) > 1) + 1
        return Belief(
            budgets,
            regret / (self.dims * LN2),
            np.stack([self.known[open_gaps - 1], self.known[open_gaps]], axis=1),
            need[open_gaps] / (REPLICATES * self.dims * LN2),
            (row_worth | decoder_worth)[open_gaps],
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
            if self.options["variance"] == "optimal":  # the chosen path has the variances that were fitted with it
                t, s = self.grid[path[:-2] - 1], self.grid[path[1:-1] - 1]
                truth = self._mean_squared_error(weights, factor)[path[:-2] - 1]
                costs[:-1] = fixed_step(self.process, t, s, self.dims, truth, "optimal", self.fitted)
            regret.append(float(costs.sum() - table.least[K]))
            other = table.best(K)
            best.append((other, np.append(table.costs(other)[:-1], 0.0)))
        return regret, best


def _best_decoder_variance(statistics: Statistics, t: int, options: Mapping[str, Any]) -> float:
    """The decoder variance of least cost at t, to a few percent: the cost is flat there."""
    if statistics.data_range.levels is None:
        return float(statistics.mean_squared_error[t])
    low, high = artefact.decoder_log_sigma_range(statistics.process, statistics.data_range, t)
    high = max(high, math.log(4.0 * (statistics.data_range.high - statistics.data_range.low)))
    variances = np.exp(2.0 * np.linspace(low, high, 97))
    return float(variances[decoder_curve(statistics, t, variances, options["cdf"]).argmin()])
