"""Grids of samples as files: tiny images are enlarged by whole numbers, others written pixel by pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpstride.report.images import GAP, save_samples


@pytest.mark.parametrize(
    ("height", "width", "times"), [(4, 4, 16), (8, 4, 8), (28, 28, 2), (32, 32, 2), (33, 20, 1), (64, 64, 1)]
)
def test_tiny_images_are_enlarged_each_pixel_a_square(height: int, width: int, times: int, tmp_path: Path) -> None:
    images = np.random.default_rng(0).uniform(-1.0, 1.0, (5, 3, height, width))
    save_samples(images, tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as image:
        grid = np.array(image)
    tall, wide = times * height, times * width
    assert grid.shape == (2 * tall + 1, 3 * wide + 2, 3)
    assert (grid[tall] == GAP).all()
    levels = np.clip(np.floor((images + 1.0) * 127.5 + 0.5), 0, 255)
    second = grid[:tall, wide + 1 : 2 * wide + 1]
    for row in (0, times - 1):
        np.testing.assert_array_equal(np.moveaxis(second[row::times, row::times], -1, 0), levels[1])


def test_arrays_keep_their_size(tmp_path: Path) -> None:
    images = np.zeros((2, 1, 4, 4))
    for suffix, shape in ((".npy", (2, 1, 4, 4)), (".npz", (2, 4, 4, 1))):
        save_samples(images, tmp_path / f"images{suffix}")
        loaded = np.load(tmp_path / f"images{suffix}")
        assert (loaded if suffix == ".npy" else loaded["images"]).shape == shape
