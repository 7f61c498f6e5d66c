"""Stage 5. Cost of a step t → s with s > 0: the divergence of two Gaussians that share their mean formula.

With e = x_0 − x̂_0, Δ = snr_s − snr_t and δ = ln(g_t²/g_s²), the variance options have closed forms in statistics of t
alone (method.md, section 3), so one network pass per t serves every s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..fitted import CURVE_NODES, Fitted, shape_of
from ..options import Variance
from ..process import ForwardProcess
from ..statistics import artefact
from ..statistics.artefact import Statistics
from ..statistics.bins import chebyshev_nodes

Array = npt.NDArray[np.float64]
Index = int | npt.NDArray[np.int64]
LEARNED = ("learned_range", "learned_optimal")  # those that read what the network says of the variance


def snr_difference(process: ForwardProcess, t: Index, s: Index) -> Array:
    """Δ = snr_s − snr_t."""
    return np.asarray(process.posterior_mean(t, s)[1] * process.f[s] / process.g[s] ** 2)


def step_row(statistics: Statistics, t: int, s: npt.NDArray[np.int64], variance: Variance, fitted: Fitted) -> Array:
    """L(t, s) for steps from t to each s > 0, in nats: the closed forms of method.md, section 3."""
    process, dims = statistics.process, statistics.dims
    if variance in LEARNED:
        decay, weighted = fraction_means(statistics, t, -2.0 * np.log(process.g[s] / process.g[t]))
        mean_fraction = float(require(statistics.fraction_sum)[t].mean())
        return learned_step(process, t, s, dims, mean_fraction, decay, weighted, variance, fitted)
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
            m_fit = require(fitted.mean_squared_error)[t]
            excess = (squared_error / dims - m_fit) * Delta / (1.0 + Delta * m_fit)
            return np.asarray(0.5 * dims * (np.log1p(Delta * m_fit) + excess))
    raise AssertionError(variance)


def learned_step(
    process: ForwardProcess,
    t: Index,
    s: Index,
    dims: int,
    fraction: Any,
    decay: Any,
    weighted: Any,
    variance: Variance,
    fitted: Fitted,
) -> Array:
    """L(t, s) of learned variances: ½ [δ Σφ + dims (ln c − 1) + (Σ exp(−φδ) + Δ Σ e² exp(−φδ)) / c].

    c is 1 with `learned_range`, and the fitted factor of the step with `learned_optimal`.
    """
    delta, Delta = -2.0 * np.log(process.g[s] / process.g[t]), snr_difference(process, t, s)
    if variance == "learned_range":
        return np.asarray(0.5 * (delta * fraction + (decay - dims) + Delta * weighted))
    factor = fitted.factor(t, delta, Delta)
    return np.asarray(0.5 * (delta * fraction + dims * (np.log(factor) - 1.0) + (decay + Delta * weighted) / factor))


def fraction_means(statistics: Statistics, t: int, delta: Array) -> tuple[Array, Array]:
    """E Σ exp(−φδ) and E Σ e² exp(−φδ) for each δ, from the bins of φ."""
    bins, weights = require(statistics.fraction_bins).row(t)
    mesh = statistics.fraction_mesh(t)
    # A node is where its bin begins plus its place in the bin, so exp(−φδ) is a product, and takes bins + nodes of them.
    begin = bins * mesh.width - mesh.LIMIT
    inside = weights @ np.exp(-np.outer(mesh.points(np.zeros(1, dtype=np.int64))[0] + mesh.LIMIT, delta))
    sums = np.einsum("kd,kwd->wd", np.exp(-np.outer(begin, delta)), inside) / statistics.samples
    return sums[0], sums[1]


def fit_factors(statistics: Statistics, rows: npt.NDArray[np.int64]) -> Array:
    """``learned_factor`` of `Fitted` at these grid indices; NaN at others."""
    process = statistics.process
    found = np.full(shape_of("learned_factor", process.T), np.nan)
    for t in rows.tolist():
        _, most = artefact.fraction_range(process, t)
        nodes = chebyshev_nodes(0.0, max(most, 1e-6), CURVE_NODES)
        means = np.stack(fraction_means(statistics, t, nodes)) / statistics.dims
        decay, weighted = np.log(np.maximum(means, 1e-300))
        # Rounded so that schedule files stay small; what is rounded is what all who read the factor use.
        found[t] = np.round([most, *(decay / nodes), *weighted], 6)
    return found


def require(value: Any) -> Any:
    """``value``, which the options guarantee to be there."""
    assert value is not None
    return value
