"""A smooth little network with a learned or fixed variance, data for it, and statistics of both, for several test files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess, Statistics, estimate
from dpstride.statistics import artefact

SHAPE = (2, 3)
DIMS = 6
IMAGES = torch.randint(0, 256, (37, *SHAPE), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
IMAGES[:, 0, 0] = torch.where(torch.arange(37) % 2 == 0, 0, 255).to(torch.uint8)  # both edges, often
PROCESS = ForwardProcess.linear(9)
KINDS = {"uint8": (IMAGES, "uint8"), "continuous": (IMAGES.double() / 100 - 1, "continuous")}


class Net(nn.Module):
    """A smooth network with a weight; ``calls`` lists the t of each batch, and ``before`` sees them first."""

    def __init__(self, learned: bool = False, dtype: torch.dtype = torch.float64, spread: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.7, dtype=dtype))
        self.learned, self.spread = learned, spread
        self.calls: list[list[int]] = []
        self.before: Callable[[list[int]], None] = lambda steps: None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        self.calls.append((time + 1).tolist())
        self.before(self.calls[-1])
        phase = x + 0.1 * time.to(x.dtype).reshape(-1, *[1] * (x.ndim - 1))
        out = self.weight * torch.sin(phase)
        return torch.cat([out, self.spread * torch.cos(3 * phase)], dim=1) if self.learned else out


def denoiser_of(learned: bool = False, process: ForwardProcess = PROCESS, **options: Any) -> Denoiser:
    net = Net(learned, options.pop("network_dtype", torch.float64), options.pop("spread", 1.0))
    options = {"predicts": "x0", "clip": None, "variance": "learned_range" if learned else "posterior"} | options
    return Denoiser(net, process, **options)


def run(kind: str = "uint8", learned: bool = False, **options: Any) -> Statistics:
    data, data_range = KINDS[kind]
    denoiser = options.pop("denoiser", None) or denoiser_of(learned, options.pop("process", PROCESS))
    return estimate(denoiser, options.pop("data", data), data_range=data_range, progress=False, **options)


def fields_of(statistics: Statistics) -> dict[str, Any]:
    """Every array of the statistics by name."""
    tensors, metadata = artefact.to_tensors(statistics)
    return tensors | {"metadata": json.dumps(metadata, sort_keys=True)}


def assert_identical(found: Statistics, expected: Statistics) -> None:
    ours, theirs = fields_of(found), fields_of(expected)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name, strict=True)


def tiny_process(objective: str) -> ForwardProcess:
    """A short noise law of the kind that a training objective takes."""
    return {
        "simple": ForwardProcess.linear(20),
        "hybrid": ForwardProcess.cosine(20),
        "vlb": ForwardProcess.cosine(20),
        "continuous": ForwardProcess.vp_cosine(20),
        "flow": ForwardProcess.rectified_flow(20),
    }[objective]
