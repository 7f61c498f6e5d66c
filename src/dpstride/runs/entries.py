"""Refuse outputs that must not be written: links out of a folder, pipes, and inputs of the same command.

A folder made by others may contain links, through which any file could be replaced, or pipes, which block forever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from ..reading.limits import UnreadableFileError


def check_entries(folder: Path, patterns: Iterable[str]) -> None:
    """Refuse a folder in which a path that matches ``patterns`` is a pipe, a device, or a link out of the folder."""
    home = os.path.realpath(folder)
    for path in _matching(folder, list(patterns)):
        real = Path(os.path.realpath(path))
        if path.is_symlink() and not real.is_relative_to(home):
            raise UnreadableFileError(
                f"{path}: a link out of the folder, to {real}, which would be read or written instead. Remove it, or make the "
                "whole folder a link."
            )
        if os.path.lexists(real) and not (real.is_file() or real.is_dir() or real.is_symlink()):
            raise UnreadableFileError(f"{path}: a pipe or a device in place of a file. Remove it.")


def check_apart(
    output: str | os.PathLike[str], read: Iterable[str | os.PathLike[str]], data: Iterable[str] = ()
) -> None:
    """Refuse an output that is one of the files ``read`` or ``data``, or is inside a folder of images among the data.

    The files would be overwritten, and figures among the results would be data of the next run.
    """
    written = Path(os.path.realpath(output))
    folders = list(data)
    for each in (*read, *folders):
        if os.path.isfile(each) and written == Path(os.path.realpath(each)):
            raise ValueError(f"{output}: this command reads it, and would overwrite it. Give another output with -o.")
    for each in folders:
        if os.path.isdir(each) and written.is_relative_to(os.path.realpath(each)) and _has_images(each, written):
            raise ValueError(
                f"{output}: lies in {each}, whose images are data; figures there would be, too. Give another output with -o."
            )


def _has_images(folder: str, beside: Path) -> bool:
    """Return whether a folder holds images, not counting those in the folder ``beside``."""
    from ..reading.images import SUFFIXES

    home = Path(os.path.realpath(folder))
    found = (path for path in home.rglob("*") if path.suffix.lower() in SUFFIXES)
    return any(home == beside or not path.is_relative_to(beside) for path in found)


def _matching(folder: Path, patterns: list[str]) -> Iterator[Path]:
    """Yield the entries that match, also dangling links; links are not followed."""
    inner = {parent for pattern in patterns for parent in Path(pattern).parents} - {Path()}
    for place in sorted({Path(), *inner}):
        if (folder / place).is_symlink() and place != Path():
            continue
        for name in sorted(os.listdir(folder / place)) if (folder / place).is_dir() else ():
            if place / name in inner or any(fnmatch(str(place / name), pattern) for pattern in patterns):
                yield folder / place / name
