"""Stage 5. Cost of the last step t → 0, −E ln p(x_0 given x_t), for every choice of the decoder's variance.

Published figures differ here more than anywhere, so every choice has a name. All are functions of the distribution of
the residual at t, which the statistics keep in bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..fitted import Fitted
from ..options import Cdf, Decoder
from ..process import ForwardProcess
from ..statistics import artefact
from ..statistics.artefact import Statistics
from ..statistics.bins import chebyshev_matrix
from ..statistics.decoder import gaussian_nats, residual_costs
from .steps import LEARNED, fraction_means, require

Array = npt.NDArray[np.float64]


def decoder_curve(statistics: Statistics, t: int, variances: Array, cdf: Cdf = "exact") -> Array:
    """E −ln p(x_0 given x_t) in nats for each decoder variance, from the binned residuals of t."""
    if statistics.data_range.levels is None:
        return np.asarray(gaussian_nats(statistics.dims, float(statistics.squared_error[t].mean()), variances))
    bins, weights = require(statistics.residual_bins).row(t)
    sigma = np.sqrt(variances)
    costs = residual_costs(statistics.residual_mesh(t), bins, statistics.data_range.half_bin, sigma, cdf)
    return np.asarray(weights.reshape(-1) @ costs.reshape(-1, sigma.size) / statistics.samples)


def decoder_variance(process: ForwardProcess, t: int, decoder: Decoder, fitted: Fitted, t2: int | None = None) -> float:
    """σ_0²(t) of the options that have one scalar per t (or per pair t, t2)."""
    match decoder:
        case "first_pair" if process.origin[t] == 1:
            if process.first_pair_variance is None:
                raise ValueError("decoder='first_pair' needs a training grid of at least two steps.")
            return process.first_pair_variance
        case "upper" | "first_pair":
            return float(process.g[t] ** 2)
        case "respaced":
            if t2 is None:
                raise ValueError(
                    "decoder='respaced' takes the last step's variance from the step before it, so it is undefined for "
                    "one step. Use at least 2 steps, or another decoder."
                )
            return float(process.posterior_variance(t2, t))
        case "optimal":
            return float(require(fitted.decoder_variance)[t])
    raise AssertionError(decoder)


def decoder_nats_at(statistics: Statistics, t: int, options: Mapping[str, Any], fitted: Fitted) -> float:
    """L(t, 0) of the options whose variance depends on t alone."""
    variance = decoder_variance(statistics.process, t, options["decoder"], fitted)
    if statistics.decoder_upper is not None and options["cdf"] == "exact" and variance == statistics.process.g[t] ** 2:
        return float(statistics.decoder_upper[t].mean())
    return float(decoder_curve(statistics, t, np.array([variance]), options["cdf"])[0])


def respaced_row(statistics: Statistics, t1: int, options: Mapping[str, Any]) -> Array:
    """Dec(t1, t2) for every t2 > t1."""
    process, T = statistics.process, statistics.process.T
    if options["variance"] in LEARNED:
        return _learned_respaced_row(statistics, t1, options["cdf"])
    delta = artefact.learned_decoder_delta(process, t1)
    size = artefact.learned_decoder_size(process)
    if statistics.data_range.levels is None or delta.size <= size or options["cdf"] != "exact":
        # few variances, or a formula with a kink: every one by itself
        return decoder_curve(statistics, t1, process.posterior_variance(np.arange(t1 + 1, T + 1), t1), options["cdf"])
    nodes = artefact.learned_decoder_nodes(process, t1, size)
    values = decoder_curve(statistics, t1, process.g[t1] ** 2 * np.exp(-nodes))
    return np.asarray(chebyshev_matrix(0.0, float(delta[0]), size, delta) @ values)


def _learned_respaced_row(statistics: Statistics, t1: int, cdf: Cdf) -> Array:
    """Dec(t1, t2) with ln σ² = φ ln g_{t1}² + (1 − φ) ln g̃²(t1, t2) per dimension."""
    process = statistics.process
    delta = artefact.learned_decoder_delta(process, t1)
    if statistics.data_range.levels is None:
        fraction = float(require(statistics.fraction_sum)[t1].mean())
        weighted = _inverse_variance_means(statistics, t1, delta)
        log_variance = statistics.dims * (math.log(2.0 * math.pi) + 2.0 * np.log(process.g[t1]))
        return np.asarray(0.5 * (log_variance - delta * (statistics.dims - fraction) + weighted))
    if cdf != "exact":
        raise ValueError(
            f"cdf={cdf!r} with a learned decoder variance is only available by direct evaluation, bits_per_dim(denoiser, data, "
            f"schedule, decoder='respaced', cdf={cdf!r}): statistics hold that decoder with cdf='exact' only."
        )
    values = require(statistics.learned_decoder)[t1]
    if delta.size <= values.size:
        return np.asarray(values[: delta.size])
    return np.asarray(chebyshev_matrix(0.0, float(delta[0]), values.size, delta) @ values)


def _inverse_variance_means(statistics: Statistics, t: int, delta: Array) -> Array:
    """E Σ e² / σ² = E Σ e² exp((1 − φ) δ) / g_t² for each δ."""
    _, weighted = fraction_means(statistics, t, delta)
    return np.asarray(weighted * np.exp(delta) / statistics.process.g[t] ** 2)


def optimal_decoder(statistics: Statistics, cdf: Cdf) -> Array:
    """The variance per t that minimises the decoder's cost."""
    if statistics.data_range.levels is None:
        return statistics.mean_squared_error
    from scipy.optimize import minimize_scalar

    best = np.full(statistics.process.T + 1, np.nan)
    for t in range(1, statistics.process.T + 1):
        low, high = artefact.decoder_log_sigma_range(statistics.process, statistics.data_range, t)
        # A network that is poor at low noise has residuals far larger than g_t: up to the whole range of the data.
        high = max(high, math.log(4.0 * (statistics.data_range.high - statistics.data_range.low)))
        coarse = np.linspace(low, high, 33)
        at = int(decoder_curve(statistics, t, np.exp(2.0 * coarse), cdf).argmin())
        bounds = (coarse[max(at - 1, 0)], coarse[min(at + 1, 32)])

        def cost(log_sigma: float, t: int = t) -> float:
            return float(decoder_curve(statistics, t, np.exp([2.0 * log_sigma]), cdf)[0])

        best[t] = math.exp(
            2.0 * float(minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-7}).x)
        )
    return best
