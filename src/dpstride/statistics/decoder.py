"""Stage 3. The cost of the last step, −ln p(x_0 given x_t), for data on a lattice of levels.

p is a Gaussian with mean x̂_0, integrated over the bin of each level; the first and last bins are open (Ho et al. 2020).
The same formula serves tensors (in the network pass and the evaluator) and arrays (in the cost tables), so it works with
torch and with numpy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..options import DEFAULT_CDF, Cdf
from .bins import GradedMesh

TANH_FLOOR = 1e-12  # improved-diffusion clamps probabilities here


def decoder_nats(q: Any, edge: Any, half_bin: float, sigma: Any, cdf: Cdf = DEFAULT_CDF) -> Any:
    """−ln of the probability of a level, elementwise, in nats.

    Args:
        q: x_0 − x̂_0 as `signed_residual` returns it: its absolute value inside, its outward part at an edge level.
        edge: whether the level is the first or the last, whose bin is open; one for all, or one per element.
        half_bin: half the distance between two levels.
        sigma: standard deviation of the decoder, a scalar or one per element.
        cdf: "exact", or "tanh": improved-diffusion's approximation with its clamp, for comparing published figures.
    """
    if isinstance(q, np.ndarray):
        from scipy.special import log_ndtr

        xp: Any = np
    else:
        import torch as xp

        log_ndtr = xp.special.log_ndtr
    upper, lower = (half_bin - q) / sigma, (-half_bin - q) / sigma
    if cdf == "tanh":
        below = xp.where(edge, 0.0, _tanh_cdf(lower, xp))
        return -xp.log(xp.clip(_tanh_cdf(upper, xp) - below, TANH_FLOOR, None))
    log_upper = log_ndtr(upper)
    if edge is True:
        return -log_upper
    # ln(Φ(upper) − Φ(lower)) without subtracting two probabilities that may both be tiny or nearly equal.
    gap = xp.where(edge, -math.inf, log_ndtr(lower) - log_upper)
    return -(log_upper + xp.log(-xp.expm1(gap)))


def signed_residual(e: Any, low_edge: Any, edge: Any) -> Any:
    """The number on which a level's cost depends: |e| inside; at an edge, how far x̂_0 is towards the inside.

    The interior is symmetric in e = x_0 − x̂_0, and the two edges mirror each other: p(first level) with residual e is
    p(last level) with residual −e.
    """
    if isinstance(e, np.ndarray):
        return np.where(edge, np.where(low_edge, -e, e), np.abs(e))
    return e.abs().where(~edge, (-e).where(low_edge, e))


def gaussian_nats(dims: Any, squared_error: Any, variance: Any) -> Any:
    """−ln of the plain Gaussian density, for `continuous` data: ½ [dims ln(2π σ²) + Σe²/σ²]."""
    log = np.log if not hasattr(variance, "log") else (lambda value: value.log())
    return 0.5 * (dims * (math.log(2.0 * math.pi) + log(variance)) + squared_error / variance)


def rough_nats(dims: float, squared_error: Any, variance: Any, step: float) -> Any:
    """A smooth, positive approximation of a sample's cost on levels ``step`` apart: `gaussian_nats` of a bin, softened.

    The cost is about this where bins are narrow, and less where one bin holds everything; their ratio changes slowly.
    """
    return 0.5 * (dims * np.log1p(2.0 * math.pi * variance / step**2) + squared_error / (variance + step**2 / 12.0))


def residual_costs(
    mesh: GradedMesh,
    bins: npt.NDArray[np.int64],
    half_bin: float,
    sigma: npt.NDArray[np.float64],
    cdf: Cdf = DEFAULT_CDF,
) -> npt.NDArray[np.float64]:
    """`decoder_nats` at the nodes of residual bins (interior bins first, then edge bins), for each sigma: [bins, M, S]."""
    edge = (bins >= mesh.bins)[:, None, None]
    points = mesh.points(bins % mesh.bins)[:, :, None]
    return np.asarray(decoder_nats(points, edge, half_bin, sigma[None, None, :], cdf=cdf))


def _tanh_cdf(x: Any, xp: Any) -> Any:
    return 0.5 * (1.0 + xp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
