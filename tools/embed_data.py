"""Regenerate the embedded data of the zoo from the published files.

python tools/embed_data.py fashion-train src/dpstride/zoo/data
python tools/embed_data.py cifar-train src/dpstride/zoo/data cifar-10-batches-bin
"""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpstride.zoo.data import SHEET, _find


def embed_data(name: str, folder: str | Path, source: str | Path | None = None) -> None:
    """Regenerate the embedded files of ``name`` from the published ones in ``source`` (Fashion-MNIST: default Debian's)."""
    data = _find(name)
    images, labels = (array[: data.count] for array in SOURCES[data.source](data.half, source))
    if images.shape != (data.count, *data.shape):
        raise ValueError(f"{name} needs {data.count} images of shape {data.shape}, not {images.shape}.")
    _write_xz(Path(folder) / f"{name}-labels.npy.xz", labels.astype(np.uint8))
    if data.shape[0] == 1:
        _write_xz(Path(folder) / f"{name}-images.npy.xz", images[:, 0].transpose(0, 2, 1))
    else:
        _write_colour(Path(folder) / f"{name}-images.webp", images)


def _fashion(half: Literal["train", "test"], source: str | Path | None) -> tuple[npt.NDArray[np.generic], ...]:
    from dpstride.zoo.idx import read_fashion_mnist

    return tuple(tensor.numpy() for tensor in read_fashion_mnist(half, source))


def _cifar(half: Literal["train", "test"], source: str | Path | None) -> tuple[npt.NDArray[np.generic], ...]:
    from dpstride.reading.cifar import read_cifar

    if source is None:
        raise ValueError("Give the folder of CIFAR-10's binary files; tools/cifar10.py writes it.")
    return read_cifar(Path(source) / {"train": "data_batch_1.bin", "test": "test_batch.bin"}[half])


SOURCES: dict[str, Callable[[Literal["train", "test"], str | Path | None], tuple[npt.NDArray[np.generic], ...]]] = {
    "Fashion-MNIST": _fashion,
    "CIFAR-10": _cifar,
}


def _write_xz(path: Path, array: npt.NDArray[np.generic]) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    with lzma.open(path, "wb", filters=filters) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array))


def _write_colour(path: Path, images: npt.NDArray[np.generic]) -> None:
    from PIL import Image

    count, channels, height, width = images.shape
    tiles = images.reshape(count // SHEET, SHEET, channels, height, width).transpose(0, 3, 1, 4, 2)
    sheet = Image.fromarray(np.ascontiguousarray(tiles).reshape(-1, SHEET * width, channels))
    sheet.save(path, "WEBP", lossless=True, quality=100, method=6)


if __name__ == "__main__":
    embed_data(*sys.argv[1:])
