"""Good files of data, and what is done with what was read from them."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from result_files import IMAGES

import dpstride

# --- data --------------------------------------------------------------------------------------------------------------


def read_named(name: str) -> Callable[[Path], Any]:
    return lambda folder: dpstride.read_data(folder / name)


def use_data(data: Any) -> None:
    from dpstride.statistics.data import Samples

    assert Samples.read(data).fingerprint


def make_npz(folder: Path) -> None:
    np.savez(folder / "a.npz", images=IMAGES.numpy(), class_labels=np.arange(6))


def make_tensors(folder: Path) -> None:
    torch.save({"images": IMAGES, "class_labels": torch.arange(6), "scale": torch.ones(6, 2).half()}, folder / "a.pt")


def make_old_tensors(folder: Path) -> None:
    saved = {"images": IMAGES, "class_labels": torch.arange(6)}
    torch.save(saved, folder / "a.pt", _use_new_zipfile_serialization=False)


def make_safetensors(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"images": IMAGES, "class_labels": torch.arange(6)}, folder / "a.safetensors")


IMAGE_NAMES = ("a.png", "b.jpg", "c.bmp", "d.gif", "e.tif", "f.webp", "g.pgm", "h.ppm", "i.png", "j.tif")


def make_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    for name in IMAGE_NAMES:
        image = Image.fromarray(pixels if name not in ("a.png", "g.pgm") else pixels[..., 0])
        if name == "i.png":
            image = image.convert("P")
        image.save(folder / name, **({"compression": "tiff_lzw"} if name == "j.tif" else {}))


def make_idx(folder: Path) -> None:
    pixels = bytes(range(256)) * 10
    (folder / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 10, 16, 16) + pixels)
    )
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 10) + pixels[:10])
    )


def read_idx(folder: Path) -> Any:
    from dpstride.zoo.idx import read_fashion_mnist

    return read_fashion_mnist("train", folder)


def make_cifar(folder: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    (folder / "data_batch_1.bin").write_bytes(rows.tobytes())


def make_cifar_batch(folder: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    batch = {"batch_label": "training batch 1 of 5", "labels": [3, 0, 9, 1], "data": rows, "filenames": ["a.png"] * 4}
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch, 2))
