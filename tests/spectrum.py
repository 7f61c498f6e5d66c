"""Gaussian data of a falling spectrum: a population that is known, and statistics drawn from it without a network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpstride import ForwardProcess, Statistics
from dpstride.objectives.elbo import check_options
from gaussian import Array, ideal_statistics

T, DIMS = 120, 64
PROCESS = ForwardProcess.linear(T)
SPECTRUM = 4.0 * np.arange(1, DIMS + 1) ** -1.5
POPULATION = ideal_statistics(PROCESS, 0.0, SPECTRUM)
BUDGETS = (4, 8, 16)
POSTERIOR = check_options(PROCESS, "posterior", None)


def without_noise(samples: int) -> Statistics:
    """The population, as if each of several samples had its mean error."""
    return replace(
        POPULATION,
        squared_error=np.repeat(POPULATION.squared_error, samples, axis=1),
        data_square=np.full(samples, SPECTRUM.sum()),
    )


def gaussian_images(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((count, DIMS)) * np.sqrt(SPECTRUM)


def drawn_statistics(samples: int, seed: int, process: ForwardProcess = PROCESS) -> Statistics:
    """Statistics at every step of the ideal denoiser, drawn from its own formula instead of by passes."""
    rng = np.random.default_rng(seed)
    x_0 = gaussian_images(samples, seed)
    f, g = process.f[1:, None, None], process.g[1:, None, None]
    gain = SPECTRUM * f / (SPECTRUM * f**2 + g**2)
    e = x_0 * (1.0 - gain * f) - gain * g * rng.standard_normal((process.T, samples, DIMS))
    return replace(
        ideal_statistics(process, 0.0, SPECTRUM),
        squared_error=np.concatenate([np.zeros((1, samples)), (e**2).sum(2)]),
        data_square=(x_0**2).sum(1),
        data={"samples": samples, "fingerprint": "drawn"},
    )
