"""Training data: 8-bit images in memory, with a class label each if the model is class-conditional."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FASHION_FILE = "train-images-idx3-ubyte.gz"


@dataclass(frozen=True)
class Images:
    """8-bit images, uint8 [N, C, H, W], and their classes 0, 1, …, int64 [N], or None; ``key`` names them in data files."""

    pixels: Tensor
    labels: Tensor | None = None
    key: str = "labels"

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4:
            raise ValueError(
                f"Training takes images, uint8 of shape [N, C, H, W], not {self.pixels.dtype} of shape "
                f"{tuple(self.pixels.shape)}. Give 8-bit images; they are scaled to [-1, 1] internally."
            )
        if self.labels is not None and self.labels.shape != (len(self.pixels),):
            raise ValueError(
                f"There must be one label per image, [{len(self.pixels)}], but labels have shape {tuple(self.labels.shape)}."
            )

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """One image's shape [C, H, W]."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    def split(self, held_out: int) -> tuple[Images, Images]:
        """Training and held-out images: a random split, since data are often sorted, but always the same."""
        if not 0 < held_out < len(self):
            raise ValueError(
                f"Both training and held-out images are needed, but {held_out} of {len(self)} images were to be held out. Give "
                "more images, or hold out fewer (--held-out)."
            )
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        return self.take(order[held_out:].sort().values), self.take(order[:held_out].sort().values)

    def take(self, chosen: slice | Tensor) -> Images:
        """The chosen images with their labels."""
        return Images(self.pixels[chosen], None if self.labels is None else self.labels[chosen], self.key)

    def batch(self, chosen: slice | Tensor, flipped: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Chosen images scaled to [−1, 1], the ``flipped`` ones mirrored left to right, and their labels."""
        part = self.take(chosen)
        x = part.pixels.float() / 127.5 - 1.0
        if flipped is not None:
            x = torch.where(flipped.reshape(-1, 1, 1, 1), x.flip(-1), x)
        return x, part.labels

    @property
    def fingerprint(self) -> str:
        """Digest of pixels and labels."""
        digest = hashlib.sha256(str(tuple(self.pixels.shape)).encode())
        for part in (self.pixels, self.labels):
            if part is not None:
                digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def as_images(data: Any, classes: int = 0) -> Images:
    """Check ``data``, a tensor of images or a pair (images, labels), against the number of classes (0: no labels)."""
    pixels, labels = data if isinstance(data, tuple) else (data, None)
    key = "labels"
    if isinstance(data, Images):
        pixels, labels, key = data.pixels, data.labels, data.key
    if not classes:
        return Images(pixels)
    if labels is None:
        raise ValueError(
            f"A model of {classes} classes needs a label for every image, but the data have none. Give (images, labels)."
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"Labels must be whole numbers from 0 to {classes - 1}, not {labels.dtype}.")
    images = Images(pixels, labels.long(), key)
    assert images.labels is not None
    least, most = int(images.labels.min()), int(images.labels.max())
    if least < 0 or most >= classes:
        raise ValueError(
            f"Labels must lie in 0 … {classes - 1} for {classes} classes, but they span {least} … {most}. Count classes "
            "from 0, or give their number."
        )
    return images


def read_images(source: str | None, key: str | None = None, classes: int | None = None) -> tuple[Images, int]:
    """8-bit images of DATA, read as by other verbs, and the number of classes of the labels under ``key`` (None: 0).

    Unless ``classes`` is given, every class up to the largest label must have an image.

    A ``source`` of None is Fashion-MNIST from Debian's package; a folder may also hold Fashion-MNIST's original files. Labels
    without a name (CIFAR, a folder of images per class) are called "labels".
    """
    from dpstride.statistics.data import Samples

    samples = Samples.read(_read(source, key is not None), None, "uint8")
    if key is None:
        return Images(samples.values), 0
    held = samples.conditioning
    held = {"labels": held} if isinstance(held, Tensor) else held
    if isinstance(held, Mapping) and key not in held:
        raise ValueError(
            f"--labels {key}: the data hold {', '.join(map(repr, held))}. Name the array with the class of every image."
        )
    labels = held[key] if isinstance(held, Mapping) else None
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.ndim != 1:
        found = (
            f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else "no array of numbers"
        )
        raise ValueError(
            f"--labels {key}: a class-conditional model needs one whole number per image, but found {found}. Save the class "
            "of every image as an array of integers [N], counted from 0."
        )
    if classes is None:
        present = set(labels.tolist())
        classes = max(present) + 1
        if empty := [label for label in range(min(classes, len(present) + 1)) if label not in present]:
            raise ValueError(
                f"--labels {key}: the largest label is {classes - 1}, but no image has the class {empty[0]}. Count classes "
                "from 0 without gaps, or give their number with --classes."
            )
    return Images(samples.values, labels, key), classes


def _read(source: str | None, labels: bool) -> Any:
    from dpstride import zoo
    from dpstride.statistics.files import read_data
    from dpstride.zoo.idx import read_fashion_mnist

    if source is None or (Path(source) / FASHION_FILE).is_file():
        pixels, classes = read_fashion_mnist("train", source)
        return pixels, {"labels": classes}
    if source in zoo.data_names():
        return zoo.load_data(source), {"labels": zoo.load_labels(source)}
    return read_data(source, labels=labels)
