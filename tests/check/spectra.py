"""A small conditional diffusion model of spectra, trained in seconds: vectors of numbers, each with its labels."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess

BINS, LABELS = 48, 3
PROCESS = ForwardProcess.cosine(200)


def spectra(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Standardised spectra [count, BINS] of a slope and one line, and what they are conditioned on [count, LABELS]."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.rand(count, LABELS, generator=generator) * 2.0 - 1.0
    slope, place, depth = (label[:, None] for label in labels.T)
    at = torch.linspace(-1.0, 1.0, BINS)
    width = 0.05 + 0.1 * torch.rand(count, 1, generator=generator)  # not among the labels
    line = torch.exp(-0.5 * ((at - 0.7 * place) / width) ** 2)
    noise = 0.02 * torch.randn(count, BINS, generator=generator)
    return 0.8 * slope * at - (1.5 + depth) * line + 0.3 + noise, labels


class Perceptron(nn.Module):
    """Two hidden layers on the spectrum, its labels and sines of the time."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(BINS + LABELS + 16, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, BINS),
        )

    def forward(self, x: Tensor, time: Tensor, labels: Tensor) -> Tensor:
        phase = time.to(x.dtype)[:, None] / PROCESS.T * 2.0 ** torch.arange(8)
        return self.layers(torch.cat([x, labels.to(x.dtype), phase.sin(), phase.cos()], dim=1))


@cache
def spectrum_denoiser(predicts: str, steps: int = 1500) -> Denoiser:
    """The model, trained on 4,096 spectra and described as it was trained."""
    data, labels = spectra(4096, seed=0)
    f, g = (torch.tensor(array, dtype=torch.float32) for array in (PROCESS.f, PROCESS.g))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Perceptron()
        optimiser = torch.optim.Adam(network.parameters(), 2e-3)
        for _ in range(steps):
            chosen = torch.randint(len(data), (128,))
            t = torch.randint(1, PROCESS.T + 1, (128,))
            x, eps = data[chosen], torch.randn(128, BINS)
            target = eps if predicts == "eps" else x
            out = network(f[t][:, None] * x + g[t][:, None] * eps, t - 1, labels[chosen])
            loss = (out - target).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    options: dict[str, Any] = {"predicts": predicts, "clip": None, "shape": (BINS,)}
    return Denoiser(network.eval(), PROCESS, **options)
