"""Models that are edited between two runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess, Statistics, estimate
from dpstride.runs import progress

T, SHAPE = 12, (3, 4)
PROCESS = ForwardProcess.linear(T)
IMAGES = torch.randint(0, 256, (9, *SHAPE), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


class Net(nn.Module):
    """Three layers that a test may edit in any way."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inward, self.outward = nn.Linear(4, 16), nn.Linear(16, 4)
        self.activation: nn.Module = nn.SiLU()
        self.gain = 1.0
        self.register_buffer("table", torch.ones(4), persistent=False)
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.activation(self.inward(x) + time[:, None, None] / T)
        return self.gain * self.outward(hidden) * self.table


def edited(change: Callable[[Net], object]) -> Net:
    net = Net()
    change(net)
    return net


def denoiser_of(network: Any, **options: Any) -> Denoiser:
    return Denoiser(network, PROCESS, **({"predicts": "x0", "clip": None, "shape": SHAPE} | options))


def run(denoiser: Denoiser, **options: Any) -> Statistics:
    return estimate(denoiser, IMAGES, progress=False, **({"batch_size": 4} | options))


class StopError(Exception):
    pass


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Callable[[Denoiser, Path], None]:
    """Begins an estimate and stops it after its first unit."""

    def begin(denoiser: Denoiser, path: Path) -> None:
        write = progress.Progress.write

        def writes(self: progress.Progress, key: str, arrays: Any) -> None:
            write(self, key, arrays)
            raise StopError

        with monkeypatch.context() as patch:
            patch.setattr(progress.Progress, "write", writes)
            with pytest.raises(StopError):
                run(denoiser, checkpoint=path)
        assert path.with_name(path.name + ".progress").is_dir()

    return begin
