"""Small processes and networks for tests of the denoiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpstride import ForwardProcess

SIGMAS = np.concatenate([[0.0], np.geomspace(0.01, 50.0, 12)])
PROCESSES = {
    "linear": ForwardProcess.linear(20),
    "cosine": ForwardProcess.cosine(20),
    "sub_vp": ForwardProcess.sub_vp(12),
    "vp_cosine": ForwardProcess.vp_cosine(12),
    "rectified_flow": ForwardProcess.rectified_flow(12),
    "ve": ForwardProcess.ve(SIGMAS),
}
LINEAR = PROCESSES["linear"]


def zeros(x: Tensor, time: Tensor) -> Tensor:
    return torch.zeros_like(x)


class Recorder:
    """A network that keeps what it was called with and predicts 0."""

    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, Tensor, tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, x: Tensor, time: Tensor, *extra: Any, **named: Any) -> Tensor:
        self.calls.append((x, time, extra, named))
        return torch.zeros_like(x)


class Small(nn.Module):
    """A real network with parameters in some precision: x W + time w, and dropout."""

    def __init__(self, width: int = 3, out: int | None = None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(width, out or width, dtype=dtype)
        self.dropout = nn.Dropout(0.5)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        self.seen.append(x.dtype)
        return self.dropout(self.linear(x) + (time.to(x.dtype) / 100)[:, None])
