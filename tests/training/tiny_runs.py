"""Tiny images and settings for trainings of seconds."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = {"channels": (8, 8), "batch_size": 8, "warmup": 2}


def tiny_images(n: int = 64, size: int = 8, seed: int = 0) -> Tensor:
    """Squares of random place and grey: something a network can learn in a few steps."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(n, 1, size, size, dtype=torch.uint8)
    for image in images:
        i, j = torch.randint(0, size // 2, (2,), generator=generator).tolist()
        image[0, i : i + size // 2, j : j + size // 2] = int(torch.randint(128, 256, (), generator=generator))
    return images
