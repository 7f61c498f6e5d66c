"""Networks for tests of the probes, and their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, Statistics, estimate

T, COUNT, SHAPE = 24, 11, (2, 4, 4)
PROCESS = ForwardProcess.cosine(T)
IMAGES = torch.randint(0, 256, (COUNT, *SHAPE), generator=torch.Generator().manual_seed(3)).to(torch.uint8)
LABELS = torch.arange(COUNT) % 5


def per_sample(values: Tensor, x: Tensor) -> Tensor:
    return values.to(x.dtype).reshape(-1, *[1] * (x.ndim - 1))


def honest(x: Tensor, time: Tensor) -> Tensor:
    return torch.sin(x + 0.05 * per_sample(time, x))


def conditional(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
    return torch.sin(x + 0.05 * per_sample(time, x) + 0.3 * per_sample(label, x))


def run(network: Any, data: Any = IMAGES, **options: Any) -> Statistics:
    settings = {key: options.pop(key) for key in ("dtype", "variance") if key in options}
    denoiser = Denoiser(network, PROCESS, predicts="x0", clip=None, **settings)
    return estimate(denoiser, data, progress=False, **({"batch_size": 7} | options))


# --- one time for the whole batch -------------------------------------------------------------------------------------

TAKES: dict[str, Callable[[Tensor], Any]] = {
    "first": lambda time: time[0],
    "last": lambda time: time[-1],
    "max": lambda time: time.max(),
    "min": lambda time: time.min(),
    "mean": lambda time: time.double().mean(),
    "median": lambda time: time.median(),
    "middle": lambda time: time[len(time) // 2],
    "item": lambda time: next(iter(set(time.tolist()))),
}
