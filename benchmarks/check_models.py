"""Small networks trained in seconds, each in another way, for benchmarks/check.py and tests: what `check` must tell apart.

Data are CIFAR-10's images shrunk to 3 × 4 × 4. Training is the plainest there is: t uniform, mean squared error of what
the network predicts, Adam.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess, zoo
from dpstride.checking.kinds.processes import scaled_linear

SHAPE = (3, 4, 4)
T = 200


class Perceptron(nn.Module):
    """Two hidden layers with a skip from x, the time embedded by sines of ``frequencies`` · time/span."""

    def __init__(self, span: float, width: int = 128, batch_norm: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.span = span
        dims = SHAPE[0] * SHAPE[1] * SHAPE[2]
        self.register_buffer("frequencies", 2.0 ** torch.arange(0, 8))
        norm = nn.BatchNorm1d(width) if batch_norm else nn.Identity()
        self.hidden = nn.Sequential(
            nn.Linear(dims + 16, width), nn.SiLU(), norm, nn.Dropout(dropout), nn.Linear(width, width), nn.SiLU()
        )
        self.out = nn.Linear(width + dims + 16, dims)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        phase = time.to(x.dtype)[:, None] / self.span * self.frequencies
        inputs = torch.cat([x.flatten(1), phase.sin(), phase.cos()], dim=1)
        return self.out(torch.cat([self.hidden(inputs), inputs], dim=1)).reshape(x.shape)


@dataclass(frozen=True)
class Recipe:
    """How a small network is trained, which is also how it is correctly described."""

    process: ForwardProcess
    predicts: str
    time: Callable[[int], float]  # fed at grid index i
    span: float
    scale: float = 1.0  # of data in [−1, 1], then
    shift: float = 0.0  # this added
    batch_norm: bool = False
    dropout: float = 0.0


RECIPES: dict[str, Recipe] = {
    "small-eps-linear": Recipe(ForwardProcess.linear(T), "eps", lambda i: i - 1, T),
    "small-x0-cosine": Recipe(ForwardProcess.cosine(T), "x0", lambda i: i - 1, T),
    "small-v-cosine": Recipe(ForwardProcess.cosine(T), "v", lambda i: i / T, 1.0),
    "small-flow": Recipe(ForwardProcess.rectified_flow(T), "flow", lambda i: i / T, 1.0),
    "small-eps-scaled-linear": Recipe(scaled_linear(T), "eps", lambda i: i - 1, T),
    "small-eps-unit-range": Recipe(ForwardProcess.linear(T), "eps", lambda i: i - 1, T, 0.5, 0.5),
    "small-v-batch-norm": Recipe(ForwardProcess.cosine(T), "v", lambda i: i - 1, T, batch_norm=True, dropout=0.1),
}


def shrunk(name: str) -> Tensor:
    """Embedded CIFAR-10 images as uint8 [N, 3, 4, 4]."""
    pixels = zoo.load_data(name).float()
    return nn.functional.avg_pool2d(pixels, 8).round().to(torch.uint8)


def train(recipe: Recipe, steps: int = 1500, seed: int = 0) -> Perceptron:
    """Train a `Perceptron` as the recipe says, on flipped and plain images."""
    pixels = shrunk("cifar-train")
    data = recipe.scale * (torch.cat([pixels, pixels.flip(-1)]).float() / 127.5 - 1.0) + recipe.shift
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Perceptron(recipe.span, batch_norm=recipe.batch_norm, dropout=recipe.dropout)
        optimiser = torch.optim.Adam(network.parameters(), 2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        f, g = (torch.tensor(array, dtype=torch.float32) for array in (recipe.process.f, recipe.process.g))
        fed = torch.tensor([0.0, *(float(recipe.time(i)) for i in range(1, T + 1))])
        for _ in range(steps):
            x = data[torch.randint(len(data), (128,))]
            t = torch.randint(1, T + 1, (128,))
            f_t, g_t = f[t].reshape(-1, 1, 1, 1), g[t].reshape(-1, 1, 1, 1)
            eps = torch.randn_like(x)
            target = {"eps": eps, "x0": x, "v": f_t * eps - g_t * x, "flow": eps - x}[recipe.predicts]
            loss = (network(f_t * x + g_t * eps, fed[t]) - target).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def small_denoiser(name: str, steps: int = 1500) -> tuple[Denoiser, tuple[str, int, float, float]]:
    """A small network, correctly described, and the data range that it was trained on."""
    recipe = RECIPES[name]
    low, high = recipe.shift - recipe.scale, recipe.shift + recipe.scale
    denoiser = Denoiser(
        train(recipe, steps),
        recipe.process,
        predicts=recipe.predicts,  # type: ignore[arg-type]
        clip=(low, high),
        shape=SHAPE,
        time_input=recipe.time,
        name=name,
    )
    return denoiser, ("levels", 256, low, high)
