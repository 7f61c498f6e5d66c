"""A few small images on any number of levels, and rough networks for them, one with a learned variance."""

from __future__ import annotations

import numpy as np
import torch

from gaussian import Array


def small_images(seed: int, levels: int = 256) -> Array:
    """Level numbers [10, 2, 3], both edge levels among them."""
    values = np.random.default_rng(seed).integers(0, levels, size=(10, 2, 3))
    values[0, 0, 0], values[1, 0, 0] = 0, levels - 1
    return values.astype(np.uint8)


def rough_network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """A smooth float64 network that is far from ideal."""
    return torch.tanh(0.8 * x + 0.02 * time.reshape(-1, 1, 1) + 0.1)


def learned_network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """`rough_network` with a fraction φ that differs from pixel to pixel and leaves [0, 1]."""
    return torch.cat([rough_network(x, time), 1.4 * torch.sin(3.0 * x)], dim=1)
