"""Stage 0. CIFAR-10 and CIFAR-100 as published: the binary files and the Python batches, and folders of them.

A row of a binary file is the label (CIFAR-100: the coarse label, then the fine one) and an image of 32 × 32 pixels as its
red, green and blue planes. A Python batch is a pickle of a dict: ``data`` has the same planes [N, 3072], ``labels`` (CIFAR-100:
``fine_labels``) a label for each. Sources: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .array_pickles import read_array_pickle
from .limits import UnreadableFileError

PIXELS = 3 * 32 * 32
CLASSES = {"labels": 10, "fine_labels": 100}
COARSE = 20
REMEDY = "Give CIFAR's own files: data_batch_1.bin … test_batch.bin, or the Python version's data_batch_1 … test_batch."
TRAINING, TEST = re.compile(r"data_batch_(\d{1,3})(\.bin)?", re.ASCII), re.compile(r"test_batch(\.bin)?")
Labelled = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def read_cifar(path: str | os.PathLike[str]) -> Labelled:
    """Return images uint8 [N, 3, 32, 32] and labels [N] of a binary file (.bin) or a Python batch."""
    path = Path(path)
    images, labels, classes = _read_binary(path) if path.suffix.lower() == ".bin" else _read_batch(path)
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise UnreadableFileError(
            f"{path}: image {wrong[0]} has the label {labels[wrong[0]]}, but labels are 0 to {classes - 1}. {REMEDY}"
        )
    return images.reshape(-1, 3, 32, 32), labels


def cifar_files(folder: Path) -> tuple[list[Path], str]:
    """Return the files of a folder's training set (of its test set if it has no other), and which set they are.

    No files if the folder does not hold CIFAR.
    """
    names = {path.name for path in folder.iterdir() if path.is_file()}
    training, test = (sorted(filter(pattern.fullmatch, names), key=_number) for pattern in (TRAINING, TEST))
    if not training and not test and names & {"meta", "fine_label_names.txt"}:  # CIFAR-100
        training, test = ([name for name in (half, f"{half}.bin") if name in names] for half in ("train", "test"))
    chosen, half = (training, "training") if training else (test, "test")
    numbers = [_number(name) for name in chosen]
    if twice := [name for name in chosen if numbers.count(_number(name)) > 1]:
        raise UnreadableFileError(
            f"{folder}: holds {' and '.join(twice[:2])}, the same images in two forms. Keep one form in a folder, or name "
            "one file."
        )
    if missing := sorted(set(range(1, max(numbers, default=0))) - set(numbers)):
        raise UnreadableFileError(
            f"{folder}: holds {chosen[-1]}, but not data_batch_{missing[0]}. Fetch the missing file, or name one file."
        )
    return [folder / name for name in chosen], half


def is_batch(path: Path) -> bool:
    """Return whether a file begins like a pickle and has a pickle's suffix or none."""
    if path.suffix.lower() not in ("", ".pkl", ".pickle"):
        return False
    with path.open("rb") as file:
        return file.read(1) == b"\x80"


def _number(name: str) -> int:
    match = TRAINING.fullmatch(name)
    return int(match[1]) if match else 0


def _read_binary(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int]:
    size, ten, hundred = path.stat().st_size, PIXELS + 1, PIXELS + 2
    if size == 0 or (size % ten and size % hundred):
        raise UnreadableFileError(
            f"{path}: {size:,} bytes are not whole rows of CIFAR-10 ({ten:,} bytes: a label and 3 · 32 · 32 pixels) nor of "
            f"CIFAR-100 ({hundred:,}: two labels). It is cut off, or holds something else. {REMEDY}"
        )
    content = np.fromfile(path, dtype=np.uint8, count=size)
    rows = content.reshape(-1, hundred) if size % ten else content.reshape(-1, ten)
    if not size % ten and not size % hundred and rows[:, 0].max() >= CLASSES["labels"]:
        rows = content.reshape(-1, hundred)  # the length fits both, the labels only CIFAR-100
    if rows.shape[1] == hundred and (worst := int(rows[:, 0].max())) >= COARSE:
        raise UnreadableFileError(
            f"{path}: a coarse label is {worst}, but those of CIFAR-100 are 0 to {COARSE - 1}. {REMEDY}"
        )
    classes = CLASSES["labels"] if rows.shape[1] == ten else CLASSES["fine_labels"]
    return rows[:, -PIXELS:].copy(), rows[:, -PIXELS - 1].astype(np.int64), classes


def _read_batch(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int]:
    batch = read_array_pickle(path, REMEDY)
    key = next((key for key in CLASSES if isinstance(batch, dict) and key in batch), None)
    if key is None or not isinstance(images := batch.get("data"), np.ndarray):
        held = ", ".join(map(repr, batch))[:80] if isinstance(batch, dict) else f"a {type(batch).__name__}"
        raise UnreadableFileError(f"{path}: holds {held}, not the data and labels of a CIFAR batch. {REMEDY}")
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != PIXELS or not len(images):
        raise UnreadableFileError(
            f"{path}: its data are {images.dtype} {images.shape}, not uint8 [N, {PIXELS}]: an image's red, green and blue "
            f"planes in a row. {REMEDY}"
        )
    labels = _whole(batch[key])
    if labels is None or len(labels) != len(images):
        found = "no list of whole numbers" if labels is None else f"{len(labels)} labels"
        raise UnreadableFileError(f"{path}: {len(images)} images, but {found}. {REMEDY}")
    return np.ascontiguousarray(images), labels, CLASSES[key]


def _whole(labels: Any) -> npt.NDArray[np.int64] | None:
    if isinstance(labels, np.ndarray):
        return labels.astype(np.int64) if labels.ndim == 1 else None
    if not isinstance(labels, list) or not all(type(label) is int and abs(label) < 2**31 for label in labels):
        return None
    return np.array(labels, dtype=np.int64)
