"""Stage 5. The terms of one path for every sample (or block of samples), from which standard errors come.

The same images are used at every t, so the errors of a path's terms are correlated: its standard error is that of totals
along the path, never a sum of variances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..fitted import Fitted
from ..options import Variance
from ..statistics import artefact
from ..statistics.artefact import BLOCK_NODES, Statistics
from ..statistics.bins import chebyshev_matrix
from ..statistics.decoder import gaussian_nats
from .decoder import decoder_variance
from .steps import LEARNED, fixed_step, learned_step, require
from .table import Path

Array = npt.NDArray[np.float64]
# Where the decoder is all but certain a block's cost underflows, and its logarithm would ruin the interpolation.
LEAST_LOG_NATS = -20.0
PATHS_AT_ONCE = 256
STEPS_AT_ONCE = 65536


def unit_terms(statistics: Statistics, steps: Path, options: Mapping[str, Any], fitted: Fitted) -> tuple[Array, Array]:
    """Terms of a path for each unit, [units, K + 1] in nats (steps, decoder, prior), and the samples in each unit.

    A unit is a sample where everything the options need is kept per sample, else a block of samples.
    """
    units = _Units(statistics, [steps], options, fitted)
    path = np.asarray(steps)
    terms = units.step_terms(path[:-2], path[1:-1])
    return np.concatenate([terms, units.decoder(path)[None], units.prior(int(path[0]))[None]]).T, units.sizes


def unit_totals(
    statistics: Statistics, paths: Sequence[Path], options: Mapping[str, Any], fitted: Fitted
) -> tuple[Array, Array]:
    """Total of each path for each unit, [paths, units] in nats, and the samples in each unit.

    The same numbers as sums of `unit_terms`, for thousands of paths at once.
    """
    arrays = [np.asarray(path) for path in paths]
    units = _Units(statistics, arrays, options, fitted)
    # Thousands of paths share few ends: their first step, and their last or (for `respaced`) their last two.
    ends = [(int(path[0]), *map(int, path[-3:])) for path in arrays]
    costs = {end: units.decoder(np.asarray(end[1:])) + units.prior(end[0]) for end in set(ends)}
    return np.array([costs[end] for end in ends]) + units.step_sums(arrays), units.sizes


def learned_blocks(
    statistics: Statistics, t: int, s: npt.NDArray[np.int64], variance: Variance, fitted: Fitted
) -> Array:
    """Learned variances: what steps from t to each s > 0 cost each block, [blocks, steps]."""
    process, blocks = statistics.process, statistics.block_of_sample
    nodes = chebyshev_matrix(
        *artefact.fraction_range(process, t), BLOCK_NODES, 2.0 * np.log(process.g[t] / process.g[s])
    )
    decay, weighted = np.exp(require(statistics.fraction_blocks)[t] @ nodes.T).swapaxes(0, 1)
    fraction = np.bincount(blocks, require(statistics.fraction_sum)[t]) / np.bincount(blocks)
    return learned_step(process, t, s, statistics.dims, fraction[:, None], decay, weighted, variance, fitted)


class _Units:
    """Samples or blocks of samples, and what a step, a decoder and the prior cost each of them."""

    def __init__(
        self,
        statistics: Statistics,
        paths: Sequence[Path],
        options: Mapping[str, Any],
        fitted: Fitted,
    ) -> None:
        self.statistics, self.options, self.fitted = statistics, options, fitted
        self.learned = options["variance"] in LEARNED
        per_sample = statistics.data_range.levels is None or all(_is_upper(statistics, path, options) for path in paths)
        self.by_sample = per_sample and not self.learned
        self.blocks = np.arange(statistics.samples) if self.by_sample else statistics.block_of_sample
        self.sizes = np.bincount(self.blocks).astype(np.float64)

    def by_unit(self, per_sample: Array) -> Array:
        """Means over the samples of each unit, along the last axis."""
        if self.by_sample:
            return per_sample
        first = np.searchsorted(self.blocks, np.arange(self.sizes.size))
        return np.asarray(np.add.reduceat(per_sample, first, -1) / self.sizes)

    def step_terms(self, t: npt.NDArray[np.int64], s: npt.NDArray[np.int64]) -> Array:
        """Costs of steps t → s, s > 0: [steps, units]."""
        statistics, process = self.statistics, self.statistics.process
        if not self.learned:
            squared_error = self.by_unit(statistics.squared_error[t])
            return fixed_step(
                process, t[:, None], s[:, None], statistics.dims, squared_error, self.options["variance"], self.fitted
            )
        delta = 2.0 * np.log(process.g[t] / process.g[s])
        limits = np.array([artefact.fraction_range(process, int(each)) for each in t]).reshape(-1, 2)
        values = np.exp(_block_values(require(statistics.fraction_blocks)[t], limits, delta))
        fraction = self.by_unit(require(statistics.fraction_sum)[t])
        return learned_step(
            process, t[:, None], s[:, None], statistics.dims, fraction, values[..., 0], values[..., 1],
            self.options["variance"], self.fitted,
        )  # fmt: skip

    def step_sums(self, paths: list[npt.NDArray[np.int64]]) -> Array:
        """Sum over the steps of each path that end above 0: [paths, units]."""
        if self.learned:
            return self._sums_of_shared_steps(paths)
        # Fixed variances cost a + b Σe², so all paths together are one matrix product with the statistics.
        process, dims, T1 = self.statistics.process, self.statistics.dims, self.statistics.process.T + 1
        squared_error = self.by_unit(self.statistics.squared_error)
        sums = np.empty((len(paths), self.sizes.size))
        for row in range(0, len(paths), PATHS_AT_ONCE):
            chunk = paths[row : row + PATHS_AT_ONCE]
            t, s = np.concatenate([path[:-2] for path in chunk]), np.concatenate([path[1:-1] for path in chunk])
            a, b = (
                fixed_step(process, t, s, dims, squared, self.options["variance"], self.fitted)
                for squared in (0.0, 1.0)
            )
            where = np.repeat(np.arange(len(chunk)), [path.size - 2 for path in chunk])
            weights = np.zeros((len(chunk), T1))
            weights[where, t] = b - a
            constant = np.bincount(where, weights=np.broadcast_to(a, t.shape), minlength=len(chunk))
            sums[row : row + PATHS_AT_ONCE] = constant[:, None] + weights @ squared_error
        return sums

    def _sums_of_shared_steps(self, paths: list[npt.NDArray[np.int64]]) -> Array:
        """The same by way of the different steps that occur, each computed once."""
        from scipy.sparse import csc_array

        T1 = self.statistics.process.T + 1
        edges = np.concatenate([path[:-2] * T1 + path[1:-1] for path in paths])
        where = np.repeat(np.arange(len(paths)), [path.size - 2 for path in paths])
        kinds, column = np.unique(edges, return_inverse=True)
        incidence = csc_array((np.ones(edges.size), (where, column.reshape(-1))), shape=(len(paths), kinds.size))
        sums = np.zeros((len(paths), self.sizes.size))
        for first in range(0, kinds.size, STEPS_AT_ONCE):
            part = kinds[first : first + STEPS_AT_ONCE]
            shared: Any = incidence[:, first : first + STEPS_AT_ONCE]
            sums += shared @ self.step_terms(part // T1, part % T1)
        return sums

    def prior(self, t: int) -> Array:
        """The prior term of a path that starts at t: [units]."""
        return self.by_unit(prior_per_sample(self.statistics, t))

    def decoder(self, path: npt.NDArray[np.int64]) -> Array:
        """The cost of a path's last step: [units]."""
        squared_error = self.by_unit(self.statistics.squared_error[int(path[-2])])
        return _decoder_units(self.statistics, path, self.options, self.fitted, self.by_unit, squared_error)


