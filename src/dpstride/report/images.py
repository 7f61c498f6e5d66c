"""Stage 8. Samples as files: a PNG grid to look at, or arrays to work with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from ..runs.writing import atomic

SIDE = 64  # pixels that the longer side of an image in a grid has at least half of
GAP = 128  # grey between images, which neither a white nor a black page makes glare


def save_samples(images: npt.NDArray[np.floating], path: str | Path, low: float = -1.0, high: float = 1.0) -> None:
    """Write samples [n, C, H, W] in [low, high] as .png (a grid, tiny ones enlarged), .npy (as is), or .npz (uint8).

    Those of .npz have channels last. All or nothing: a kill leaves no half of a file.
    """
    path = Path(path)
    if path.suffix != ".npy":
        check_drawable(images.shape)
    with atomic(path) as file:
        _write(images, file, path.suffix, low=low, high=high)


def check_drawable(shape: tuple[int, ...]) -> None:
    """Only what can be seen can be drawn."""
    if len(shape) != 4 or shape[1] not in (1, 3):
        raise ValueError(f"Only images [n, 1 or 3, H, W] can be drawn, not {shape}. Write them as .npy.")


def _write(images: npt.NDArray[np.floating], file: IO[bytes], suffix: str, low: float, high: float) -> None:
    if suffix == ".npy":
        np.save(file, images)
        return
    levels = np.clip(np.floor((images - low) * (255.0 / (high - low)) + 0.5), 0, 255).astype(np.uint8)
    if suffix == ".npz":
        np.savez_compressed(file, images=np.moveaxis(levels, 1, -1))
        return
    from PIL import Image

    times = enlargement(levels.shape[2:])
    Image.fromarray(_grid(levels.repeat(times, axis=2).repeat(times, axis=3))).save(file, format="PNG")


def enlargement(size: tuple[int, ...]) -> int:
    """Times that images of so many rows and columns are enlarged in a grid, each pixel a square, so that they can be seen."""
    return max(1, SIDE // max(size))


def _grid(levels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Images in rows, as square as can be, with a gap of one pixel."""
    n, channels, height, width = levels.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    grid = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1, channels), GAP, dtype=np.uint8)
    for i, image in enumerate(levels):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        grid[top : top + height, left : left + width] = np.moveaxis(image, 0, -1)
    return grid[..., 0] if channels == 1 else grid
