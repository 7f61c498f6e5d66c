"""A network that is run faster is the same network: what it says, what it is called, and what it is recorded as."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess, estimate
from dpstride.compiling import OFTEN

PROCESS = ForwardProcess.linear(20)
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")


class Small(nn.Module):
    """Two convolutions and the time; it counts how often Python runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        torch.manual_seed(0)
        self.inner, self.outer = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.runs += 1
        output: Tensor = self.outer(torch.nn.functional.silu(self.inner(x) + time.to(x).reshape(-1, 1, 1, 1) / 20.0))
        return output


def passes(denoiser: Denoiser, count: int) -> Tensor:
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return torch.stack([denoiser(x, 1 + number % 20).x0_hat for number in range(count)])


@needs_compiler
def test_a_compiled_network_says_the_same_and_is_the_same() -> None:
    plain = Denoiser(Small(), PROCESS)
    fast = plain.faster(compile=True)
    assert fast.describe() == plain.describe()
    count = OFTEN + 5
    assert torch.allclose(passes(fast, count), passes(plain, count), rtol=1e-5, atol=1e-6)
    assert fast.describe() == plain.describe()


@needs_compiler
def test_only_shapes_that_come_often_are_compiled() -> None:
    network = Small()
    fast = Denoiser(network, PROCESS).faster(compile=True)
    passes(fast, OFTEN)
    assert network.runs == OFTEN  # as it is
    passes(fast, 10)
    assert network.runs == OFTEN  # compiled: Python is not asked any more
    fast(torch.zeros(3, 1, 8, 8), 5)
    assert network.runs == OFTEN + 1


def test_without_a_compiler_the_remedy_is_said(tmp_path: Path) -> None:
    """In a process of its own, since torch looks for a compiler once."""
    code = "import test_compiling as t; t.passes(t.Denoiser(t.Small(), t.PROCESS).faster(compile=True), t.OFTEN + 1)"
    environment = os.environ | {"CXX": "/nowhere/c++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, capture_output=True, text=True
    )
    assert "ValueError: torch.compile could not compile the network" in found.stderr
    assert "no --compile" in found.stderr


def test_autocast_lowers_the_precision_and_is_recorded() -> None:
    plain = Denoiser(Small(), PROCESS)
    low = plain.faster(autocast=torch.bfloat16)
    exact, rounded = passes(plain, 3), passes(low, 3)
    assert not torch.equal(exact, rounded)
    assert torch.allclose(exact, rounded, atol=0.1)
    assert low.describe() == plain.describe() | {"autocast": "torch.bfloat16"}
    assert low.on_grid(PROCESS.subset([5, 10, 20])).autocast is torch.bfloat16
    with pytest.raises(ValueError, match="bfloat16"):
        plain.faster(autocast=torch.float64)


def test_statistics_of_another_precision_are_not_gone_on_with(tmp_path: Path) -> None:
    plain = Denoiser(Small(), PROCESS)
    data = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    estimate(plain, data, checkpoint=tmp_path / "s.safetensors", progress=False)
    with pytest.raises(ValueError, match=r"s\.safetensors"):
        estimate(plain.faster(autocast=torch.bfloat16), data, checkpoint=tmp_path / "s.safetensors", progress=False)
