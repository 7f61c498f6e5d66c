"""Text to train on: files of plain text as one row of characters, every tenth part of it held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpstride.reading.limits import UnreadableFileError
from dpstride.zoo.characters import encode

Ids = npt.NDArray[np.uint8]
PART = 10_000  # characters; of ten such parts the last is held out
LARGEST = 1 << 30  # bytes


def read_text(source: str | Path) -> str:
    """The text of a file, or of all .txt files below a folder in order of their paths."""
    path = Path(source)
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise ValueError(f"{path} is neither a text file nor a folder with .txt files.")
    if (size := sum(file.stat().st_size for file in files)) > LARGEST:
        raise UnreadableFileError(
            f"{path}: {size:,} bytes of text are more than the {LARGEST:,} that are read at once."
        )
    try:
        return "\n".join(file.read_text(encoding="utf-8") for file in files)
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{path}: not text in UTF-8 ({error}). Convert it first.") from error


def split_text(text: str, length: int) -> tuple[Ids, Ids]:
    """Characters to train on and characters held out, as token ids."""
    ids = encode(text).astype(np.uint8)
    part = min(PART, len(ids) // 10)
    if part < length:
        raise ValueError(
            f"The text has {len(ids):,} characters, of which a tenth is held out, but a passage has {length}. Give more text."
        )
    held_out = np.arange(len(ids)) // part % 10 == 9
    return ids[~held_out], ids[held_out]
