"""Fashion-MNIST as published: gzipped IDX files, in the folder of Debian's package or any other."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dpstride.reading.limits import UnreadableFileError, check_unpacked

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
DEBIAN_PACKAGE = "dataset-fashion-mnist"
FILES = {"train": "train", "test": "t10k"}


def read_fashion_mnist(split: Literal["train", "test"], folder: str | Path | None = None) -> tuple[Tensor, Tensor]:
    """All images uint8 [N, 1, 28, 28] and labels uint8 [N] of a split (60,000 or 10,000), in their official order."""
    folder = DEBIAN_FOLDER if folder is None else Path(folder)
    if split not in FILES:
        raise ValueError(f"split must be 'train' or 'test', not {split!r}.")
    images = _read_idx(folder / f"{FILES[split]}-images-idx3-ubyte.gz", axes=3)
    labels = _read_idx(folder / f"{FILES[split]}-labels-idx1-ubyte.gz", axes=1)
    if len(images) != len(labels):
        raise UnreadableFileError(
            f"{folder}: {len(images)} images, but {len(labels)} labels. Give files of the same data set."
        )
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)


def _read_idx(path: Path, axes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """An array of unsigned bytes: magic 0, 0, 8, number of axes; sizes as big-endian 32-bit; then the bytes."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist. On Debian or Ubuntu install it with `apt install {DEBIAN_PACKAGE}`; otherwise give the "
            "folder with Fashion-MNIST's four .gz files, or your own data (--data)."
        )
    try:
        with gzip.open(path, "rb") as file:
            header = file.read(4 + 4 * axes)
            if len(header) < 4 + 4 * axes or header[:4] != bytes((0, 0, 8, axes)):
                raise UnreadableFileError(
                    f"{path} is not an IDX file of unsigned bytes with {axes} axes (it starts with {header[:4]!r})."
                )
            shape = struct.unpack(f">{axes}I", header[4:])
            count = math.prod(shape)
            check_unpacked(path, count, path.stat().st_size, "Give Fashion-MNIST's original files.")
            content = file.read(count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(f"{path}: not a whole gzip file ({error}). Download it again.") from error
    if count == 0 or len(content) != count:
        raise UnreadableFileError(f"{path}: has shape {shape}, but not as many bytes. Download it again.")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape).copy()
