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

from ..schedule import Fitted
from ..statistics import artefact
from ..statistics.artefact import BLOCK_NODES, Statistics
from ..statistics.bins import chebyshev_matrix
from ..statistics.decoder import gaussian_nats
from .decoder import decoder_variance
from .steps import fixed_step, learned_step, require

Array = npt.NDArray[np.float64]


def unit_terms(
    statistics: Statistics, steps: Sequence[int], options: Mapping[str, Any], fitted: Fitted
) -> tuple[Array, Array]:
    """Terms of a path for each unit, [units, K + 1] in nats (steps, decoder, prior), and the samples in each unit.

    A unit is a sample where everything the options need is kept per sample, else a block of samples.
    """
    process = statistics.process
    path = np.asarray(steps)
    t, s = path[:-2], path[1:-1]
    learned = options["variance"] == "learned_range"
    by_sample = not learned and (statistics.data_range.levels is None or _is_upper(statistics, steps, options))
    blocks = np.arange(statistics.samples) if by_sample else statistics.block_of_sample
    sizes = np.bincount(blocks).astype(np.float64)

    def by_unit(per_sample: Array) -> Array:
        return (
            per_sample
            if by_sample
            else np.add.reduceat(per_sample, np.searchsorted(blocks, np.arange(sizes.size)), -1) / sizes
        )

    squared_error = by_unit(statistics.squared_error[path[:-1]])  # [K, units]
    if learned:
        delta = 2.0 * np.log(process.g[t] / process.g[s])
        values = _block_values(
            require(statistics.fraction_blocks)[t],
            np.array([artefact.fraction_range(process, i) for i in t]).reshape(-1, 2),
            delta,
        )
        fraction = by_unit(require(statistics.fraction_sum)[t])
        decay, weighted = np.exp(values[..., 0]), np.exp(values[..., 1])
        terms = learned_step(process, t[:, None], s[:, None], statistics.dims, fraction, decay, weighted)
    else:
        terms = fixed_step(
            process, t[:, None], s[:, None], statistics.dims, squared_error[:-1], options["variance"], fitted
        )
    decoder = _decoder_units(statistics, path, options, fitted, by_unit, squared_error[-1])
    prior = by_unit(prior_per_sample(statistics, int(path[0])))
    return np.concatenate([terms, decoder[None], prior[None]]).T, sizes


def _is_upper(statistics: Statistics, steps: Sequence[int], options: Mapping[str, Any]) -> bool:
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
    if options["decoder"] == "respaced" and options["variance"] == "learned_range" and t2 is not None:
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
    if _is_upper(statistics, path.tolist(), options):
        return np.asarray(by_unit(require(statistics.decoder_upper)[t1]))
    limits = np.array([artefact.decoder_log_sigma_range(process, statistics.data_range, t1)])
    values = require(statistics.decoder_blocks)[[t1], :, None, :]
    return np.asarray(np.exp(_block_values(values, limits, np.array([0.5 * math.log(variance)]))[0, :, 0]))


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
