"""Stage 5. The evidence lower bound as a sum of step costs (Eq. 16 and 17 of the paper, errata applied).

For 0 < s < t the cost is the KL divergence between q(x_s given x_t, x_0) and p(x_s given x_t). Both have the same mean
formula, in x_0 and in x̂_0, so with e = x_0 − x̂_0, Δ = snr_s − snr_t and δ = ln(g_t²/g_s²) it depends on the network
only through statistics of t: one pass per t fills a whole row. For s = 0 it is the decoder's −ln p(x_0 given x_t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess
from ..schedule import Fitted
from ..statistics import artefact
from ..statistics.artefact import BLOCK_NODES, Statistics
from ..statistics.bins import chebyshev_matrix
from ..statistics.decoder import Cdf, gaussian_nats, residual_costs
from .table import CostTable

Array = npt.NDArray[np.float64]
Index = int | npt.NDArray[np.int64]
Variance = Literal["posterior", "upper", "learned_range", "optimal"]
Decoder = Literal["upper", "first_pair", "respaced", "optimal"]


def elbo_costs(
    statistics: Statistics,
    variance: Variance | None = None,
    decoder: Decoder = "upper",
    fitted: Fitted | None = None,
    cdf: Cdf = "exact",
) -> CostTable:
    """The table L[t, s] of negative ELBO terms in nats, [T + 1, T + 1].

    Args:
        statistics: from `estimate`.
        variance: reverse variance of steps that end above 0; None is what the model was trained with.
        decoder: variance of the last step; see method.md, "s = 0, the decoder".
        fitted: numbers fitted on other data (``CostTable.fitted`` or ``Schedule.fitted``), to score them on these
            statistics; by default `optimal` options are fitted here.
        cdf: "exact", or "tanh" for comparing with improved-diffusion's figures.
    """
    options = check_options(statistics, variance, decoder, cdf)
    fitted = fit(statistics, options) if fitted is None else _check_fitted(fitted, options, statistics.process.T)
    process, T = statistics.process, statistics.process.T
    L = np.full((T + 1, T + 1), np.inf)
    for t in range(2, T + 1):
        L[t, 1:t] = step_row(statistics, t, np.arange(1, t), options["variance"], fitted)
    pairs = None
    if options["decoder"] == "respaced":
        pairs = np.full((T + 1, T + 1), np.inf)
        for t1 in range(1, T):
            pairs[t1 + 1 :, t1] = L[t1 + 1 :, t1] + _respaced_row(statistics, t1, options)
    else:
        for t in range(1, T + 1):
            L[t, 0] = _decoder_nats(statistics, t, options, fitted)
    return CostTable(
        process=process,
        L=L,
        prior_nats=_prior_nats(statistics, T),
        dims=statistics.dims,
        options=options,
        pairs=pairs,
        fitted=fitted,
        provenance={
            "model": statistics.model,
            "data": statistics.data,
            "data_range": statistics.data_range.describe(),
            "seed": statistics.seed,
            "process": process.fingerprint,
            "version": statistics.version,
        },
        unit_terms=partial(unit_terms, statistics, options=options, fitted=fitted),
        prior_of=partial(_prior_nats, statistics),
    )


def check_options(
    statistics: Statistics, variance: Variance | None, decoder: Decoder = "upper", cdf: Cdf = "exact"
) -> dict[str, Any]:
    """The options as they will be recorded, or a clear error."""
    chosen = statistics.model["variance"] if variance is None else variance
    for name, value, choices in (
        ("variance", chosen, get_args(Variance)),
        ("decoder", decoder, get_args(Decoder)),
        ("cdf", cdf, get_args(Cdf)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")
    if chosen == "learned_range" and statistics.fraction_bins is None:
        raise ValueError(
            "variance='learned_range' was asked of a model without a learned variance (it was estimated with variance="
            f"{statistics.model['variance']!r}). Use 'posterior', 'upper' or 'optimal'."
        )
    if decoder == "first_pair" and statistics.process.kind != "discrete":
        raise ValueError(
            "decoder='first_pair' is defined by steps 2 → 1 of a discrete training grid, and this process is "
            "continuous. Use 'upper' or 'optimal'."
        )
    if decoder == "respaced" and statistics.process.T < 2:
        raise ValueError("decoder='respaced' takes its variance from a second step; this grid has only one.")
    return {"variance": chosen, "decoder": decoder, "cdf": cdf}


# --- steps that end above 0 ----------------------------------------------------------------------------------------------


def snr_difference(process: ForwardProcess, t: Index, s: Index) -> Array:
    """Δ = snr_s − snr_t."""
    return np.asarray(process.posterior_mean(t, s)[1] * process.f[s] / process.g[s] ** 2)


def step_row(statistics: Statistics, t: int, s: npt.NDArray[np.int64], variance: Variance, fitted: Fitted) -> Array:
    """L(t, s) for steps from t to each s > 0, in nats: the four closed forms of method.md, section 3."""
    process, dims = statistics.process, statistics.dims
    if variance == "learned_range":
        decay, weighted = _fraction_means(statistics, t, -2.0 * np.log(process.g[s] / process.g[t]))
        mean_fraction = float(_require(statistics.fraction_sum)[t].mean())
        return learned_step(process, t, s, dims, mean_fraction, decay, weighted)
    return fixed_step(process, t, s, dims, float(statistics.squared_error[t].mean()), variance, fitted)


def fixed_step(
    process: ForwardProcess, t: Index, s: Index, dims: int, squared_error: Any, variance: Variance, fitted: Fitted
) -> Array:
    """L(t, s) of `posterior`, `upper` and `optimal` variance given E Σ e² (or Σ e² of single samples)."""
    Delta = snr_difference(process, t, s)
    match variance:
        case "posterior":
            return np.asarray(0.5 * Delta * squared_error)
        case "upper":
            log_r = 2.0 * np.log(process.g[s] / process.g[t])
            # r − 1 − ln r by expm1: adjacent steps have r ≈ 1.
            return np.asarray(0.5 * (dims * (np.expm1(log_r) - log_r) + np.exp(log_r) * Delta * squared_error))
        case "optimal":
            m_fit = _require(fitted.mean_squared_error)[t]
            excess = (squared_error / dims - m_fit) * Delta / (1.0 + Delta * m_fit)
            return np.asarray(0.5 * dims * (np.log1p(Delta * m_fit) + excess))
    raise AssertionError(variance)


def learned_step(
    process: ForwardProcess, t: Index, s: Index, dims: int, fraction: Any, decay: Any, weighted: Any
) -> Array:
    """L(t, s) of learned-range variance: ½ [−dims + δ Σφ + Σ exp(−φδ) + Δ Σ e² exp(−φδ)]."""
    delta = -2.0 * np.log(process.g[s] / process.g[t])
    return np.asarray(0.5 * (delta * fraction + (decay - dims) + snr_difference(process, t, s) * weighted))


def _fraction_means(statistics: Statistics, t: int, delta: Array) -> tuple[Array, Array]:
    """E Σ exp(−φδ) and E Σ e² exp(−φδ) for each δ, from the bins of φ."""
    bins, weights = _require(statistics.fraction_bins).row(t)
    decay = np.exp(-statistics.fraction_mesh(t).points(bins).reshape(-1, 1) * delta[None, :])
    sums = weights.swapaxes(0, 1).reshape(2, -1) @ decay / statistics.samples
    return sums[0], sums[1]


# --- the decoder -----------------------------------------------------------------------------------------------------------


def decoder_curve(statistics: Statistics, t: int, variances: Array, cdf: Cdf = "exact") -> Array:
    """E −ln p(x_0 given x_t) in nats for each decoder variance, from the binned residuals of t."""
    if statistics.data_range.levels is None:
        return np.asarray(gaussian_nats(statistics.dims, float(statistics.squared_error[t].mean()), variances))
    bins, weights = _require(statistics.residual_bins).row(t)
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
            return float(_require(fitted.decoder_variance)[t])
    raise AssertionError(decoder)


def _decoder_nats(statistics: Statistics, t: int, options: dict[str, Any], fitted: Fitted) -> float:
    variance = decoder_variance(statistics.process, t, options["decoder"], fitted)
    if statistics.decoder_upper is not None and options["cdf"] == "exact" and variance == statistics.process.g[t] ** 2:
        return float(statistics.decoder_upper[t].mean())
    return float(decoder_curve(statistics, t, np.array([variance]), options["cdf"])[0])


def _respaced_row(statistics: Statistics, t1: int, options: dict[str, Any]) -> Array:
    """Dec(t1, t2) for every t2 > t1."""
    process, T = statistics.process, statistics.process.T
    if options["variance"] == "learned_range":
        return _learned_respaced_row(statistics, t1, options["cdf"])
    delta = artefact.learned_decoder_delta(process, t1)
    size = artefact.learned_decoder_size(process)
    nodes = artefact.learned_decoder_nodes(process, t1, size)
    if statistics.data_range.levels is None or nodes.size == delta.size or options["cdf"] != "exact":
        # few variances, or a formula with a kink: every one by itself
        return decoder_curve(statistics, t1, process.posterior_variance(np.arange(t1 + 1, T + 1), t1), options["cdf"])
    values = decoder_curve(statistics, t1, process.g[t1] ** 2 * np.exp(-nodes))
    return np.asarray(chebyshev_matrix(0.0, float(delta[0]), size, delta) @ values)


def _learned_respaced_row(statistics: Statistics, t1: int, cdf: Cdf) -> Array:
    """Dec(t1, t2) with ln σ² = φ ln g_{t1}² + (1 − φ) ln g̃²(t1, t2) per dimension."""
    process = statistics.process
    delta = artefact.learned_decoder_delta(process, t1)
    if statistics.data_range.levels is None:
        fraction = float(_require(statistics.fraction_sum)[t1].mean())
        weighted = _inverse_variance_means(statistics, t1, delta)
        log_variance = statistics.dims * (math.log(2.0 * math.pi) + 2.0 * np.log(process.g[t1]))
        return np.asarray(0.5 * (log_variance - delta * (statistics.dims - fraction) + weighted))
    if cdf != "exact":
        raise ValueError("cdf='tanh' with a learned decoder variance is only available by direct evaluation.")
    values = _require(statistics.learned_decoder)[t1]
    if delta.size <= values.size:
        return np.asarray(values[: delta.size])
    return np.asarray(chebyshev_matrix(0.0, float(delta[0]), values.size, delta) @ values)


def _inverse_variance_means(statistics: Statistics, t: int, delta: Array) -> Array:
    """E Σ e² / σ² = E Σ e² exp((1 − φ) δ) / g_t² for each δ."""
    _, weighted = _fraction_means(statistics, t, delta)
    return np.asarray(weighted * np.exp(delta) / statistics.process.g[t] ** 2)


# --- what is fitted ----------------------------------------------------------------------------------------------------------


def fit(statistics: Statistics, options: dict[str, Any]) -> Fitted:
    """The numbers of `optimal` options, fitted on these statistics."""
    return Fitted(
        mean_squared_error=statistics.mean_squared_error if options["variance"] == "optimal" else None,
        decoder_variance=_optimal_decoder(statistics, options["cdf"]) if options["decoder"] == "optimal" else None,
    )


def _optimal_decoder(statistics: Statistics, cdf: Cdf) -> Array:
    """The variance per t that minimises the decoder's cost."""
    if statistics.data_range.levels is None:
        return statistics.mean_squared_error
    from scipy.optimize import minimize_scalar

    best = np.full(statistics.process.T + 1, np.nan)
    for t in range(1, statistics.process.T + 1):
        low, high = artefact.decoder_log_sigma_range(statistics.process, statistics.data_range, t)
        coarse = np.linspace(low, high, 33)
        at = int(decoder_curve(statistics, t, np.exp(2.0 * coarse), cdf).argmin())
        bounds = (coarse[max(at - 1, 0)], coarse[min(at + 1, 32)])

        def cost(log_sigma: float, t: int = t) -> float:
            return float(decoder_curve(statistics, t, np.exp([2.0 * log_sigma]), cdf)[0])

        best[t] = math.exp(
            2.0 * float(minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-7}).x)
        )
    return best


