"""Networks that are nearly ideal for Gaussian data, with errors in what they predict, and what they truly cost.

A network that predicts scale · (ideal output) + offset is a line in x_t in every dimension, so e = x_0 − x̂_0 depends on x_0
and one normal number, and its expectations are double integrals, here sums over evenly likely values of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, Statistics, estimate
from dpstride.statistics.artefact import DataRange
from gaussian import Array, discretised_nats, posterior_of_clean


def zero_terminal(T: int) -> ForwardProcess:
    """Linear betas rescaled so that f_T = 0 (Lin et al. 2024)."""
    f = np.sqrt(np.cumprod(1.0 - np.linspace(1e-4, 0.02, T) * (1000.0 / T)))
    f = np.append(1.0, (f - f[-1]) * f[0] / (f[0] - f[-1]))
    g = np.sqrt(1.0 - f**2)
    return ForwardProcess.from_functions(
        lambda t: f[np.rint(t * T).astype(int)], lambda t: g[np.rint(t * T).astype(int)], np.arange(T + 1) / T, "zero"
    )


def almost_zero_terminal(T: int) -> ForwardProcess:
    """The same, held above zero in the last step, as diffusers holds it, so that an eps network has a meaning there."""
    f = np.array(zero_terminal(T).f)
    f[-1] = f[-2] / 64.0
    return ForwardProcess.from_alpha_bar(f[1:] ** 2, "almost zero")


def kinked(T: int) -> ForwardProcess:
    """Betas that rise at once to five times as much, and fall at once to a third."""
    part, betas = np.arange(T) / T, np.linspace(1e-4, 0.02, T) * (1000.0 / T)
    return ForwardProcess.from_betas(np.where(part > 0.4, 5.0, 1.0) * np.where(part > 0.7, 0.3, 1.0) * betas, "kinked")


def jumping(T: int) -> ForwardProcess:
    """Betas of which one is far larger than all others."""
    betas = np.linspace(1e-4, 0.02, T) * (1000.0 / T)
    betas[T // 2] = 0.9
    return ForwardProcess.from_betas(betas, "jumping")


def thinned(T: int) -> ForwardProcess:
    """A longer grid of which the first part is kept whole, and of the rest every tenth step."""
    return ForwardProcess.cosine(4 * T).subset([*range(1, 3 * T // 4), *range(3 * T // 4, 4 * T + 1, 13), 4 * T])


LAWS = {
    "linear": ForwardProcess.linear,
    "cosine": ForwardProcess.cosine,
    "zero terminal": zero_terminal,
    "almost zero": almost_zero_terminal,
    "kinked": kinked,
    "jumping": jumping,
    "thinned": thinned,
    "rectified flow": ForwardProcess.rectified_flow,
    "vp cosine": ForwardProcess.vp_cosine,
}


@dataclass(frozen=True)
class Flawed:
    """A network on Gaussian data of these variances: what it is told to predict, wrongly by a scale and an offset."""

    process: ForwardProcess
    predicts: str
    clip: tuple[float, float] | None
    data_range: DataRange
    variances: Array
    scale: float = 0.97
    offset: float = 0.02

    def errors(self, x_0: Array, noise: Array, t: int) -> Array:
        """x_0 − x̂_0 for values of shape [..., dims]."""
        f, g = self.process.f[t], self.process.g[t]
        x = f * x_0 + g * noise
        gain, _, _ = posterior_of_clean(f, g, 0.0, self.variances)
        ideal_x0 = gain * x
        ideal_eps = g * x / (self.variances * f**2 + g**2)
        match self.predicts:
            case "eps":
                x0_hat = (x - g * (self.scale * ideal_eps + self.offset)) / f
            case "x0":
                x0_hat = self.scale * ideal_x0 + self.offset
            case "v":
                v = self.scale * (f * ideal_eps - g * ideal_x0) + self.offset
                x0_hat = (f * x - g * v) / (f**2 + g**2)
            case "flow":
                flow = self.scale * (ideal_eps - ideal_x0) + self.offset
                x0_hat = (x - g * flow) / (f + g)
        return x_0 - (x0_hat if self.clip is None else x0_hat.clip(*self.clip))

    def data(self, normal: Array) -> Array:
        """Data from normal numbers: on the lattice if it has one."""
        x_0 = normal * np.sqrt(self.variances)
        if self.data_range.levels is None:
            return x_0
        low, step = self.data_range.low, self.data_range.step
        return low + step * np.rint((x_0.clip(low, self.data_range.high) - low) / step)

    def statistics(self, x_0: Array, noise_of: Callable[[int], Array]) -> Statistics:
        """Of samples x_0 [N, dims], whose noise at t is noise_of(t)."""
        T, dims = self.process.T, x_0.shape[1]
        squared, decoder = np.zeros((2, T + 1, len(x_0)))
        levels = self.data_range.levels
        for t in range(1, T + 1):
            e = self.errors(x_0, noise_of(t), t)
            squared[t] = (e**2).sum(axis=1)
            if levels is not None:
                lattice = (self.data_range.low, self.data_range.high, levels)
                decoder[t] = discretised_nats(x_0, x_0 - e, self.process.g[t], *lattice).sum(axis=1)
        return Statistics(
            process=self.process,
            dims=dims,
            data_range=self.data_range,
            seed=0,
            model={"name": "flawed", "variance": "posterior", "predicts": self.predicts, "clip": self.clip},
            data={"samples": len(x_0)},
            squared_error=squared,
            data_square=(x_0**2).sum(axis=1),
            decoder_upper=None if levels is None else decoder,
        )

    def drawn(self, samples: int, seed: int) -> Statistics:
        """Monte Carlo statistics of so many samples."""
        rng = np.random.default_rng(seed)
        shape = (samples, self.variances.size)
        return self.statistics(self.data(rng.standard_normal(shape)), lambda t: rng.standard_normal(shape))

    def exact(self, nodes: int = 20) -> Statistics:
        """The population, as two samples that are alike: means over nodes² evenly likely pairs of x_0 and noise."""
        even = norm.ppf((np.arange(nodes) + 0.5) / nodes)
        even /= even.std()
        shape = (nodes**2, self.variances.size)
        x, noise = (np.broadcast_to(each.reshape(-1, 1), shape) for each in np.meshgrid(even, even))
        pairs = self.statistics(self.data(x), lambda t: noise)
        means = {
            name: None if (values := getattr(pairs, name)) is None else values.mean(-1, keepdims=True).repeat(2, -1)
            for name in ("squared_error", "data_square", "decoder_upper")
        }
        return replace(pairs, data={"samples": 2}, **means)


# --- with a learned variance --------------------------------------------------------------------------------------------

# v of a network, from ln(g/f) and E e² of each dimension, and from x: with the noise level, as a network's embedding of time
# lets it, long after the data have drowned; or with the error that is left, as it is trained to.
LEARNED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "noise": lambda u, error, x: 0.6 * torch.tanh(u / 3.0) - 0.3 + 0.2 * torch.cos(x),
    "error": lambda u, error, x: 0.9 * torch.tanh(torch.log(error / 0.02)) + 0.1 * torch.cos(3.0 * x),
}


def learned_statistics(model: Flawed, learned: str, monkeypatch: pytest.MonkeyPatch, nodes: int = 16) -> Statistics:
    """Statistics of every step, as `Flawed.exact`, with a learned variance: two samples that hold every pair."""
    process, pairs, dims = model.process, nodes**2, model.variances.size
    f, g, variances = (torch.from_numpy(np.array(each)) for each in (process.f, process.g, model.variances))
    origin = torch.from_numpy(np.array(process.origin))
    even = norm.ppf((np.arange(nodes) + 0.5) / nodes)
    even /= even.std()
    x, noise = (each.reshape(-1, 1) * np.ones(dims) for each in np.meshgrid(even, even))

    def network(x_t: Tensor, time: Tensor) -> Tensor:
        t = torch.searchsorted(origin, time + 1)
        f_t, g_t = f[t].reshape(-1, 1, 1), g[t].reshape(-1, 1, 1)
        of_pairs = x_t.reshape(-1, pairs, dims)
        square = variances * f_t**2 + g_t**2
        ideal_x0, ideal_eps = variances * f_t * of_pairs / square, g_t * of_pairs / square
        ideal = {"x0": ideal_x0, "eps": ideal_eps, "v": f_t * ideal_eps - g_t * ideal_x0}[model.predicts]
        v = LEARNED[learned](torch.log(g_t / f_t.clamp(min=1e-30)), variances * g_t**2 / square, of_pairs)
        return torch.cat([model.scale * ideal.flatten(1) + model.offset, v.flatten(1)], 1)

    def same_noise(seed: int, use: str, index: int, first: int, count: int, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(np.broadcast_to(noise.reshape(shape), (count, *shape)).copy())

    denoiser = Denoiser(
        network,
        process,
        predicts=model.predicts,  # type: ignore[arg-type]
        variance="learned_range",
        clip=model.clip,
        shape=(pairs * dims,),
        dtype=torch.float64,
    )
    x_0 = model.data(x) if model.clip is None else model.data(x).clip(*model.clip)
    data = torch.from_numpy(x_0.reshape(1, -1)).repeat(2, 1)
    with monkeypatch.context() as patch:
        patch.setattr("dpstride.statistics.passes.standard_normal", same_noise)
        return estimate(denoiser, data, data_range=model.data_range.describe(), progress=False, batch_size=16)