def _is_upper(statistics: Statistics, steps: Path, options: Mapping[str, Any]) -> bool:
    first_step = bool(statistics.process.origin[steps[-2]] == 1)
    return options["decoder"] == "upper" or (options["decoder"] == "first_pair" and not first_step)


def _decoder_units(
    statistics: Statistics,
    path: npt.NDArray[np.int64],
    options: Mapping[str, Any],
    fitted: Fitted,
    by_unit: Any,
    squared: Array,
) -> Array:
    process, t1 = statistics.process, int(path[-2])
    t2 = int(path[-3]) if len(path) > 2 else None
    discretised = statistics.data_range.levels is not None
    if options["decoder"] == "respaced" and options["variance"] in LEARNED and t2 is not None:
        delta = artefact.learned_decoder_delta(process, t1)
        at = delta[t2 - t1 - 1]
        if not discretised:
            limits = np.array([artefact.fraction_range(process, t1)])
            limits[0, 1] = max(limits[0, 1], 1e-9)
            weighted = np.exp(_block_values(require(statistics.fraction_blocks)[[t1]], limits, np.array([at]))[0, :, 1])
            fraction = by_unit(require(statistics.fraction_sum)[t1])
            log_variance = statistics.dims * (math.log(2.0 * math.pi) + 2.0 * math.log(process.g[t1]))
            inverse = weighted * math.exp(at) / process.g[t1] ** 2
            return np.asarray(0.5 * (log_variance - at * (statistics.dims - fraction) + inverse))
        blocks = require(statistics.learned_decoder_blocks)[t1]
        if delta.size <= blocks.shape[1]:
            return np.asarray(blocks[:, t2 - t1 - 1])
        return np.asarray(blocks @ chebyshev_matrix(0.0, float(delta[0]), blocks.shape[1], [at])[0])
    variance = decoder_variance(process, t1, options["decoder"], fitted, t2)
    if not discretised:
        return np.asarray(gaussian_nats(statistics.dims, squared, variance))
    if _is_upper(statistics, path, options):
        return np.asarray(by_unit(require(statistics.decoder_upper)[t1]))
    limits = np.array([artefact.decoder_log_sigma_range(process, statistics.data_range, t1)])
    values = np.maximum(require(statistics.decoder_blocks)[[t1], :, None, :], LEAST_LOG_NATS)
    log_sigma = 0.5 * math.log(variance)
    units = np.exp(_block_values(values, limits, np.array([log_sigma]))[0, :, 0])
    # Beyond the widest stored sigma (the optimal decoder of a network that is poor at low noise) units differ by their
    # e²/2σ², so the differences at that sigma shrink as 1/σ².
    shrink = math.exp(-2.0 * max(log_sigma - limits[0, 1], 0.0))
    return np.asarray(units.mean() + shrink * (units - units.mean()))


def _block_values(values: Array, limits: Array, at: Array) -> Array:
    """Values [rows, B, C, nodes] on Chebyshev nodes of ``limits`` [rows, 2], interpolated at ``at`` [rows]."""
    width = np.maximum(limits[:, 1] - limits[:, 0], 1e-12)
    unit = (at - limits[:, 0]) / width
    matrix = chebyshev_matrix(0.0, 1.0, BLOCK_NODES, unit)
    return np.asarray(np.einsum("rbcj,rj->rbc", values, matrix))


def prior_per_sample(statistics: Statistics, t: int) -> Array:
    """KL(q(x_t given x_0) ‖ N(0, I)) of each sample, in nats."""
    f_t, log_variance = statistics.process.f[t], 2.0 * np.log(statistics.process.g[t])
    return np.asarray(
        0.5 * (f_t**2 * statistics.data_square + statistics.dims * (np.expm1(log_variance) - log_variance))
    )


def prior_nats_at(statistics: Statistics, t: int) -> float:
    """The mean over samples of `prior_per_sample`."""
    return float(prior_per_sample(statistics, t).mean())
