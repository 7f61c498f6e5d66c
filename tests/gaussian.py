"""Exact denoisers of Gaussian data, and the definitions that dpstride's numbers are compared with.

Nothing here calls a formula of dpstride: only f, g, the grid and the named noise are taken from it. Costs are computed
from the means and variances of the Gaussians themselves, element by element, the way a textbook defines them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, Statistics
from dpstride.statistics.artefact import DataRange
from dpstride.statistics.noise import standard_normal
from dpstride.variances.learned_optimal import factor

Array = NDArray[Any]
LN2 = math.log(2.0)


# --- Gaussians by the textbook ----------------------------------------------------------------------------------------


def gaussian_kl(mean_q: Array, variance_q: Array, mean_p: Array, variance_p: Array) -> Array:
    """KL(N(mean_q, variance_q) ‖ N(mean_p, variance_p)) in nats, elementwise."""
    return 0.5 * (np.log(variance_p / variance_q) + (variance_q + (mean_q - mean_p) ** 2) / variance_p - 1.0)


def backward_step(f_t: Any, g_t: Any, f_s: Any, g_s: Any) -> tuple[Any, Any, Any, Any]:
    """q(x_s given x_t, x_0) = N(a x_t + b x_0, variance), by Bayes' rule; and the variance of q(x_t given x_s).

    x_s is N(f_s x_0, g_s²) before x_t = f_ts x_s + noise of variance g2_ts is seen, so precisions add:
    1/variance = 1/g_s² + f_ts²/g2_ts, and the mean is variance · (f_s x_0/g_s² + f_ts x_t/g2_ts).
    """
    f_ts = f_t / f_s
    g2_ts = g_t**2 - f_ts**2 * g_s**2
    variance = 1.0 / (1.0 / g_s**2 + f_ts**2 / g2_ts)
    return variance * f_ts / g2_ts, variance * f_s / g_s**2, variance, g2_ts


def posterior_of_clean(f_t: Any, g_t: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """(gain, offset, remaining variance): x_0 given x_t is N(gain x_t + offset, remaining) when x_0 is N(mean, variance).

    Bayes again: 1/remaining = 1/variance + f²/g².
    """
    remaining = variance * g_t**2 / (variance * f_t**2 + g_t**2)
    gain = variance * f_t / (variance * f_t**2 + g_t**2)
    return gain, mean - gain * f_t * mean, remaining


def entropy(variance: Any, dims: int = 1) -> float:
    """Of N(·, variance I), in nats."""
    return 0.5 * dims * math.log(2.0 * math.pi * math.e * variance)


# --- denoisers --------------------------------------------------------------------------------------------------------


class GaussianNetwork:
    """The ideal network for x_0 ~ N(mean, diag variance), predicting what it is asked to; v is constant if given.

    It is fed what any network is fed: x_t in the model's own coordinates and a time. ``calls`` counts its passes.
    """

    def __init__(self, process: ForwardProcess, mean: Any, variance: Any, predicts: str = "x0", v: Any = None) -> None:
        self.process, self.predicts, self.calls = process, predicts, 0
        self.mean, self.variance = torch.as_tensor(mean).double(), torch.as_tensor(variance).double()
        self.v = None if v is None else torch.as_tensor(v).double()

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        self.calls += 1
        f, g = (a.reshape(-1, *[1] * (x.ndim - 1)) for a in self.coefficients(time))
        gain, offset, _ = posterior_of_clean(f, g, self.mean, self.variance)
        x0_hat = gain * x + offset
        eps = (x - f * x0_hat) / g
        output = {"x0": x0_hat, "eps": eps, "v": f * eps - g * x0_hat, "flow": eps - x0_hat}[self.predicts]
        return output if self.v is None else torch.cat([output, self.v.expand_as(output)], dim=1)

    def coefficients(self, time: Tensor) -> tuple[Tensor, Tensor]:
        """f and g of the x that the network sees."""
        if time.is_floating_point():  # its own time: evaluate the process's functions
            times = time.double().numpy()
            scale = np.sqrt(1.0 + times**2) if self.process.input_scale[-1] != 1.0 else 1.0
            assert self.process.f_function is not None
            assert self.process.g_function is not None
            f, g = np.asarray(self.process.f_function(times)), np.asarray(self.process.g_function(times))
            return torch.as_tensor(f * scale), torch.as_tensor(g * scale)
        index = time.numpy() + 1
        scale = self.process.input_scale[index]
        return torch.as_tensor(self.process.f[index] * scale), torch.as_tensor(self.process.g[index] * scale)


def gaussian_denoiser(
    process: ForwardProcess, mean: Any, variance: Any, predicts: Any = "x0", v: Any = None, **options: Any
) -> Denoiser:
    """`GaussianNetwork` as a Denoiser without clipping."""
    network = GaussianNetwork(process, mean, variance, predicts, v)
    learned = {} if v is None else {"variance": "learned_range"}
    settings = {"clip": None, "shape": tuple(network.mean.shape), **learned, **options}
    return Denoiser(network, process, predicts=predicts, **settings)


class MixtureNetwork:
    """The ideal network (x0) for a mixture of N(means[j], variance I) with equal weights, means [J, dims]."""

    def __init__(self, process: ForwardProcess, means: Any, variance: float) -> None:
        self.f, self.g = torch.tensor(process.f), torch.tensor(process.g)
        self.means, self.variance, self.calls = torch.as_tensor(means).double(), variance, 0

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        self.calls += 1
        f, g = self.f[time + 1][:, None, None], self.g[time + 1][:, None, None]
        flat = x.flatten(1)[:, None]  # [B, 1, dims] against means [J, dims]
        gain, _, _ = posterior_of_clean(f, g, 0.0, self.variance)
        means = gain * flat + (1.0 - gain * f) * self.means
        log_weight = -0.5 * ((flat - f * self.means) ** 2 / (f**2 * self.variance + g**2)).sum(2, keepdim=True)
        return (torch.softmax(log_weight, dim=1) * means).sum(1).reshape(x.shape)


def mixture_data(means: Any, variance: float, count: int, seed: int) -> Array:
    """Samples [count, dims] of that mixture."""
    rng = np.random.default_rng(seed)
    chosen = np.asarray(means, dtype=np.float64)[rng.integers(len(means), size=count)]
    return chosen + math.sqrt(variance) * rng.standard_normal(chosen.shape)


def ideal_statistics(process: ForwardProcess, mean: Any, variance: Any) -> Statistics:
    """What infinitely many samples of N(mean, diag variance) would give, as statistics of one 'sample'.

    E e² is the remaining variance of x_0 given x_t, and E x_0² = variance + mean².
    """
    mean, variance = np.broadcast_arrays(np.atleast_1d(mean).astype(float), np.atleast_1d(variance).astype(float))
    squared_error = np.zeros((process.T + 1, 1))
    for t in range(1, process.T + 1):
        squared_error[t] = posterior_of_clean(process.f[t], process.g[t], mean, variance)[2].sum()
    return Statistics(
        process=process,
        dims=mean.size,
        data_range=DataRange.parse("continuous"),
        seed=0,
        model={"name": "ideal", "variance": "posterior", "clip": None},
        data={"samples": 1},
        squared_error=squared_error,
        data_square=np.array([(variance + mean**2).sum()]),
    )


# --- the negative ELBO of a path, by its definition -------------------------------------------------------------------


def discretised_nats(x_0: Array, mean: Array, sigma: Any, low: float, high: float, levels: int) -> Array:
    """−ln P(level of x_0) under N(mean, sigma²), each level owning half a step either side, the end bins open."""
    half = 0.5 * (high - low) / (levels - 1)
    first, last = np.isclose(x_0, low), np.isclose(x_0, high)
    # By symmetry the bin lies from |x_0 − mean| − half to |x_0 − mean| + half above the mean.
    lower, upper = (norm.logsf((np.abs(x_0 - mean) + side * half) / sigma) for side in (-1.0, 1.0))
    inside = lower + np.log(-np.expm1(upper - lower))
    # An end bin is all that lies beyond its inner edge.
    beyond = norm.logsf(np.where(first, mean - x_0 - half, x_0 - half - mean) / sigma)
    return -np.where(first | last, beyond, inside)


def tanh_discretised_nats(x_0: Array, mean: Array, sigma: Any, low: float, high: float, levels: int) -> Array:
    """The same with improved-diffusion's approximation of the normal CDF and its floor of 1e-12."""

    def cdf(z: Array) -> Array:
        return 0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3)))

    half = 0.5 * (high - low) / (levels - 1)
    above, below = cdf((x_0 - mean + half) / sigma), cdf((x_0 - mean - half) / sigma)
    first, last = np.isclose(x_0, low), np.isclose(x_0, high)
    probability = np.where(first, above, np.where(last, 1.0 - below, above - below))
    return -np.log(np.maximum(probability, 1e-12))


