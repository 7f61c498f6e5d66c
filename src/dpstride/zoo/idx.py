"""Fashion-MNIST as it is published: IDX files, gzipped, in the folder of Debian's package or any other."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
DEBIAN_PACKAGE = "dataset-fashion-mnist"
FILES = {"train": "train", "test": "t10k"}


def read_fashion_mnist(split: Literal["train", "test"], folder: str | Path | None = None) -> tuple[Tensor, Tensor]:
    """All images uint8 [N, 1, 28, 28] and labels uint8 [N] of a split (60,000 or 10,000), in their official order."""
    folder = DEBIAN_FOLDER if folder is None else Path(folder)
    if split not in FILES:
        raise ValueError(f"split must be 'train' or 'test', not {split!r}.")
    images = _read_idx(folder / f"{FILES[split]}-images-idx3-ubyte.gz")
    labels = _read_idx(folder / f"{FILES[split]}-labels-idx1-ubyte.gz")
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)


def _read_idx(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """An array of unsigned bytes: magic 0, 0, 8, number of axes; sizes as big-endian 32-bit; then the bytes."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there. On Debian or Ubuntu install it with `apt install {DEBIAN_PACKAGE}`; else give the "
            "folder that holds Fashion-MNIST's four .gz files."
        )
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an IDX file of unsigned bytes (it starts with {content[:4]!r}).")
    axes = content[3]
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=axes, offset=4))
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape).copy()
