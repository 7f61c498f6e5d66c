"""A model without a network: the exact denoiser of a small Gaussian mixture, in closed form.

Its data are 8-bit "images" of 4 × 4 pixels. Because E[x_0 given x_t] is known, schedules found on it are free of any error of
a network.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..denoiser import Denoiser
from ..process import ForwardProcess

SIZE, COMPONENTS, SPREAD, SEED = 4, 12, 0.06, 2021


def _means() -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    return torch.empty(COMPONENTS, SIZE * SIZE, dtype=torch.float64).uniform_(-0.75, 0.75, generator=generator)


def mixture_data(samples: int, seed: int) -> Tensor:
    """``samples`` draws as uint8 [samples, 1, 4, 4]."""
    generator = torch.Generator().manual_seed(seed)
    component = torch.randint(COMPONENTS, (samples,), generator=generator)
    noise = torch.randn(samples, SIZE * SIZE, generator=generator, dtype=torch.float64)
    x = _means()[component] + SPREAD * noise
    return ((x + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8).reshape(samples, 1, SIZE, SIZE)


def mixture_denoiser(T: int = 1000) -> Denoiser:
    """The exact denoiser on the linear process of T steps: predicts x0, posterior variance."""
    process = ForwardProcess.linear(T)
    means = _means()
    f = torch.tensor(process.f)
    g = torch.tensor(process.g)

    def posterior_mean(x: Tensor, time: Tensor) -> Tensor:
        f_t, g_t = f[time + 1][:, None], g[time + 1][:, None]
        flat = x.flatten(1).double()
        variance = f_t**2 * SPREAD**2 + g_t**2  # of x_t within one component
        distance = (flat[:, None, :] - f_t[:, :, None] * means[None]).square().sum(-1)
        weight = torch.softmax(-0.5 * distance / variance, dim=1)
        shrink = f_t * SPREAD**2 / variance  # E[x_0 - mean given x_t] = shrink (x_t - f_t mean)
        centre = weight @ means
        return (centre + shrink * (flat - f_t * centre)).reshape(x.shape).to(x.dtype)

    return Denoiser(posterior_mean, process, predicts="x0", shape=(1, SIZE, SIZE), name="mixture (exact denoiser)")
