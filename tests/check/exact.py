"""Exact denoisers of correlated Gaussian data, trained-like networks in closed form, in every way a network can be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, zoo
from dpstride.checking.kinds.processes import scaled_linear

T = 200


def images(name: str) -> Tensor:
    """Embedded CIFAR-10 images shrunk to uint8 [512, 3, 4, 4]."""
    return torch.nn.functional.avg_pool2d(zoo.load_data(name).float(), 8).round().to(torch.uint8)


@dataclass(frozen=True)
class Truth:
    """How the network is to be used: its process, what it predicts, its time and the range of its data."""

    process: ForwardProcess
    predicts: str
    time: Callable[[int], float] = lambda i: i - 1
    low: float = -1.0
    high: float = 1.0
    sign: float = 1.0

    def network(self) -> Callable[[Tensor, Tensor], Tensor]:
        """E[x_0 given x_t] for x_0 ~ N(mean, covariance) of the images, by Bayes' rule in the covariance's eigenbasis."""
        data = self.low + images("cifar-train").double().flatten(1) * (self.high - self.low) / 255.0
        mean = data.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov(data.T))
        values = values.clamp(min=1e-9)
        fed = np.array([float(self.time(i)) for i in range(1, T + 1)])
        order = np.argsort(fed)

        def network(x: Tensor, time: Tensor) -> Tensor:
            now = time.double().numpy()
            shape = (-1, 1)
            f, g = (
                torch.from_numpy(np.interp(now, fed[order], array[1:][order])).reshape(shape)
                for array in (self.process.f, self.process.g)
            )
            flat = x.double().flatten(1)
            inner = (flat - f * mean) @ vectors
            x0_hat = mean + (inner * (f * values / (f**2 * values + g**2))) @ vectors.T
            eps = (flat - f * x0_hat) / g
            output = {"eps": eps, "x0": x0_hat, "v": f * eps - g * x0_hat, "flow": eps - x0_hat}[self.predicts]
            return (self.sign * output).reshape(x.shape).to(x.dtype)

        return network

    def denoiser(self, **wrong: Any) -> Denoiser:
        """The network as a Denoiser, correctly described but for ``wrong``."""
        options = {"predicts": self.predicts, "time_input": self.time, "clip": None, "shape": (3, 4, 4)} | wrong
        return Denoiser(self.network(), options.pop("process", self.process), **options)

    @property
    def data_range(self) -> tuple[str, int, float, float]:
        return ("levels", 256, self.low, self.high)


LINEAR, COSINE, FLOW = ForwardProcess.linear(T), ForwardProcess.cosine(T), ForwardProcess.rectified_flow(T)
TRUTHS = {
    "eps, linear": Truth(LINEAR, "eps"),
    "x0, cosine": Truth(COSINE, "x0"),
    "v, cosine, time in (0, 1]": Truth(COSINE, "v", lambda i: i / T),
    "flow": Truth(FLOW, "flow", lambda i: i / T),
    "eps, linear, data in [0, 1]": Truth(LINEAR, "eps", low=0.0, high=1.0),
    "eps, scaled linear, data in [0, 1]": Truth(scaled_linear(T), "eps", low=0.0, high=1.0),
    "eps, linear, counted from 1": Truth(LINEAR, "eps", lambda i: i),
}
