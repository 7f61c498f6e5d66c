"""Costs on a coarse grid, by sample or by block, from which replicates of the table are made, hundreds in a second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..costs.decoder import decoder_curve, decoder_nats_at, respaced_row
from ..costs.steps import LEARNED, fit_factors, fixed_step, snr_difference, step_row
from ..costs.units import learned_blocks, unit_terms
from ..fitted import Fitted
from ..solver import recurrence
from ..solver.paths import StoredPaths
from ..statistics import artefact
from ..statistics.artefact import Statistics
from ..statistics.coordinate import noise_coordinate, output_gain
from ..statistics.decoder import rough_nats
from ..statistics.interpolate import fill
from ..statistics.place import Place, check_evaluated, interpolate, predicts_of

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
CANDIDATES = 320  # grid indices among which replicates look for their best path; enough for shifts of 64 steps
REACHES = (1 / 16, 1 / 2)  # of a short step and of a long one, of the way to the first time in the noise coordinate


def candidate_grid(u: Array, evaluated: Indices, count: int = CANDIDATES) -> Indices:
    """About ``count`` grid indices even in ``u``, and those ``evaluated``."""
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


class Candidates:
    """Step and decoder costs on the candidate grid, by unit (sample or block), and the table of any replicate.

    Positions i = 0 … n − 1 are grid indices ``grid[i]``; in tables, where 0 is clean data, they are i + 1.
    """

    def __init__(self, statistics: Statistics, evaluated: npt.ArrayLike, options: Mapping[str, Any]) -> None:
        mask = check_evaluated(statistics.process, evaluated)
        self.process, self.dims, self.options = statistics.process, statistics.dims, options
        u = noise_coordinate(self.process, float(statistics.data_square.mean()), predicts_of(statistics))
        self.known = np.flatnonzero(mask)
        self.grid = candidate_grid(u, self.known)
        self.learned = options["variance"] in LEARNED
        self.needed = self._needed(statistics)
        # Row T − 1 is where the `respaced` decoder of row T is looked at.
        self.filled = fill(self.needed, mask, rows=np.union1d(self.grid, [max(self.process.T - 1, 1)]))
        self.place = Place.between(statistics, mask, self.grid)
        self.gain = output_gain(self.process, predicts_of(statistics))
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
        """Numbers of `optimal` options; the decoder's variance is found at evaluated times, beside E Σ e² of each."""
        variance = None
        if self.options["decoder"] == "optimal":
            ratio, m = np.zeros(self.process.T + 1), np.maximum(self.filled.mean_squared_error, 1e-300)
            best = [_best_decoder_variance(self.filled, int(t), self.options) for t in self.known]
            ratio[self.known] = np.log(best / m[self.known])
            variance = m * np.exp(interpolate(self.place.u, ratio, self.place.mask))
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
        filled = np.array([self._decoder_at(t) for t in self.grid.tolist()])
        if self.options["decoder"] == "first_pair" and self.process.origin[1] == 1:
            # One variance of its own at one t: a shift of its cost, not of what is unknown about it.
            filled[0] += decoder_nats_at(self.filled, 1, self.options, self.fitted) - self.sizes @ filled[0]
        return filled

    def _decoder_at(self, t: int) -> Array:
        options, path = dict(self.options), [t, 0]
        if options["decoder"] == "first_pair":
            options["decoder"] = "upper"
        if options["decoder"] == "respaced":
            path = [*self._last_pair(t), 0]
        terms, sizes = unit_terms(self.filled, path, options, self.fitted)
        units = self.by_unit(terms[:, -2]) if sizes.size == self.blocks.size else terms[:, -2]
        if options["decoder"] == "optimal":  # blocks are kept to three digits
            units = units + decoder_nats_at(self.filled, t, options, self.fitted) - self.sizes @ units
        return np.asarray(units)

    def _last_pair(self, t: int) -> tuple[int, int]:
        """t (T is the last step of no pair, so below it), and a second step before it, at a quarter of its snr."""
        t = min(t, self.process.T - 1)
        return min(int(np.searchsorted(-self._snr, -0.25 * self._snr[t])), self.process.T), t

    @cached_property
    def _last_pair_variance(self) -> Array:
        t2, t1 = np.array([self._last_pair(t) for t in self.grid.tolist()]).T
        return self.process.posterior_variance(t2, t1)

    @cached_property
    def rough_decoder(self) -> tuple[Array, Array]:
        """What the decoder's cost is interpolated as a multiple of, and how much of it is in proportion to Σ e². [n]"""
        variance = self.process.g[self.grid] ** 2
        if self.options["decoder"] == "respaced" and not self.learned:
            variance = self._last_pair_variance
        if self.options["decoder"] == "optimal":
            assert self.fitted.decoder_variance is not None
            variance = self.fitted.decoder_variance[self.grid]
        data_range, squared_error = self.filled.data_range, self.squared_error @ self.sizes
        if data_range.levels is None:  # nothing but Σ e² is interpolated
            return np.full(self.grid.size, np.inf), 0.5 * squared_error / variance
        of_variance, rough = (rough_nats(self.dims, each, variance, data_range.step) for each in (0.0, squared_error))
        return np.asarray(rough), np.asarray(rough - of_variance)

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
    def _beside_last_pair(self) -> Array:
        """What a change of Σ e² adds to Dec(t1, t2), at positions (t, s), over what it adds at t1's own `_last_pair`."""
        if self.learned:
            return np.ones(self.t.size)
        softened = 0.0 if self.filled.data_range.levels is None else self.filled.data_range.step**2 / 12.0
        variance = self.process.posterior_variance(self.grid[self.t], self.grid[self.s])
        return np.asarray((self._last_pair_variance[self.s] + softened) / (variance + softened))

    @cached_property
    def _unit_deviations(self) -> Array:
        """Learned variance: cost of each step for each block, less their mean, [steps, blocks]."""
        rows = []
        for i in range(1, self.grid.size):
            t, s = int(self.grid[i]), self.grid[:i]
            costs = learned_blocks(self.filled, t, s, self.options["variance"], self.fitted)
            rows.append((costs - self.sizes @ costs).T)
        return np.concatenate(rows) if rows else np.zeros((0, self.sizes.size))

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

    def table(self, steps: Array, decoder: Array, last: int) -> Table:
        """The table with these costs of steps and of the decoder, solved for budgets up to ``last``."""
        n = self.grid.size
        L = np.full((n + 1, n + 1), np.inf)
        L[self.t + 1, self.s + 1] = steps
        if self.options["decoder"] != "respaced":
            L[1:, 0] = decoder
            return Table(L, None, last)
        pairs = np.full_like(L, np.inf)
        shift = decoder - self.decoder @ self.sizes
        pairs[self.t + 1, self.s + 1] = steps + self._respaced + shift[self.s] * self._beside_last_pair
        return Table(L, pairs, last)


def _best_decoder_variance(statistics: Statistics, t: int, options: Mapping[str, Any]) -> float:
    """The decoder variance of least cost at t, to a few percent: the cost is flat there."""
    if statistics.data_range.levels is None:
        return float(statistics.mean_squared_error[t])
    low, high = artefact.decoder_log_sigma_range(statistics.process, statistics.data_range, t)
    high = max(high, math.log(4.0 * (statistics.data_range.high - statistics.data_range.low)))
    variances = np.exp(2.0 * np.linspace(low, high, 97))
    return float(variances[decoder_curve(statistics, t, variances, options["cdf"]).argmin()])
