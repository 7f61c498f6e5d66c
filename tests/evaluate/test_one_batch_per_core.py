"""Samples and direct scores pass independent batches one per core: the same bits whatever the number of cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import dpstride
from dpstride import Denoiser, ForwardProcess, even_stride

PROCESS = ForwardProcess.linear(40)
SCHEDULE = even_stride(PROCESS, 5)
IMAGES = torch.randint(0, 256, (22, 1, 8, 8), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


class Convolutions(torch.nn.Module):
    """A few layers of random weights, which remembers the threads that called it."""

    stateless = True

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(16, 1, 3, padding=1)
        )
        self.threads: set[int] = set()
        self.fails = False

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        self.threads.add(threading.get_ident())
        if self.fails and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("out of order")
        output: Tensor = self.layers(x)
        return output


@pytest.fixture
def cores() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_samples_and_scores_are_the_same_on_one_core_and_on_three(cores: None) -> None:
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        network = Convolutions()
        denoiser = Denoiser(network, PROCESS, shape=(1, 8, 8))
        images = dpstride.sample(denoiser, SCHEDULE, 22, batch_size=6)
        assert (len(network.threads) > 1) == (threads > 1)
        scores = dpstride.bits_per_dim(denoiser, IMAGES, SCHEDULE, batch_size=6)
        found.append((images, scores))
        assert torch.get_num_threads() == threads
    (images, scores), (others, more) = found
    assert images.shape == (22, 1, 8, 8)
    assert torch.equal(images, others)
    assert scores == more


def test_an_error_in_one_thread_ends_the_work(cores: None) -> None:
    torch.set_num_threads(2)
    network = Convolutions()
    denoiser = Denoiser(network, PROCESS, shape=(1, 8, 8))
    network.fails = True
    with pytest.raises(RuntimeError, match="out of order"):
        dpstride.sample(denoiser, SCHEDULE, 22, batch_size=6)
