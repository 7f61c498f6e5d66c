"""Data for which the distribution of samples is known for any path, used by `known_laws.py`.

With the ideal denoiser of Gaussian data every step of a chain is linear, so the final samples are Gaussian, and the path
determines the variance per direction. With one-dimensional data every step is an increasing map followed by noise: the map
transports the distribution function, noise multiplies its Fourier transform, and distances are computed from quantiles. The
errors E Σ e², from which paths are chosen, are exact as well. Nothing is estimated; only the one-dimensional case uses a grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtr, ndtri

from dpstride import ForwardProcess, Statistics
from dpstride.samplers import ddim
from dpstride.statistics.artefact import DataRange

Array = npt.NDArray[np.float64]


class Chain(NamedTuple):
    """A sampler, with its variance if it has one."""

    sampler: str
    variance: str | None = None


CHAINS = {
    Chain("ancestral", "posterior"): "ancestral, posterior variance",
    Chain("ancestral", "optimal"): "ancestral, optimal variance",
    Chain("ddim"): "DDIM",
}


def coefficients(statistics: Statistics, chain: Chain, t: int, s: int) -> tuple[float, float, float]:
    """(a, b, variance) of the step x_s = a x_t + b x̂_0 + noise; the last step of every chain returns x̂_0."""
    process = statistics.process
    if s == 0:
        return 0.0, 1.0, 0.0
    if chain.sampler == "ddim":
        a, b = ddim.coefficients(process, t, s)
        return float(a), float(b), 0.0
    a, b = process.posterior_mean(t, s)
    more = float(b) ** 2 * float(statistics.mean_squared_error[t]) if chain.variance == "optimal" else 0.0
    return float(a), float(b), float(process.posterior_variance(t, s)) + more


def exact_statistics(
    process: ForwardProcess, dims: int, errors: Sequence[float], mean: float, variance: float
) -> Statistics:
    """Statistics of infinitely many samples: E Σ e² at t = 1 … T, and the data's mean and variance per dimension."""
    return Statistics(
        process=process,
        dims=dims,
        data_range=DataRange.parse("continuous"),
        seed=0,
        model={"name": "ideal", "variance": "posterior", "clip": None},
        data={"samples": 1, "deviation": math.sqrt(variance)},
        squared_error=np.array([0.0, *errors])[:, None],
        data_square=np.array([dims * (variance + mean**2)]),
    )


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Data N(0, diag(variances)); the final samples are also Gaussian with a diagonal covariance."""

    process: ForwardProcess
    variances: Array

    @classmethod
    def of_falling_spectrum(cls, dims: int = 256, variance: float = 0.35, T: int = 1000) -> Gaussian:
        """A 1/f spectrum with that variance per dimension, on the linear process."""
        spectrum = 1.0 / np.arange(1.0, dims + 1.0)
        return cls(ForwardProcess.linear(T), variance * spectrum / spectrum.mean())

    def gain(self, t: int) -> Array:
        """x̂_0 over x_t, per direction."""
        f, g = self.process.f[t], self.process.g[t]
        return np.asarray(self.variances * f / (self.variances * f**2 + g**2))

    def statistics(self) -> Statistics:
        """Statistics of the ideal denoiser, whose error is the variance of x_0 given x_t."""
        f = self.process.f
        errors = [float((self.variances * (1.0 - f[t] * self.gain(t))).sum()) for t in range(1, self.process.T + 1)]
        return exact_statistics(self.process, self.variances.size, errors, 0.0, float(self.variances.mean()))

    def finished(self, statistics: Statistics, path: Sequence[int], chain: Chain) -> Array:
        """Variance per direction of the samples drawn along a path."""
        law = np.ones_like(self.variances)
        for t, s in itertools.pairwise(path):
            a, b, variance = coefficients(statistics, chain, t, s)
            law = (a + b * self.gain(t)) ** 2 * law + variance
        return law

    def squared_wasserstein(self, statistics: Statistics, path: Sequence[int], chain: Chain) -> float:
        """W2² of the samples from the data."""
        law = self.finished(statistics, path, chain)
        return float(((np.sqrt(law) - np.sqrt(self.variances)) ** 2).sum())

    def divergence(self, statistics: Statistics, path: Sequence[int], chain: Chain) -> float:
        """KL(data ‖ samples) in nats."""
        ratio = self.variances / self.finished(statistics, path, chain)
        return float(0.5 * (ratio - 1.0 - np.log(ratio)).sum())


POINTS = np.linspace(-8.0, 8.0, 1 << 14, endpoint=False)
SPACING = float(POINTS[1] - POINTS[0])
SHARES = (np.arange(20_000) + 0.5) / 20_000


@dataclass(frozen=True, eq=False)
class Line:
    """A mixture of Gaussians in one dimension, with distribution functions at `POINTS` and quantiles of samples at `SHARES`."""

    process: ForwardProcess
    weights: Array
    means: Array
    deviations: Array

    @classmethod
    def of_three_modes(cls, T: int = 1000) -> Line:
        """Three modes of different weight and width, on the linear process."""
        weights, means, deviations = np.array([[0.3, 0.5, 0.2], [-1.0, 0.1, 0.9], [0.1, 0.05, 0.2]])
        return cls(ForwardProcess.linear(T), weights, means, deviations)

    def posterior(self, x: Array, t: int) -> tuple[Array, Array, Array]:
        """x̂_0 and the variance of x_0 given x_t = x, and the density of x_t at x."""
        f, g = self.process.f[t], self.process.g[t]
        spread = f**2 * self.deviations**2 + g**2
        away = x[:, None] - f * self.means
        logs = np.log(self.weights) - 0.5 * (away**2 / spread + np.log(2.0 * np.pi * spread))
        density = logsumexp(logs, axis=1, keepdims=True)
        shares = np.exp(logs - density)
        means = self.means + f * self.deviations**2 / spread * away
        mean = (shares * means).sum(axis=1, keepdims=True)
        variance = (shares * (self.deviations**2 * g**2 / spread + (means - mean) ** 2)).sum(axis=1)
        return mean[:, 0], variance, np.exp(density[:, 0])

    def statistics(self) -> Statistics:
        """Statistics of the ideal denoiser, by quadrature."""
        errors = []
        for t in range(1, self.process.T + 1):
            _, variance, density = self.posterior(POINTS[::16], t)
            errors.append(float((variance * density).sum()) * 16.0 * SPACING)
        mean = float(self.weights @ self.means)
        square = float(self.weights @ (self.means**2 + self.deviations**2))
        return exact_statistics(self.process, 1, errors, mean, square - mean**2)

    def quantiles(self) -> Array:
        """Quantiles of the data."""
        distribution = (self.weights * ndtr((POINTS[:, None] - self.means) / self.deviations)).sum(axis=1)
        return np.interp(SHARES, distribution, POINTS)

    def finished(self, statistics: Statistics, path: Sequence[int], chain: Chain) -> Array:
        """Quantiles of the samples drawn along a path."""
        if chain.sampler == "ddim":  # without noise, quantiles map to quantiles
            x = np.asarray(ndtri(SHARES))
            for t, s in itertools.pairwise(path):
                a, b, _ = coefficients(statistics, chain, t, s)
                x = a * x + b * self.posterior(x, t)[0]
            return x
        frequencies = 2.0 * np.pi * np.fft.rfftfreq(POINTS.size, SPACING)
        distribution, x = ndtr(POINTS), POINTS
        for t, s in itertools.pairwise(path):
            a, b, variance = coefficients(statistics, chain, t, s)
            x = a * POINTS + b * self.posterior(POINTS, t)[0]
            if s > 0:
                masses = np.diff(np.interp(POINTS, x, distribution, left=0.0, right=1.0), prepend=0.0)
                spread = np.fft.irfft(np.fft.rfft(masses) * np.exp(-0.5 * variance * frequencies**2), POINTS.size)
                distribution = np.maximum.accumulate(np.cumsum(spread))
        return np.interp(SHARES, distribution, x)

    def squared_wasserstein(self, statistics: Statistics, path: Sequence[int], chain: Chain) -> float:
        """W2² of the samples from the data: the mean squared difference of quantiles."""
        return float(np.square(self.finished(statistics, path, chain) - self.quantiles()).mean())
