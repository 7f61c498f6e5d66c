"""Stage 8. Samples as files: a PNG grid to look at, or arrays to work with."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

GAP = 128  # grey between images, which neither a white nor a black page makes glare


def save_samples(images: npt.NDArray[np.floating], path: str | Path, low: float = -1.0, high: float = 1.0) -> None:
    """Write samples [n, C, H, W] in [low, high] as .png (one grid), .npy (as they are) or .npz (uint8, channels last).

    All or nothing: a kill leaves no half of a file.
    """
    path = Path(path)
    if path.suffix != ".npy":
        check_drawable(images.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        _write(images, temporary, low, high)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_drawable(shape: tuple[int, ...]) -> None:
    """Only what can be seen can be drawn."""
    if len(shape) != 4 or shape[1] not in (1, 3):
        raise ValueError(f"Only images [n, 1 or 3, H, W] can be drawn, not {shape}. Write them as .npy.")


def _write(images: npt.NDArray[np.floating], path: Path, low: float, high: float) -> None:
    if path.suffix == ".npy":
        np.save(path, images)
        return
    levels = np.clip(np.floor((images - low) * (255.0 / (high - low)) + 0.5), 0, 255).astype(np.uint8)
    if path.suffix == ".npz":
        np.savez_compressed(path, images=np.moveaxis(levels, 1, -1))
        return
    from PIL import Image

    Image.fromarray(_grid(levels)).save(path)


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