def _check_fitted(fitted: Fitted, options: dict[str, Any], T: int) -> Fitted:
    for option, name in (("variance", "mean_squared_error"), ("decoder", "decoder_variance")):
        array = getattr(fitted, name)
        if options[option] == "optimal" and (array is None or array.shape != (T + 1,)):
            raise ValueError(
                f"{option}='optimal' needs fitted.{name} for every grid index (T + 1 = {T + 1} numbers), which the "
                "schedule does not have. It comes from the data that chose the path: optimise with that option."
            )
    return fitted


# --- terms per sample, for standard errors -----------------------------------------------------------------------------------


def unit_terms(
    statistics: Statistics, steps: Sequence[int], options: dict[str, Any], fitted: Fitted
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
            _require(statistics.fraction_blocks)[t],
            np.array([artefact.fraction_range(process, i) for i in t]).reshape(-1, 2),
            delta,
        )
        fraction = by_unit(_require(statistics.fraction_sum)[t])
        decay, weighted = np.exp(values[..., 0]), np.exp(values[..., 1])
        terms = learned_step(process, t[:, None], s[:, None], statistics.dims, fraction, decay, weighted)
    else:
        terms = fixed_step(
            process, t[:, None], s[:, None], statistics.dims, squared_error[:-1], options["variance"], fitted
        )
    decoder = _decoder_units(statistics, path, options, fitted, by_unit, squared_error[-1])
    prior = by_unit(_prior_per_sample(statistics, int(path[0])))
    return np.concatenate([terms, decoder[None], prior[None]]).T, sizes


