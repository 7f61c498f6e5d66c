"""Sigma-conditioned denoisers of k-diffusion and EDM: ``D(x, sigma)`` is the estimate of clean data at x = x_0 + sigma ε.

The whole family (k_diffusion.Denoiser, its wrappers of eps- and v-networks, EDM's Precond classes) shares this one
signature, so one function takes them all. The process is variance exploding, rescaled (`ForwardProcess.ve`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..denoiser import Denoiser
from ..process import ForwardProcess
from .loaded import LoadedModel


def load_k_diffusion(
    denoised: Callable[..., Tensor],
    *,
    sigmas: npt.ArrayLike | None = None,
    sigma_min: float = 0.002,
    sigma_max: float = 80.0,
    T: int = 256,
    clip: tuple[float, float] | None = None,
    data_range: object = "uint8",
    **denoiser_options: Any,
) -> LoadedModel:
    """Make a denoiser from ``denoised(x, sigma)`` or ``denoised(x, sigma, **conditioning)`` on a grid of noise levels.

    ``sigmas`` is the grid, ascending and above 0, for example a wrapper's own ``.sigmas``; without it, ``T`` levels evenly
    spaced in ln sigma from ``sigma_min`` to ``sigma_max``. ``denoiser_options`` (shape, device, …) go to `Denoiser`.
    """
    grid = sigma_grid(sigma_min, sigma_max, T) if sigmas is None else _ascending(sigmas)
    denoiser = Denoiser(
        denoised,
        ForwardProcess.ve(grid, name="ve"),
        predicts="x0",
        clip=clip,
        trained_continuous=True,
        time_input="time",
        **denoiser_options,
    )
    return LoadedModel(
        denoiser,
        notes=(
            "sigma-conditioned denoiser, variance exploding: x_t = x_0 + sigma noise, rescaled by 1/sqrt(1 + sigma²)",
            f"grid of {grid.size - 1} noise levels from {grid[1]:g} to {grid[-1]:g}",
            "posterior and optimal variances do not depend on the rescaling; upper ones are those of rescaled x_t",
        ),
        data_range=data_range,
    )


def sigma_grid(sigma_min: float, sigma_max: float, T: int) -> npt.NDArray[np.float64]:
    """Return 0 and then T noise levels evenly spaced in ln sigma."""
    if not 0.0 < sigma_min < sigma_max:
        raise ValueError(f"Noise levels need 0 < sigma_min < sigma_max, not {sigma_min} and {sigma_max}.")
    if T < 2:
        raise ValueError(f"T must be at least 2 noise levels, not {T}.")
    return np.concatenate([[0.0], np.geomspace(sigma_min, sigma_max, T)])


def _ascending(sigmas: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.asarray(sigmas, dtype=np.float64)
    return array if array[0] == 0.0 else np.concatenate([[0.0], array])
