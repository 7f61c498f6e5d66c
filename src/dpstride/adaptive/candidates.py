"""Costs on a coarse grid, by sample or by block, from which hundreds of replicates of the table are made per second."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import decoders, variances
from ..fitted import Fit, Fitted
from ..objectives.engine import ElboEngine, Units
from ..objectives.weighted import UnitCosts
from ..options import CostOptions
from ..solver import recurrence
from ..solver.paths import StoredPaths
from ..statistics.artefact import Statistics
from ..statistics.coordinate import output_gain
from ..statistics.decoder import rough_nats
from ..statistics.interpolate import fill
from ..statistics.place import Place, check_evaluated, coordinate_of, interpolate, predicts_of
from ..variances import Errors, Steps

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
CANDIDATES = 320  # grid indices among which replicates look for their best path; enough for shifts of 64 steps
REACHES = (
    1 / 16,
    1 / 2,
    1.0,
)  # lengths of short, long and the longest steps, relative to the way to the first time in the noise coordinate


def candidate_grid(u: Array, evaluated: Indices, count: int = CANDIDATES) -> Indices:
    """About ``count`` grid indices evenly spaced in ``u``, and those ``evaluated``."""
    T = u.size - 1
    if count >= T:
        return np.arange(1, T + 1)
    nearest = np.searchsorted(u[1:], np.linspace(u[1], u[-1], count)) + 1
    return np.unique(np.concatenate([np.minimum(nearest, T), evaluated]))


class Table:
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
        L.flags.writeable = False  # kernels are compiled for read-only tables
        # One thread: there are many small replicates.
        self.least = recurrence.solve(L, base, last, self.paths, workers=1)

    def best(self, budget: int) -> Indices:
        """The best path of ``budget`` steps."""
        return np.array(self.paths.read(budget))

    def costs(self, path: Indices) -> Array:
        """Costs of the steps of a path, the decoder last."""
        costs = self.L[path[:-1], path[1:]].copy()
        if self.pairs is not None:
            costs[-1] = self.pairs[path[-3], path[-2]] - costs[-2]
        return costs


class Candidates(UnitCosts):
    """Step and decoder costs on the candidate grid, by unit (sample or block), and the table of any replicate.

    Positions i = 0 … n − 1 are grid indices ``grid[i]``; in tables, where 0 is clean data, they are i + 1.
    """

    def __init__(
        self, statistics: Statistics, evaluated: npt.ArrayLike, options: CostOptions, fitted: Fitted | None = None
    ) -> None:
        process = statistics.process
        mask = check_evaluated(process, evaluated)
        variance, decoder = variances.find(options.variance), decoders.find(options.decoder)
        # Unread fields are dropped, since distributions take long to fill.
        unread: dict[str, Any] = dict.fromkeys((*variance.unread, *decoder.unread(process, variance.learned)))
        self.needed = replace(statistics, **unread)
        u = coordinate_of(statistics)
        self.known = np.flatnonzero(mask)
        self.grid = candidate_grid(u, self.known)
        self.place = Place.between(statistics, mask, self.grid)
        self.gain = output_gain(process, predicts_of(statistics))
        # The decoder of row T is evaluated at row T − 1 if it takes two steps.
        filled = fill(self.needed, mask, rows=np.union1d(self.grid, [max(process.T - 1, 1)]))
        # A decoder may have a variance of its own at the first index, which shifts its cost but not the uncertainty of it.
        self.upper = decoder.is_upper(process, process.T)
        by_block = variance.learned or (statistics.data_range.levels is not None and not self.upper)
        own = self._fit(filled, options, (variance.fit, decoder.fit)) if fitted is None else fitted
        engine = ElboEngine(filled, options, own)
        super().__init__(engine, Units(filled, not by_block), self.grid)
        self.learned, self.sizes = variance.learned, self.units.shares
        self.t, self.s = np.tril_indices(self.grid.size, -1)
        self.refits = variance.fit is not None and variance.fit.from_errors(np.zeros(0), filled.data_range) is not None

    def _fit(self, filled: Statistics, options: CostOptions, fits: tuple[Fit | None, Fit | None]) -> Fitted:
        """Numbers of `optimal` options; those found quickly at evaluated times are interpolated relative to E Σ e².

        Replicates have the same factors: near the best ones, others cost the same.
        """
        numbers = {}
        for fit in fits:
            if fit is not None and fit.at is None:
                numbers[fit.numbers] = fit.on(filled, self.grid, options.cdf)
            elif fit is not None and fit.at is not None:
                ratio, m = np.zeros(filled.process.T + 1), np.maximum(filled.mean_squared_error, 1e-300)
                best = [fit.at(filled, int(t), options.cdf) for t in self.known]
                ratio[self.known] = np.log(best / m[self.known])
                numbers[fit.numbers] = m * np.exp(interpolate(self.place.u, ratio, self.place.mask))
        return Fitted(**numbers)

    # --- the decoder -----------------------------------------------------------------------------------------------------

    def decoder_at(self, t: int) -> Array:
        """Cost of the last step of each unit; if it is joint with the step before, at one t2 per t1, for its spread alone."""
        if self.engine.decoder.couples:
            t2, t1 = self._last_pair(t)
            return self.engine.decoder_units(self.units, t1, t2)
        if self.upper and not self.engine.decoder.is_upper(self.process, t):
            return self._with_mean(self.engine.upper_units(self.units, t), t)
        return super().decoder_at(t)

    def _last_pair(self, t: int) -> tuple[int, int]:
        """A second step at a quarter of t's snr, and t, which is below T because T is never the last step of a pair."""
        t = min(t, self.process.T - 1)
        return min(int(np.searchsorted(-self._snr, -0.25 * self._snr[t])), self.process.T), t

    @cached_property
    def _snr(self) -> Array:
        return np.concatenate([[np.inf], (self.process.f[1:] / self.process.g[1:]) ** 2])

    def _decoder_variance(self, indices: Indices) -> Array:
        """σ_0² at these grid indices, that of `_last_pair` if the last two steps are coupled; g_t² if it is learned."""
        if self.upper or self.engine.learned_decoder is not None:
            return np.asarray(self.process.g[indices] ** 2)
        pairs = [self._last_pair(t) if self.engine.decoder.couples else (None, t) for t in indices.tolist()]
        return np.array([self.engine.decoder.value(self.process, t1, t2, self.engine.fitted) for t2, t1 in pairs])

    @cached_property
    def rough_decoder(self) -> tuple[Array, Array]:
        """`rough_decoder_at` every candidate."""
        return self.rough_decoder_at(self.grid, self.squared_error @ self.sizes)

    def rough_decoder_at(self, indices: Indices, squared_error: Array) -> tuple[Array, Array]:
        """The quantity to which the ratio of the decoder's cost is interpolated, and its part proportional to Σ e². [n]"""
        variance, data_range = self._decoder_variance(indices), self.engine.statistics.data_range
        if data_range.levels is None:  # only Σ e² is interpolated
            return np.full(indices.size, np.inf), 0.5 * squared_error / variance
        of_variance, rough = (rough_nats(self.dims, each, variance, data_range.step) for each in (0.0, squared_error))
        return np.asarray(rough), np.asarray(rough - of_variance)

    @cached_property
    def _decoder_of_pairs(self) -> Array:
        """Dec(t1, t2) at positions (t, s) = (t2, t1)."""
        full = np.full((self.grid.size, self.grid.size), np.inf)
        for i, t1 in enumerate(self.grid[:-1].tolist()):
            full[i + 1 :, i] = self.engine.decoder_row(t1)[self.grid[i + 1 :] - t1 - 1]
        return full[self.t, self.s]

    @cached_property
    def _over_last_pair(self) -> Array:
        """`over_last_pair` at positions (t, s)."""
        return self.over_last_pair(self.grid[self.t], self.grid[self.s])

    def over_last_pair(self, t2: Indices, t1: Indices) -> Array:
        """Ratio of the effect of a change of Σ e² on Dec(t1, t2) to its effect at t1's own `_last_pair`."""
        if self.engine.learned_decoder is not None:
            return np.ones(t1.size)
        data_range = self.engine.statistics.data_range
        softened = 0.0 if data_range.levels is None else data_range.step**2 / 12.0
        different, at = np.unique(t1, return_inverse=True)
        own = self._decoder_variance(different)[at.reshape(-1)]
        return np.asarray((own + softened) / (self.process.posterior_variance(t2, t1) + softened))

    # --- tables ----------------------------------------------------------------------------------------------------------

    @cached_property
    def estimate(self) -> Array:
        """Costs of steps at the positions (t, s), from the filled statistics."""
        rows = [self.engine.step_nats(int(self.grid[i]), self.grid[:i]) for i in range(1, self.grid.size)]
        return np.concatenate(rows) if rows else np.zeros(0)

    @cached_property
    def _unit_deviations(self) -> Array:
        """With a learned variance: cost of each step for each block, less their mean, [steps, blocks]."""
        rows = [
            self.engine.step_deviations(self.units, int(self.grid[i]), self.grid[:i]) for i in range(1, self.grid.size)
        ]
        return np.concatenate(rows) if rows else np.zeros((0, self.sizes.size))

    @cached_property
    def _steps(self) -> Steps:
        return Steps(self.process, self.dims, self.grid[self.t], self.grid[self.s])

    @cached_property
    def _lines(self) -> tuple[Array, Array]:
        return self.engine.step_lines(self.grid[self.t], self.grid[self.s])

    def _mean_squared_error(self, weights: Array, factor: Array) -> Array:
        """E Σ e² at every candidate, kept above zero in stretched replicates."""
        least = 0.1 * self.squared_error @ self.sizes
        return np.asarray(np.maximum(self.squared_error @ weights, least) * factor[0])

    @cached_property
    def reach_shares(self) -> Array:
        """Weights of each step's length among `REACHES`, linear between two of them, [reaches, steps]."""
        u = self.place.u[self.grid]
        far = (u[self.t] - u[self.s]) / (u[self.t] - u[0])
        return np.array([np.interp(far, REACHES, one) for one in np.eye(len(REACHES))])

    def steps(self, weights: Array, factor: Array) -> Array:
        """Costs of all steps for these weights of units, with steps of each reach and row off by ``factor`` [3, n]."""
        if self.learned:
            costs = self.estimate + self._unit_deviations @ (weights - self.sizes)
            off = np.exp((self.reach_shares * np.log(factor)[:, self.t]).sum(axis=0))
            return np.asarray(np.maximum(costs, 0.1 * self.estimate) * off)
        squared_error = self._mean_squared_error(weights, factor)
        if self.refits:
            m = np.zeros(self.process.T + 1)
            m[self.grid] = squared_error / self.dims
            return self.engine.variance.nats(self._steps, Errors(squared_error[self.t]), self.refitted(m))
        a, b = self._lines
        return a + b * squared_error[self.t]

    def table(self, steps: Array, decoder: Array, last: int) -> Table:
        """The table with these costs of steps and of the decoder, solved for budgets up to ``last``."""
        n = self.grid.size
        L = np.full((n + 1, n + 1), np.inf)
        L[self.t + 1, self.s + 1] = steps
        if not self.engine.decoder.couples:
            L[1:, 0] = decoder
            return Table(L, None, last)
        pairs = np.full_like(L, np.inf)
        shift = decoder - self.decoder @ self.sizes
        pairs[self.t + 1, self.s + 1] = steps + self._decoder_of_pairs + shift[self.s] * self._over_last_pair
        return Table(L, pairs, last)
