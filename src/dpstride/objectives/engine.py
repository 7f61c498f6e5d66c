"""Stage 6. One engine for the costs of steps, decoders and the prior: of all samples, by unit, and for any weights of units.

A unit is a sample if statistics store everything that the options need for each sample, else a block of samples. The table of
the ELBO weights all samples equally; standard errors come from totals of paths by unit, and replicates of a table (`adaptive`)
and smaller experiments (`evaluate.ablation`) from other weights of the units.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import decoders, variances
from ..decoders.curve import decoder_blocks_at, decoder_curve
from ..fitted import Fit, Fitted
from ..options import EXACT, CostOptions
from ..solver.costs import Lines
from ..statistics.artefact import Statistics
from ..statistics.decoder import gaussian_nats
from ..variances import Errors, Steps
from ..variances.fractions import fraction_blocks, fraction_blocks_at, fraction_means

FINE = 8192  # steps of a grid above which its table, 0.5 GB, is avoided if possible
Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Path = Sequence[int] | Indices
PATHS_AT_ONCE = 256
STEPS_AT_ONCE = 65536


@dataclass(frozen=True, eq=False)
class Units:
    """Samples, or blocks of samples, whose costs are independent of each other."""

    statistics: Statistics
    by_sample: bool

    @cached_property
    def _block(self) -> Indices:
        return np.arange(self.statistics.samples) if self.by_sample else self.statistics.block_of_sample

    @cached_property
    def sizes(self) -> Array:
        """Number of samples in each unit."""
        return np.bincount(self._block).astype(np.float64)

    @cached_property
    def shares(self) -> Array:
        """Weights of the units in the mean over all samples."""
        return self.sizes / self.statistics.samples

    @cached_property
    def dims(self) -> Any:
        """Number of elements of a sample that count, by unit; a single number if all elements count."""
        return (
            self.statistics.predicted
            if self.by_sample and self.statistics.predicted is not None
            else self.statistics.block_dims
        )

    @cached_property
    def dims_ratio(self) -> Any:
        """`dims` over their mean."""
        return self.dims / self.statistics.dims

    def balanced(self, weights: Array) -> Array:
        """``weights`` [units, …] scaled so that as many elements count as in the mean of all samples.

        Weighted means of costs and errors are then, per element, those of the units that have weight.
        """
        return weights if self.statistics.predicted is None else weights / (self.dims_ratio @ weights)

    def means(self, values: Array) -> Array:
        """Means over the samples of each unit, along the last axis."""
        if self.by_sample:
            return values
        first = np.searchsorted(self._block, np.arange(self.sizes.size))
        return np.asarray(np.add.reduceat(values, first, -1) / self.sizes)


class ElboEngine:
    """Costs in nats from statistics, with numbers fitted elsewhere or, by default, on these statistics."""

    def __init__(self, statistics: Statistics, options: CostOptions, fitted: Fitted | None = None) -> None:
        self.statistics, self.options = statistics, options
        self.process, self.dims = statistics.process, statistics.dims
        self.variance, self.decoder = variances.find(options.variance), decoders.find(options.decoder)
        self.learned_decoder = self.decoder.with_learned(self.variance.learned)
        self.discretised = statistics.data_range.levels is not None
        self.fitted = self._fit() if fitted is None else fitted

    @property
    def fits(self) -> list[Fit]:
        """The fits that the options need."""
        return [part.fit for part in (self.variance, self.decoder) if part.fit is not None]

    def _fit(self) -> Fitted:
        indices = np.arange(1, self.process.T + 1)
        return Fitted(**{fit.numbers: fit.on(self.statistics, indices, self.options.cdf) for fit in self.fits})

    # --- all samples -----------------------------------------------------------------------------------------------------

    def table(self) -> tuple[Array, Array | None]:
        """L[t, s]; if the last two steps have a joint cost, also ``pairs[t2, t1]``, with column 0 of L infinite."""
        T = self.process.T
        L = np.full((T + 1, T + 1), np.inf)
        for t in range(2, T + 1):
            L[t, 1:t] = self.step_nats(t, np.arange(1, t))
        if self.decoder.couples:
            return L, self.pairs(L, map(self.decoder_row, range(1, T)))
        L[1:, 0] = [self.decoder_nats(t) for t in range(1, T + 1)]
        return L, None

    def lines(self) -> Lines | None:
        """The costs of a fine grid as lines, without a table; None if they are no lines or the grid is not fine."""
        T = self.process.T
        if not (self.variance.in_lines and T > FINE) or self.decoder.couples:
            return None
        last = [np.inf, *(self.decoder_nats(t) for t in range(1, T + 1))]
        return Lines(self.process.snr, self.statistics.squared_error.mean(axis=1), np.array(last))

    def pairs(self, L: Array, decoder_rows: Iterable[Array]) -> Array:
        """Costs of the last two steps t2 → t1 → 0, given those of steps and `decoder_row` of each t1."""
        pairs = np.full_like(L, np.inf)
        for t1, row in enumerate(decoder_rows, start=1):
            pairs[t1 + 1 :, t1] = L[t1 + 1 :, t1] + row
        return pairs

    def step_nats(self, t: int, s: Indices) -> Array:
        """L(t, s) for steps from t to each s > 0."""
        steps = Steps(self.process, self.dims, t, s)
        if not self.variance.learned:
            errors = Errors(float(self.statistics.squared_error[t].mean()))
        else:
            assert self.statistics.fraction_sum is not None
            moments = fraction_means(self.statistics, t, steps.delta)
            errors = Errors(None, float(self.statistics.fraction_sum[t].mean()), *moments)
        return self.variance.nats(steps, errors, self.fitted)

    def decoder_nats(self, t: int) -> float:
        """L(t, 0) of a decoder that depends on t alone."""
        value = self.decoder.value(self.process, t, None, self.fitted)
        kept = self.statistics.decoder_upper
        if kept is not None and self.options.cdf == EXACT and value == self.process.g[t] ** 2:
            return float(kept[t].mean())
        return float(decoder_curve(self.statistics, t, np.array([value]), self.options.cdf)[0])

    def decoder_row(self, t1: int) -> Array:
        """Cost of the last step t1 → 0 after each t2 > t1, of a decoder that depends on both."""
        row = self.decoder.row if self.learned_decoder is None else self.learned_decoder.row
        assert row is not None
        return row(self.statistics, t1, self.options.cdf)

    def prior_nats(self, t: int) -> float:
        """KL(q(x_t given x_0) ‖ N(0, I)), the mean over samples."""
        return float(self._prior(t).mean())

    def path_nats(self, path: Path) -> float:
        """Cost of a whole path with the prior."""
        nats = self.prior_nats(int(path[0]))
        for t, s in itertools.pairwise(path[:-1]):
            nats += float(self.step_nats(int(t), np.array([s]))[0])
        t1 = int(path[-2])
        if self.decoder.couples:
            return nats + float(self.decoder_row(t1)[path[-3] - t1 - 1])
        return nats + self.decoder_nats(t1)

    def _prior(self, t: int) -> Array:
        f_t, log_variance = self.process.f[t], 2.0 * np.log(self.process.g[t])
        dims = self.dims if self.statistics.predicted is None else self.statistics.predicted
        constant = dims * (np.expm1(log_variance) - log_variance)
        return np.asarray(0.5 * (f_t**2 * self.statistics.data_square + constant))

    # --- by unit -----------------------------------------------------------------------------------------------------------

    def step_units(self, units: Units, t: Indices, s: Indices) -> Array:
        """Costs of steps t → s, s > 0: [steps, units]."""
        steps = Steps(self.process, units.dims, t[:, None], s[:, None])
        if not self.variance.learned:
            errors = Errors(units.means(self.statistics.squared_error[t]))
        else:
            assert self.statistics.fraction_sum is not None
            moments = fraction_blocks_at(self.statistics, t, 2.0 * np.log(self.process.g[t] / self.process.g[s]))
            errors = Errors(None, units.means(self.statistics.fraction_sum[t]), *moments)
        return self.variance.nats(steps, errors, self.fitted)

    def step_deviations(self, units: Units, t: int, s: Indices) -> Array:
        """Costs by block of steps from t to each s > 0, less their mean per element, with a learned variance: [steps, blocks].

        Blocks are stored to three digits, which is enough for differences between them but not for a table.
        """
        assert self.statistics.fraction_sum is not None
        fraction = units.means(self.statistics.fraction_sum[t])[:, None]
        moments = fraction_blocks(self.statistics, t, 2.0 * np.log(self.process.g[t] / self.process.g[s]))
        dims, ratio = (np.reshape(each, (-1, 1)) for each in (units.dims, units.dims_ratio))
        costs = self.variance.nats(Steps(self.process, dims, t, s), Errors(None, fraction, *moments), self.fitted)
        return np.asarray((costs - ratio * (units.shares @ costs)).T)

    def step_lines(self, t: Indices, s: Indices) -> tuple[Array, Array]:
        """a and b of the costs a + b Σ e² of steps, where the variance is not learned."""
        steps = Steps(self.process, self.dims, t, s)
        a, b = (np.broadcast_to(self.variance.nats(steps, Errors(at), self.fitted), t.shape) for at in (0.0, 1.0))
        return a, b - a

    def decoder_units(self, units: Units, t1: int, t2: int | None = None) -> Array:
        """Cost of the last step t1 → 0 after t2: [units]."""
        if self.learned_decoder is not None and t2 is not None:
            assert self.statistics.fraction_sum is not None
            fraction = units.means(self.statistics.fraction_sum[t1])
            return self.learned_decoder.units(self.statistics, t1, t2, fraction)
        value = self.decoder.value(self.process, t1, t2, self.fitted)
        if not self.discretised:
            return np.asarray(gaussian_nats(units.dims, units.means(self.statistics.squared_error[t1]), value))
        if self.decoder.is_upper(self.process, t1):
            return self.upper_units(units, t1)
        return decoder_blocks_at(self.statistics, t1, value)

    def upper_units(self, units: Units, t: int) -> Array:
        """Cost of the last step t → 0 with variance g_t²: [units]."""
        if self.statistics.decoder_upper is not None:
            return units.means(self.statistics.decoder_upper[t])
        squared_error = units.means(self.statistics.squared_error[t])
        return np.asarray(gaussian_nats(units.dims, squared_error, float(self.process.g[t] ** 2)))

    # --- paths by unit -----------------------------------------------------------------------------------------------------

    def unit_terms(self, path: Path) -> tuple[Array, Array]:
        """Terms of a path for each unit, [units, K + 1] in nats (steps, decoder, prior), and the samples in each unit."""
        units, steps = self._units_of([path]), np.asarray(path)
        terms = self.step_units(units, steps[:-2], steps[1:-1])
        last = self.decoder_units(units, *map(int, steps[-2:-4:-1]))
        return np.concatenate([terms, last[None], units.means(self._prior(int(steps[0])))[None]]).T, units.sizes

    def unit_totals(self, paths: Sequence[Path]) -> tuple[Array, Array]:
        """Total of each path for each unit, [paths, units] in nats, and the samples in each unit.

        The same numbers as sums of `unit_terms`, for thousands of paths at once. The same images are used at every t, so the
        terms of a path are correlated: its standard error is that of these totals, never a sum of variances. If units count
        different numbers of elements, totals are adjusted to equal numbers, by the average cost of the elements.
        """
        arrays = [np.asarray(path) for path in paths]
        units = self._units_of(arrays)
        # Thousands of paths share few ends: their first step, and their last or their last two.
        ends = [(int(path[0]), *map(int, path[-2:-4:-1])) for path in arrays]
        costs = {end: self.decoder_units(units, *end[1:]) + units.means(self._prior(end[0])) for end in set(ends)}
        sums = self._shared_sums(units, arrays) if self.variance.learned else self._linear_sums(units, arrays)
        totals = np.array([costs[end] for end in ends]) + sums
        return totals - (totals @ units.shares)[:, None] * (units.dims_ratio - 1.0), units.sizes

    def _units_of(self, paths: Sequence[Path]) -> Units:
        """Single samples if everything that these paths need is stored for each, else blocks."""
        kept = not self.discretised or all(self.decoder.is_upper(self.process, int(path[-2])) for path in paths)
        return Units(self.statistics, kept and not self.variance.learned)

    def _linear_sums(self, units: Units, paths: list[Indices]) -> Array:
        """Sum over the steps of each path that end above 0, [paths, units]: one matrix product with Σ e²."""
        squared_error = units.means(self.statistics.squared_error)
        sums = np.empty((len(paths), units.sizes.size))
        for row in range(0, len(paths), PATHS_AT_ONCE):
            chunk = paths[row : row + PATHS_AT_ONCE]
            t, s = np.concatenate([path[:-2] for path in chunk]), np.concatenate([path[1:-1] for path in chunk])
            a, b = self.step_lines(t, s)
            where = np.repeat(np.arange(len(chunk)), [path.size - 2 for path in chunk])
            weights = np.zeros((len(chunk), self.process.T + 1))
            weights[where, t] = b
            constant = np.bincount(where, weights=a, minlength=len(chunk))
            sums[row : row + PATHS_AT_ONCE] = constant[:, None] * units.dims_ratio + weights @ squared_error
        return sums

    def _shared_sums(self, units: Units, paths: list[Indices]) -> Array:
        """The same, with each distinct step computed once."""
        from scipy.sparse import csc_array

        T1 = self.process.T + 1
        edges = np.concatenate([path[:-2] * T1 + path[1:-1] for path in paths])
        where = np.repeat(np.arange(len(paths)), [path.size - 2 for path in paths])
        kinds, column = np.unique(edges, return_inverse=True)
        incidence = csc_array((np.ones(edges.size), (where, column.reshape(-1))), shape=(len(paths), kinds.size))
        sums = np.zeros((len(paths), units.sizes.size))
        for first in range(0, kinds.size, STEPS_AT_ONCE):
            part = kinds[first : first + STEPS_AT_ONCE]
            shared: Any = incidence[:, first : first + STEPS_AT_ONCE]
            sums += shared @ self.step_units(units, part // T1, part % T1)
        return sums
