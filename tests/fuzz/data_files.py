"""Good files of data, and what is done with what was read from them."""

from __future__ import annotations

import gzip
import json
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
from dpstride.statistics.data import Samples

# --- data --------------------------------------------------------------------------------------------------------------


def read_named(name: str) -> Callable[[Path], Any]:
    return lambda folder: dpstride.read_data(folder / name)


def use_data(data: Any) -> None:
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


def make_hub(folder: Path) -> None:
    """Two data sets as the hub has them: a table of images, labels and texts with a card, and lines of JSON."""
    import datasets
    import pyarrow
    import pyarrow.parquet

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    (folder / "table").mkdir()
    (folder / "lines").mkdir()
    make_images(folder)
    files = [(folder / name).read_bytes() for name in IMAGE_NAMES[:3]]
    for name in IMAGE_NAMES:
        (folder / name).unlink()
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}
    form = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    table = pyarrow.table(
        {
            "image": pyarrow.array([{"bytes": file, "path": None} for file in files], form),
            "label": pyarrow.array([0, 1, 1], pyarrow.int64()),
        }
    )
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    pyarrow.parquet.write_table(table.replace_schema_metadata(told), folder / "table" / "train.parquet")
    card = "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train.parquet\n"
    (folder / "table" / "README.md").write_text(f"---\n{card}---\nA data set.\n")
    rows = [{"x": [0.5, 1.0], "label": 0}, {"x": [0.25, -1.0], "label": 1}]
    (folder / "lines" / "train.json").write_text("\n".join(map(json.dumps, rows)))


def read_hub(folder: Path) -> Any:
    return [dpstride.read_data(f"hub:{folder / name}", labels=name == "table") for name in ("table", "lines")]


def use_hub(data: Any) -> None:
    for each in data:
        Samples.read(each, data_range="continuous" if torch.is_tensor(each) else "uint8")
