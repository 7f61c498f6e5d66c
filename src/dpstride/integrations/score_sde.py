"""Continuous score networks as in score_sde: ``score(x, t)`` is ∇ ln q(x_t), t in (0, 1], for VP, sub-VP or VE.

A score is a noise estimate in other units, ε = −g score, so it is wrapped and predicts eps. ``score`` is returned by that
project's ``mutils.get_score_fn(sde, model, continuous=True)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ..denoiser import Denoiser
from ..process import ForwardProcess
from .k_diffusion import sigma_grid
from .loaded import LoadedModel

Sde = Literal["vp", "subvp", "ve"]


def load_score_sde(
    score: Callable[[Tensor, Tensor], Tensor],
    sde: Sde,
    *,
    T: int = 1000,
    beta_min: float = 0.1,
    beta_max: float = 20.0,
    sigma_min: float = 0.01,
    sigma_max: float = 50.0,
    data_range: object = "uint8",
    **denoiser_options: Any,
) -> LoadedModel:
    """Make a denoiser from a continuous score function; the parameters are those of the SDE it was trained with.

    Models trained on data in [0, 1] (score_sde's ``centered=False``, usual for VE) need ``clip=(0, 1)`` and
    ``data_range=("levels", 256, 0.0, 1.0)``. ``denoiser_options`` (clip, shape, device, …) go to `Denoiser`.
    """
    match sde:
        case "vp":
            process = ForwardProcess.vp_linear(T, beta_min=beta_min, beta_max=beta_max)
            network: Any = ScoreOfTime(score, beta_min, beta_max, subvp=False)
            note = f"VP with beta from {beta_min:g} to {beta_max:g}"
        case "subvp":
            process = ForwardProcess.sub_vp(T, beta_min=beta_min, beta_max=beta_max)
            network = ScoreOfTime(score, beta_min, beta_max, subvp=True)
            note = f"sub-VP with beta from {beta_min:g} to {beta_max:g}"
        case "ve":
            process = ForwardProcess.ve(sigma_grid(sigma_min, sigma_max, T))
            network = ScoreOfSigma(score, sigma_min, sigma_max)
            note = f"VE with sigma from {sigma_min:g} to {sigma_max:g}; below sigma_min the data counts as clean"
        case _:
            raise ValueError(f"sde must be 'vp', 'subvp' or 've', not {sde!r}.")
    denoiser = Denoiser(network, process, trained_continuous=True, time_input="time", **denoiser_options)
    return LoadedModel(denoiser, (f"continuous score network, {note}; eps = -g score",), data_range=data_range)


class ScoreOfTime:
    """ε = −g(t) score(x, t), with g of the VP or sub-VP process."""

    def __init__(
        self, score: Callable[[Tensor, Tensor], Tensor], beta_min: float, beta_max: float, subvp: bool
    ) -> None:
        self.score, self.beta_min, self.beta_max, self.subvp = score, beta_min, beta_max, subvp

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the noise estimate."""
        t = time.double()
        one_minus_f2 = -torch.expm1(-(self.beta_min * t + 0.5 * (self.beta_max - self.beta_min) * t**2))
        g = one_minus_f2 if self.subvp else one_minus_f2.sqrt()
        return -_per_sample(g, x) * self.score(x, time)


class ScoreOfSigma:
    """ε = −sigma score(x, t), with t = ln(sigma/sigma_min)/ln(sigma_max/sigma_min) of the VE process."""

    def __init__(self, score: Callable[[Tensor, Tensor], Tensor], sigma_min: float, sigma_max: float) -> None:
        self.score, self.sigma_min, self.sigma_max = score, sigma_min, sigma_max

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the noise estimate at noise level ``time``."""
        t = (time.double() / self.sigma_min).log() / math.log(self.sigma_max / self.sigma_min)
        return -_per_sample(time, x) * self.score(x, t.to(time.dtype))


def _per_sample(values: Tensor, x: Tensor) -> Tensor:
    return values.to(x.dtype).reshape(-1, *([1] * (x.ndim - 1)))
