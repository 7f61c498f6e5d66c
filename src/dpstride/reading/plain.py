"""Stage 0. Plain text files: UTF-8, complete, and of bounded size."""

from __future__ import annotations

from pathlib import Path

from .limits import UnreadableFileError

LARGEST = 1 << 30  # bytes


def read_text(source: str | Path) -> str:
    """Read the text of a file, or of all .txt files below a folder in order of their paths."""
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