def _is_upper(statistics: Statistics, steps: Sequence[int], options: dict[str, Any]) -> bool:
    first_pair = options["decoder"] == "first_pair" and statistics.process.origin[steps[-2]] != 1
    return options["decoder"] == "upper" or first_pair


def _decoder_units(
    statistics: Statistics,
    path: npt.NDArray[np.int64],
    options: dict[str, Any],
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
            weighted = np.exp(
                _block_values(_require(statistics.fraction_blocks)[[t1]], limits, np.array([at]))[0, :, 1]
            )
            fraction = by_unit(_require(statistics.fraction_sum)[t1])
            log_variance = statistics.dims * (math.log(2.0 * math.pi) + 2.0 * math.log(process.g[t1]))
            inverse = weighted * math.exp(at) / process.g[t1] ** 2
            return np.asarray(0.5 * (log_variance - at * (statistics.dims - fraction) + inverse))
        blocks = _require(statistics.learned_decoder_blocks)[t1]
        if delta.size <= blocks.shape[1]:
            return np.asarray(blocks[:, t2 - t1 - 1])
        return np.asarray(blocks @ chebyshev_matrix(0.0, float(delta[0]), blocks.shape[1], [at])[0])
    variance = decoder_variance(process, t1, options["decoder"], fitted, t2)
    if not discretised:
        return np.asarray(gaussian_nats(statistics.dims, squared, variance))
    if _is_upper(statistics, path.tolist(), options):
        return np.asarray(by_unit(_require(statistics.decoder_upper)[t1]))
    limits = np.array([artefact.decoder_log_sigma_range(process, statistics.data_range, t1)])
    values = _require(statistics.decoder_blocks)[[t1], :, None, :]
    return np.asarray(np.exp(_block_values(values, limits, np.array([0.5 * math.log(variance)]))[0, :, 0]))


def _block_values(values: Array, limits: Array, at: Array) -> Array:
    """Values [rows, B, C, nodes] on Chebyshev nodes of ``limits`` [rows, 2], interpolated at ``at`` [rows]."""
    width = np.maximum(limits[:, 1] - limits[:, 0], 1e-12)
    unit = (at - limits[:, 0]) / width
    matrix = chebyshev_matrix(0.0, 1.0, BLOCK_NODES, unit)
    return np.asarray(np.einsum("rbcj,rj->rbc", values, matrix))


# --- prior -------------------------------------------------------------------------------------------------------------------


def _prior_per_sample(statistics: Statistics, t: int) -> Array:
    """KL(q(x_t given x_0) ‖ N(0, I)) of each sample, in nats."""
    f_t, log_variance = statistics.process.f[t], 2.0 * np.log(statistics.process.g[t])
    return np.asarray(
        0.5 * (f_t**2 * statistics.data_square + statistics.dims * (np.expm1(log_variance) - log_variance))
    )


def _prior_nats(statistics: Statistics, t: int) -> float:
    return float(_prior_per_sample(statistics, t).mean())


def _require(value: Any) -> Any:
    assert value is not None
    return value
