"""Noise-level-conditioned vocoders such as WaveGrad: ``model(audio, spectrogram, noise_level)`` predicts the noise.

The noise level is sqrt(alpha_bar) = f, continuous in training, so such a model can be used off its training grid, as the
paper states for WaveGrad. The grid is therefore stored as sigma = g/f, from which the level follows on any grid. Audio is
1-D data with a plain density.
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

TRAINING_BETAS = np.linspace(1e-6, 0.01, 1000)  # lmnt-com/wavegrad's noise_schedule


def load_wavegrad(
    model: Callable[..., Tensor],
    *,
    betas: npt.ArrayLike = TRAINING_BETAS,
    call: Callable[..., Tensor] | None = None,
    clip: tuple[float, float] | None = None,
    **denoiser_options: Any,
) -> LoadedModel:
    """Make a denoiser from a WaveGrad model; data are (audio [N, samples], spectrograms [N, …]).

    ``call(model, audio, spectrogram, noise_level)`` calls a model with another order of arguments; the default is
    ``model(audio, spectrogram, noise_level)`` as in lmnt-com/wavegrad. A channel dimension of 1 in its output is dropped.
    ``denoiser_options`` (shape, device, …) go to `Denoiser`.
    """
    discrete = ForwardProcess.from_betas(betas)
    process = ForwardProcess.from_functions(
        lambda sigma: 1.0 / np.sqrt(1.0 + sigma**2),
        lambda sigma: sigma / np.sqrt(1.0 + sigma**2),
        discrete.g / discrete.f,
        name="wavegrad",
    )
    denoiser = Denoiser(
        NoiseLevelNetwork(model, call),
        process,
        predicts="eps",
        clip=clip,
        trained_continuous=True,
        time_input="time",
        **denoiser_options,
    )
    return LoadedModel(
        denoiser,
        notes=(
            f"noise-level-conditioned: the network is fed sqrt(alpha_bar), on a grid of {process.T} training steps; any "
            "other grid is allowed (Denoiser.on_grid), its times are sigma = g/f",
            "WaveGrad's own sampler clamps the audio to [-1, 1] after every step, which no reverse process does; here "
            "x0_hat is clipped if you give clip, and x_t never is",
        ),
        data_range="continuous",
        conditioning="a spectrogram per sample",
    )


class NoiseLevelNetwork:
    """``network(x, sigma, spectrogram)`` of a model that takes the noise level 1/sqrt(1 + sigma²)."""

    def __init__(self, model: Callable[..., Tensor], call: Callable[..., Tensor] | None) -> None:
        self.model, self.call = model, call

    def __call__(self, x: Tensor, time: Tensor, spectrogram: Tensor | None = None) -> Tensor:
        """Return the noise estimate, in the shape of x."""
        level = (1.0 + time.double().square()).rsqrt().to(time.dtype)
        condition = () if spectrogram is None else (spectrogram,)
        output = self.model(x, *condition, level) if self.call is None else self.call(self.model, x, *condition, level)
        return output.squeeze(1) if output.ndim == x.ndim + 1 else output
