"""CIFAR's published forms, written from the embedded images: binary rows, Python 2's pickles, folders of either."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from dpstride import zoo

IMAGES, LABELS = zoo.load_data("cifar-train")[:50], zoo.load_labels("cifar-train")[:50].long()
ROWS = IMAGES.reshape(-1, 3072).numpy()
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def binary(rows: Any = ROWS, labels: Any = LABELS) -> bytes:
    return np.column_stack([np.asarray(labels, dtype=np.uint8), rows]).tobytes()


class Python2:
    """Protocol 2 as Python 2's cPickle writes it: strings are bytes, and everything but numbers is put into the memo."""

    def __init__(self) -> None:
        self.count = 0

    def put(self) -> bytes:
        self.count += 1
        return b"q" + bytes([self.count]) if self.count < 256 else b"r" + struct.pack("<I", self.count)

    def dump(self, value: Any) -> bytes:
        return b"\x80\x02" + self.write(value) + b"."

    def write(self, value: Any) -> bytes:
        match value:
            case str():
                return b"U" + bytes([len(value)]) + value.encode("latin-1") + self.put()
            case int():
                return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)
            case list():
                return b"]" + self.put() + b"(" + b"".join(map(self.write, value)) + b"e"
            case dict():
                head = b"}" + self.put() + b"("
                return head + b"".join(self.write(key) + self.write(each) for key, each in value.items()) + b"u"
            case np.ndarray():
                return self.array(value)
        raise TypeError(value)

    def array(self, array: np.ndarray) -> bytes:
        made = b"cnumpy.core.multiarray\n_reconstruct\n" + self.put() + b"cnumpy\nndarray\n" + self.put()
        made += b"K\x00\x85" + self.put() + self.write("b") + b"\x87" + self.put() + b"R" + self.put()
        shape = b"(K\x01" + b"".join(map(self.write, array.shape)) + b"\x86" + self.put()
        kind = b"cnumpy\ndtype\n" + self.put() + self.write("u1") + b"K\x00K\x01\x87" + self.put() + b"R" + self.put()
        kind += b"(K\x03" + self.write("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t" + self.put() + b"b"
        raw = b"T" + struct.pack("<I", array.nbytes) + array.tobytes() + self.put()
        return made + shape + kind + b"\x89" + raw + b"t" + self.put() + b"b"


def batch(**changes: Any) -> dict[str, Any]:
    names = [f"{CLASSES[label]}_s_{i:06}.png" for i, label in enumerate(LABELS.tolist())]
    whole = {"batch_label": "training batch 1 of 5", "labels": LABELS.tolist(), "data": ROWS, "filenames": names}
    return {key: value for key, value in (whole | changes).items() if value is not None}


def with_bytes(saved: dict[str, Any]) -> dict[bytes, Any]:
    """As loaded with encoding="bytes", which is how the data set's own page says to load it."""
    return {
        key.encode(): value.encode() if isinstance(value, str) else [each.encode() for each in value]
        if key == "filenames" else value for key, value in saved.items()
    }  # fmt: skip


def write_folder(folder: Path, suffix: str, parts: int = 5) -> Path:
    folder.mkdir()
    for number in range(parts):
        of = slice(8 * number, 8 * number + 8)
        content = (
            binary(ROWS[of], LABELS[of]) if suffix else Python2().dump(batch(data=ROWS[of], labels=LABELS[of].tolist()))
        )
        (folder / f"data_batch_{number + 1}{suffix}").write_bytes(content)
    rows, labels = ROWS[40:], LABELS[40:].tolist()
    content = binary(rows, labels) if suffix else Python2().dump(batch(data=rows, labels=labels))
    (folder / f"test_batch{suffix}").write_bytes(content)
    (folder / "readme.html").write_text("<html>")
    (folder / ("batches.meta.txt" if suffix else "batches.meta")).write_text("\n".join(CLASSES))
    return folder
