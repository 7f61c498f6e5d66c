"""Parts of the objectives: a noised batch, its coefficients, and shared terms.

A network is trained on ``x_t = f_t x_0 + g_t ε``. Noise levels come from a `ForwardProcess`, computed in float64 and rounded
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dpstride.process import ForwardProcess

Target = Literal["eps", "v", "flow"]
CONTINUOUS_TIME_SCALE = 1000.0  # networks of continuous time get 1000 t, which suits sinusoidal embeddings


@dataclass(frozen=True)
class Setting:
    """A training objective: the properties it requires of a network, and its loss.

    Attributes:
        title: the objective in a few words, for a model card.
        predicts: kind of the network's output.
        learned_variance: the network has 2C output channels, the second half for the variance.
        kind: discrete or continuous time.
        process: name of the ForwardProcess class method used by default.
        T: its number of steps.
        losses: function from the network's output and the batch to the loss of every sample, [B].
        loss_aware: t is always drawn by the size of its losses.
    """

    title: str
    predicts: Target
    learned_variance: bool
    kind: Literal["discrete", "continuous"]
    process: str
    T: int
    losses: Callable[[Tensor, NoisedBatch], Tensor]
    loss_aware: bool = False


@dataclass(frozen=True)
class Coefficients:
    """Numbers of a batch that depend on t only, float32 vectors of length B; `at` computes them in float64.

    The last four belong to the step t → t − 1 of a discrete process (None in continuous time): ``weight`` is
    ``snr_{t−1}/snr_t − 1``, ``delta`` is ``ln(g_t²/g_{t−1}²)``, and ``log_low``, ``log_high`` are the logarithms of the
    decoder's two variances at t = 1.
    """

    f: Tensor
    g: Tensor
    time_input: Tensor
    first: Tensor | None = None
    weight: Tensor | None = None
    delta: Tensor | None = None
    log_low: float = 0.0
    log_high: float = 0.0

    @classmethod
    def at(cls, process: ForwardProcess, t: Tensor) -> Coefficients:
        """Coefficients at grid indices t = 1..T (discrete process) or at times in (0, 1] (continuous process)."""
        if process.kind == "continuous":
            if process.f_function is None or process.g_function is None:
                raise ValueError(
                    f"Training in continuous time needs a process at any time, but {process.name!r} is known only at its grid "
                    "points. Build it with from_functions."
                )
            times = t.double().cpu().numpy()
            f = np.asarray(process.f_function(times), dtype=np.float64)
            g = np.asarray(process.g_function(times), dtype=np.float64)
            return cls(_float(f, t), _float(g, t), (CONTINUOUS_TIME_SCALE * t).float())
        index = t.long().cpu().numpy()
        if process.T < 2:
            raise ValueError(
                f"Training on a discrete process needs at least 2 steps, but T = {process.T}. Use more steps."
            )
        inner = np.maximum(index, 2)  # the step 1 → 0 is the decoder: weight and delta are not used there
        f, g = process.f, process.g
        ratio = (f[inner - 1] * g[inner]) / (g[inner - 1] * f[inner])
        return cls(
            f=_float(f[index], t),
            g=_float(g[index], t),
            time_input=t.long() - 1,
            first=(t == 1),
            weight=_float((ratio - 1.0) * (ratio + 1.0), t),
            delta=_float(2.0 * np.log(g[inner] / g[inner - 1]), t),
            log_low=float(np.log(process.posterior_variance(2, 1))),
            log_high=float(2.0 * np.log(g[1])),
        )


@dataclass(frozen=True)
class NoisedBatch:
    """Clean data, its noise, the coefficients of every sample's t, and the number of steps of the process."""

    x0: Tensor
    eps: Tensor
    at: Coefficients
    T: int

    @property
    def f(self) -> Tensor:
        """f_t of every sample, shaped to multiply x_0."""
        return wide(self.at.f, self.x0)

    @property
    def g(self) -> Tensor:
        """g_t of every sample, shaped to multiply ε."""
        return wide(self.at.g, self.x0)

    @cached_property
    def x_t(self) -> Tensor:
        """f_t x_0 + g_t ε."""
        return self.f * self.x0 + self.g * self.eps


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Mean over dimensions of ``(output − target)²``, [B]: L_simple's term (Ho et al. 2020, Eq. 14)."""
    return (output - target).square().flatten(1).mean(dim=1)