class DirectChain:
    """The negative ELBO of any path for given data and noise: one prediction per t, then only definitions.

    Rows are samples; ``x_0`` are values (levels already scaled). Every method returns nats per sample.
    """

    def __init__(self, denoiser: Denoiser, x_0: Array, data_range: object = "continuous", seed: int = 0) -> None:
        process = denoiser.process
        self.process, self.x_0, self.range = process, np.asarray(x_0, dtype=np.float64), DataRange.parse(data_range)
        self.x_t: dict[int, Array] = {}
        self.x0_hat: dict[int, Array] = {}
        self.fraction: dict[int, Array | None] = {}
        for t in range(1, process.T + 1):
            noise = standard_normal(seed, "forward", int(process.origin[t]), 0, len(x_0), x_0.shape[1:]).numpy()
            self.x_t[t] = process.f[t] * self.x_0 + process.g[t] * noise
            prediction = denoiser(torch.from_numpy(self.x_t[t]), t)
            self.x0_hat[t] = prediction.x0_hat.numpy()
            self.fraction[t] = None if prediction.fraction is None else prediction.fraction.numpy()

    @property
    def dims(self) -> int:
        return int(np.prod(self.x_0.shape[1:]))

    def mean_squared_error(self, t: int) -> float:
        """m = E Σ e² / dims."""
        return float(((self.x_0 - self.x0_hat[t]) ** 2).mean())

    def step(self, t: int, s: int, variance: str, fitted: Any = None) -> Array:
        """KL(q(x_s given x_t, x_0) ‖ p(x_s given x_t)); fitted numbers are a Schedule's or a table's, else the best here."""
        f, g = self.process.f, self.process.g
        a, b, q_variance, g2_ts = backward_step(f[t], g[t], f[s], g[s])
        match variance:
            case "posterior":
                p_variance = q_variance
            case "upper":
                p_variance = g2_ts
            case "learned_range" | "learned_optimal":
                phi = self.fraction[t]
                p_variance = np.exp(phi * np.log(g2_ts) + (1.0 - phi) * np.log(q_variance))
                if variance == "learned_optimal":
                    Delta = (f[s] / g[s]) ** 2 - (f[t] / g[t]) ** 2
                    squares = q_variance + b**2 * (self.x_0 - self.x0_hat[t]) ** 2
                    best = (squares / p_variance).mean()
                    p_variance *= best if fitted is None else factor(fitted, t, np.log((g[t] / g[s]) ** 2), Delta)
            case "optimal":
                # E (x_s − mean of p)² given x_t: the variance of q plus the expected square of the means' difference.
                m = self.mean_squared_error(t) if fitted is None else float(fitted.mean_squared_error[t])
                p_variance = q_variance + b**2 * m
        q_mean, p_mean = a * self.x_t[t] + b * self.x_0, a * self.x_t[t] + b * self.x0_hat[t]
        return self.per_sample(gaussian_kl(q_mean, q_variance, p_mean, p_variance))

    def decoder(
        self, path: Sequence[int], decoder: str, variance: str, fitted: float | None = None, cdf: str = "exact"
    ) -> Array:
        """−ln p(x_0 given x_t); `optimal` takes the fitted variance."""
        f, g = self.process.f, self.process.g
        t = path[-2]
        sigma2: Any = g[t] ** 2
        if decoder == "first_pair" and self.process.origin[t] == 1:
            sigma2 = self.process.first_pair_variance
        if decoder == "optimal":
            sigma2 = fitted
        if decoder == "respaced":
            above = path[-3]
            sigma2 = backward_step(f[above], g[above], f[t], g[t])[2]
            if variance in ("learned_range", "learned_optimal"):
                phi = self.fraction[t]
                sigma2 = np.exp(phi * np.log(g[t] ** 2) + (1.0 - phi) * np.log(sigma2))
        if self.range.levels is None:
            return self.per_sample(-norm.logpdf(self.x_0, self.x0_hat[t], np.sqrt(sigma2)))
        nats = discretised_nats if cdf == "exact" else tanh_discretised_nats
        lattice = (self.range.low, self.range.high, self.range.levels)
        return self.per_sample(nats(self.x_0, self.x0_hat[t], np.sqrt(sigma2), *lattice))

    def prior(self, t: int) -> Array:
        """KL(q(x_t given x_0) ‖ N(0, I))."""
        f, g = self.process.f[t], self.process.g[t]
        return self.per_sample(gaussian_kl(f * self.x_0, g**2, 0.0, 1.0))

    def total(self, path: Sequence[int], variance: str, decoder: str, fitted: Any = None, cdf: str = "exact") -> Array:
        """Negative ELBO of each sample in nats; ``fitted`` is a Schedule's or a table's, for `optimal`."""
        sigma2 = None if fitted is None else fitted.decoder_variance
        steps = [self.step(t, s, variance, fitted) for t, s in itertools.pairwise(path[:-1])]
        last = self.decoder(path, decoder, variance, None if sigma2 is None else float(sigma2[path[-2]]), cdf)
        return sum(steps, last + self.prior(path[0]))

    def bpd(self, path: Sequence[int], variance: str, decoder: str, fitted: Any = None, cdf: str = "exact") -> float:
        """Mean of `total` in bits per dimension."""
        return float(self.total(path, variance, decoder, fitted, cdf).mean()) / (self.dims * LN2)

    def per_sample(self, nats: Array) -> Array:
        return np.broadcast_to(nats, self.x_0.shape).reshape(len(self.x_0), -1).sum(1)


def paths_of(T: int, K: int) -> Iterator[tuple[int, ...]]:
    """Every path of K steps from T to 0."""
    return ((T, *inner[::-1], 0) for inner in itertools.combinations(range(1, T), K - 1))


def random_path(rng: np.random.Generator, T: int, K: int) -> tuple[int, ...]:
    """A path of K steps from T to 0."""
    inner = rng.choice(np.arange(1, T), size=K - 1, replace=False)
    return (T, *sorted(map(int, inner), reverse=True), 0)
