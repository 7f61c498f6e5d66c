"""Stage 8. Samples as files: a PNG grid to look at, or arrays to work with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from ..runs.writing import atomic

SIDE = 64  # pixels: in a grid, the longer side of an image has more than half as many
GAP = 128  # grey between images, which suits white and black pages


def save_samples(images: npt.NDArray[np.floating], path: str | Path, low: float = -1.0, high: float = 1.0) -> None:
    """Write samples [n, C, H, W] in [low, high] as .png (a grid, tiny ones enlarged), .npy (unchanged), or .npz (uint8).

    Arrays in .npz have channels last. Files are written atomically.
    """
    path = Path(path)
    if path.suffix != ".npy":
        check_drawable(images.shape)
    with atomic(path) as file:
        _write(images, file, path.suffix, low=low, high=high)


def check_drawable(shape: tuple[int, ...]) -> None:
    """Raise unless the shape is that of images."""
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
    """Factor by which images of this height and width are enlarged in a grid, by repeating pixels."""
    return max(1, SIDE // max(size))


def _grid(levels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Images in rows, as square as possible, with a gap of one pixel."""
    n, channels, height, width = levels.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    grid = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1, channels), GAP, dtype=np.uint8)
    for i, image in enumerate(levels):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        grid[top : top + height, left : left + width] = np.moveaxis(image, 0, -1)
    return grid[..., 0] if channels == 1 else grid
