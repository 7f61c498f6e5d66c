"""Real images that come with the package: 2,048 training and 2,048 test images of Fashion-MNIST.

The rule of choice is the simplest that cannot be tuned: the first 2,048 of each split in its official order (their ten
classes hold 192 to 223 images each). They are kept losslessly as xz-compressed .npy, each image transposed, which of
the encodings tried (npz, PNG, lossless WebP, JPEG 2000, xz) is the smallest.
"""

from __future__ import annotations

import lzma
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

COUNT = 2048
NAMES = ("fashion-train", "fashion-test")


def data_names() -> tuple[str, ...]:
    """Names that `load_data` takes."""
    return NAMES


def load_data(name: str) -> Tensor:
    """Embedded images, uint8 [2048, 1, 28, 28]: "fashion-train" or "fashion-test"."""
    import torch

    return torch.from_numpy(_load(name, "images").transpose(0, 2, 1).copy()).unsqueeze(1)


def load_labels(name: str) -> Tensor:
    """Classes 0..9 of the embedded images, uint8 [2048], in the order of `load_data`."""
    import torch

    return torch.from_numpy(_load(name, "labels"))


def embed_data(folder: str | Path, source: str | Path | None = None) -> None:
    """Write the embedded files anew from Fashion-MNIST's own (``source``: their folder, else Debian's)."""
    from dpstride.zoo.idx import read_fashion_mnist

    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    for name in NAMES:
        split = cast(Literal["train", "test"], name.removeprefix("fashion-"))
        images, labels = read_fashion_mnist(split, source)
        arrays = {"images": images[:COUNT, 0].transpose(1, 2).contiguous(), "labels": labels[:COUNT]}
        for part, array in arrays.items():
            with lzma.open(Path(folder) / f"{name}-{part}.npy.xz", "wb", filters=filters) as file:
                np.lib.format.write_array(file, array.numpy())


def _load(name: str, part: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    if name not in NAMES:
        raise ValueError(f"There is no embedded data set {name!r}; there are {' and '.join(NAMES)}.")
    resource = files("dpstride.zoo") / "data" / f"{name}-{part}.npy.xz"
    with resource.open("rb") as compressed, lzma.open(compressed, "rb") as file:
        return cast("np.ndarray[tuple[int, ...], np.dtype[np.uint8]]", np.lib.format.read_array(file))
