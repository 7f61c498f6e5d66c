"""Models and data of every kind of option, for tests of bits/dim."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import torch

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    Statistics,
    bits_per_dim,
    estimate,
)
from gaussian import Array

VARIANCES = ("posterior", "upper", "learned_range", "optimal", "learned_optimal")
DECODERS = ("upper", "first_pair", "respaced", "optimal")


class Rough:
    """A smooth float64 network that is far from ideal, with a fraction φ in 0.5 ± ``swing`` that varies by pixel."""

    def __init__(self, low: float, high: float, swing: float = 0.5) -> None:
        self.middle, self.half, self.swing = 0.5 * (low + high), 0.5 * (high - low), swing

    def __call__(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        clock = time.double().reshape(-1, *[1] * (x.ndim - 1))
        x0_hat = self.middle + self.half * torch.tanh(0.9 * (x - self.middle) / self.half + 0.05 * torch.sin(clock))
        return torch.cat([x0_hat, 2.0 * self.swing * torch.sin(3.0 * x + clock)], dim=1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with data: ``values`` as given to dpstride, ``x_0`` as they are meant."""

    denoiser: Denoiser
    values: Array
    x_0: Array
    data_range: Any

    def statistics(self, seed: int) -> Statistics:
        return estimate(self.denoiser, self.values, seed=seed, data_range=self.data_range, progress=False)

    def direct(self, schedule: Schedule, seed: int, **options: Any) -> Any:
        return bits_per_dim(self.denoiser, self.values, schedule, seed=seed, data_range=self.data_range, **options)


def make_case(process: ForwardProcess, data_range: Any, samples: int = 9, swing: float = 0.5, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    shape = (samples, 1, 4)
    if data_range == "continuous":
        values = x_0 = rng.normal(0.2, 0.6, size=shape)
        low, high, clip = -1.0, 1.0, None
    else:
        levels, low, high = (256, -1.0, 1.0) if data_range == "uint8" else data_range[1:]
        values = rng.integers(0, levels, size=shape).astype(np.uint8)
        values[0, 0, :2] = 0, levels - 1  # both edges
        x_0, clip = low + values * (high - low) / (levels - 1), (low, high)
    time_input: Any = "time" if process.kind == "continuous" else "index0"
    denoiser = Denoiser(
        Rough(low, high, swing), process, predicts="x0", variance="learned_range", clip=clip, time_input=time_input
    )
    return Case(denoiser, values, x_0, data_range)


VE = ForwardProcess.ve(np.concatenate([[0.0], np.geomspace(0.05, 20.0, 10)]))
CASES = {
    "uint8, linear": make_case(ForwardProcess.linear(12), "uint8"),
    "uint8, subset of cosine": make_case(ForwardProcess.cosine(60).subset([1, 2, 3, 7, 20, 21, 45, 59, 60]), "uint8"),
    "uint8, subset without step 1": make_case(ForwardProcess.linear(50).subset([3, 4, 11, 30, 50]), "uint8"),
    "uint8, rectified flow": make_case(ForwardProcess.rectified_flow(10), "uint8"),
    "5 levels, linear": make_case(ForwardProcess.linear(9), ("levels", 5, 0.0, 2.0)),
    "2 levels, sub-VP": make_case(ForwardProcess.sub_vp(8), ("levels", 2, -1.0, 1.0)),
    "continuous, linear": make_case(ForwardProcess.linear(10), "continuous"),
    "continuous, rectified flow": make_case(ForwardProcess.rectified_flow(10), "continuous"),
    "continuous, VE": make_case(VE, "continuous"),
    "continuous, wide fractions": make_case(ForwardProcess.cosine(10), "continuous", swing=2.5),
    "uint8, wide fractions": make_case(ForwardProcess.linear(10), "uint8", swing=1.5),
}


def options_of(case: Case) -> list[tuple[str, str]]:
    decoders = [d for d in DECODERS if d != "first_pair" or case.denoiser.process.kind == "discrete"]
    return list(itertools.product(VARIANCES, decoders))
