"""Real images that come with the package: the first of each half of Fashion-MNIST and of CIFAR-10, with their labels.

The selection is the simplest that cannot be tuned: the first images of each half in its official order. They are stored
losslessly in the smallest of several encodings (npz, PNG, WebP, JPEG 2000, xz): grey images as xz-compressed .npy, each
transposed; colour images as one WebP sheet, 32 to a row.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Bytes = npt.NDArray[np.uint8]
SHEET = 32  # images in a row of a sheet


@dataclass(frozen=True)
class EmbeddedData:
    """One embedded half of a data set: the first ``count`` images, of ``shape`` [C, H, W]."""

    source: Literal["Fashion-MNIST", "CIFAR-10"]
    half: Literal["train", "test"]
    count: int
    shape: tuple[int, int, int]

    @property
    def description(self) -> str:
        """These images in a few words."""
        channels, height, width = self.shape
        name = {"train": "training", "test": "test"}[self.half]
        kind = "grey" if channels == 1 else "colour"
        return f"the first {self.count:,} {name} images of {self.source}, {width} × {height}, {kind}"


DATA = {
    "fashion-train": EmbeddedData("Fashion-MNIST", "train", 2048, (1, 28, 28)),
    "fashion-test": EmbeddedData("Fashion-MNIST", "test", 2048, (1, 28, 28)),
    "cifar-train": EmbeddedData("CIFAR-10", "train", 512, (3, 32, 32)),
    "cifar-test": EmbeddedData("CIFAR-10", "test", 512, (3, 32, 32)),
}


def data_names() -> tuple[str, ...]:
    """Names that `load_data` takes."""
    return tuple(DATA)


def describe_data() -> dict[str, str]:
    """The embedded data sets by name, each in a few words."""
    return {name: data.description for name, data in DATA.items()}


def load_data(name: str) -> Tensor:
    """Embedded images, uint8 [N, C, H, W]: see `describe_data`."""
    import torch

    channels = _find(name).shape[0]
    images = _read_grey(f"{name}-images.npy.xz") if channels == 1 else _read_colour(f"{name}-images.webp")
    return torch.from_numpy(images)


def load_labels(name: str) -> Tensor:
    """Classes 0..9 of the embedded images, uint8 [N], in the order of `load_data`."""
    import torch

    _find(name)
    return torch.from_numpy(_read_xz(f"{name}-labels.npy.xz"))


def _find(name: str) -> EmbeddedData:
    if name not in DATA:
        raise ValueError(f"There is no embedded data set {name!r:.80}; there are {', '.join(DATA)}.")
    return DATA[name]


def _read_xz(name: str) -> Bytes:
    with (files("dpstride.zoo") / "data" / name).open("rb") as compressed, lzma.open(compressed, "rb") as file:
        return cast(Bytes, np.lib.format.read_array(file))


def _read_grey(name: str) -> Bytes:
    return np.ascontiguousarray(_read_xz(name).transpose(0, 2, 1))[:, None]


def _read_colour(name: str) -> Bytes:
    from PIL import Image

    with (files("dpstride.zoo") / "data" / name).open("rb") as file, Image.open(file, formats=("WEBP",)) as sheet:
        pixels = np.asarray(sheet)
    height, width = pixels.shape[0], pixels.shape[1] // SHEET
    tiles = pixels.reshape(height // width, width, SHEET, width, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3)).reshape(-1, 3, width, width)
