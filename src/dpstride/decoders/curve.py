"""Stage 5. Cost of the last step as a function of the decoder's variance: over all samples, and by block."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..options import DEFAULT_CDF, Cdf
from ..statistics import artefact
from ..statistics.artefact import Statistics
from ..statistics.decoder import gaussian_nats, residual_costs
from ..statistics.interpolate import LEAST_LOG_NATS
from ..variances.fractions import block_values

Array = npt.NDArray[np.float64]


def decoder_curve(statistics: Statistics, t: int, variances: Array, cdf: Cdf = DEFAULT_CDF) -> Array:
    """E −ln p(x_0 given x_t) in nats for each decoder variance, from the binned residuals of t."""
    if statistics.data_range.levels is None:
        return np.asarray(gaussian_nats(statistics.dims, float(statistics.squared_error[t].mean()), variances))
    assert statistics.residual_bins is not None
    bins, weights = statistics.residual_bins.row(t)
    sigma = np.sqrt(variances)
    costs = residual_costs(statistics.residual_mesh(t), bins, statistics.data_range.half_bin, sigma, cdf=cdf)
    return np.asarray(weights.reshape(-1) @ costs.reshape(-1, sigma.size) / statistics.samples)


def decoder_blocks_at(statistics: Statistics, t: int, variance: float) -> Array:
    """The same for each block of samples, at one variance; for data on levels."""
    assert statistics.decoder_blocks is not None
    limits = np.array([artefact.decoder_log_sigma_range(statistics.process, statistics.data_range, t)])
    values = np.maximum(statistics.decoder_blocks[[t], :, None, :], LEAST_LOG_NATS)
    log_sigma = 0.5 * math.log(variance)
    blocks = np.exp(block_values(values, limits, np.array([log_sigma]))[0, :, 0])
    # Beyond the widest stored sigma (the optimal decoder of a network that is poor at low noise) blocks differ by their
    # e²/2σ², so the differences at that sigma shrink as 1/σ².
    shrink = math.exp(-2.0 * max(log_sigma - limits[0, 1], 0.0))
    ratio = statistics.block_dims / statistics.dims  # blocks in which more elements count cost more at any sigma
    per_element = blocks / ratio
    return np.asarray(ratio * (per_element.mean() + shrink * (per_element - per_element.mean())))


def log_sigma_range(statistics: Statistics, t: int) -> tuple[float, float]:
    """Range of ln σ in which the best at t is searched.

    A network that is poor at low noise has residuals far larger than g_t: up to the whole range of the data.
    """
    low, high = artefact.decoder_log_sigma_range(statistics.process, statistics.data_range, t)
    return low, max(high, math.log(4.0 * (statistics.data_range.high - statistics.data_range.low)))