def vlb_terms(eps_hat: Tensor, v: Tensor, batch: NoisedBatch) -> Tensor:
    """Term of the variational bound at t with learned-range variance, in bits/dim, [B].

    For t > 1 the KL between q(x_{t−1} given x_t, x_0) and p, whose variance is ``exp(φ ln g_ts² + (1 − φ) ln g̃_ts²)``
    with ``φ = (v + 1)/2`` (Nichol and Dhariwal 2021, Eq. 15):
    ``½ [−1 + φδ + exp(−φδ)(1 + w (ε − ε̂)²)]``, ``δ = ln(g_t²/g_s²)``, ``w = snr_s/snr_t − 1``, per dimension.
    For t = 1 the discretised decoder of Ho et al., whose variance lies between ``g̃²`` of the step 2 → 1 and ``g_1²``,
    as in Nichol and Dhariwal's code. The clean estimate is not clipped here: a clip has no gradient outside its range.
    """
    at, x0 = batch.at, batch.x0
    assert at.first is not None
    assert at.weight is not None
    assert at.delta is not None
    phi = (v + 1.0) / 2.0
    exponent = phi * wide(at.delta, x0)
    error = (batch.eps - eps_hat).square()
    nats = 0.5 * (exponent - 1.0 + torch.exp(-exponent) * (1.0 + wide(at.weight, x0) * error))
    terms = nats.flatten(1).mean(dim=1)
    if bool(at.first.any()):
        rows = at.first.nonzero().squeeze(1)
        f, g = wide(at.f[rows], x0), wide(at.g[rows], x0)
        x0_hat = (batch.x_t[rows] - g * eps_hat[rows]) / f
        log_variance = at.log_low + phi[rows] * (at.log_high - at.log_low)
        decoder = -discretised_log_likelihood(x0[rows], x0_hat, 0.5 * log_variance).flatten(1).mean(dim=1)
        terms = terms.index_copy(0, rows, decoder)
    return terms / math.log(2.0)


def discretised_log_likelihood(x0: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """Log-probability of 8-bit data under a Gaussian integrated over each bin (Ho et al. 2020, Eq. 13), nats.

    Data lie on the lattice of 256 levels in [−1, 1]; half a bin is 1/255; the two end bins are open. Computed with the
    logarithm of the exact normal CDF, so that far tails keep their gradient.
    """
    scale = torch.exp(log_scale)
    upper = (x0 - mean + 1.0 / 255.0) / scale
    lower = (x0 - mean - 1.0 / 255.0) / scale
    log_upper = torch.special.log_ndtr(upper)
    log_above_lower = torch.special.log_ndtr(-lower)
    # ln(Φ(b) − Φ(a)), computed in the tail where both are small: reflected if the bin lies above the mean.
    above = (upper + lower) > 0.0
    inner = torch.where(above, -lower, upper)
    outer = torch.where(above, -upper, lower)
    log_inner = torch.special.log_ndtr(inner)
    gap = (torch.special.log_ndtr(outer) - log_inner).clamp(max=-1e-7)
    inside = log_inner + torch.log(-torch.expm1(gap))
    return torch.where(x0 < -0.999, log_upper, torch.where(x0 > 0.999, log_above_lower, inside))


def _float(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], like: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(values)).to(device=like.device, dtype=torch.float32)


def wide(vector: Tensor, like: Tensor) -> Tensor:
    """A vector [B] shaped to multiply a batch [B, ...]."""
    return vector.reshape(-1, *([1] * (like.ndim - 1)))
