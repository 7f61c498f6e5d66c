"""Stage 0. numpy files: .npy, and .npz, a zip of them. Never pickle, never more memory than the file can fill.

numpy itself allocates memory for the declared shape before it checks the length of the file, so shape and type are compared
with the file's size here.
"""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from .archives import open_archive
from .limits import UnreadableFileError
from .text import first_line

KINDS = "biufUS"  # bool, integer, unsigned, float, text; complex, dates, records and objects are refused
Arrays = dict[str, npt.NDArray[Any]]


def read_npy(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Return the array of a .npy file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            shape, fortran, dtype = _read_header(file, str(path))
            left = path.stat().st_size - file.tell()
            _check_size(shape, dtype, left, str(path))
            array = np.fromfile(file, dtype=dtype, count=math.prod(shape))
    except OSError as error:
        raise UnreadableFileError(f"{path}: cannot be read ({error}).") from error
    return array.reshape(shape, order="F" if fortran else "C")


def read_npz(path: str | os.PathLike[str]) -> Arrays:
    """Return the arrays of a .npz file by name."""
    path = Path(path)
    arrays: Arrays = {}
    with open_archive(path) as archive:
        for member in archive.sizes:
            if not member.endswith(".npy"):
                raise UnreadableFileError(
                    f"{path}: holds {member!r:.80}, which is not an array. Save it with np.savez."
                )
            content = archive.read(member)
            file, name = io.BytesIO(content), f"{path}, {member!r:.80}"
            shape, fortran, dtype = _read_header(file, name)
            _check_size(shape, dtype, len(content) - file.tell(), name)
            flat = np.frombuffer(content, dtype=dtype, count=math.prod(shape), offset=file.tell())
            arrays[member.removesuffix(".npy")] = flat.reshape(shape, order="F" if fortran else "C")
    return arrays


def _read_header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # numpy parses a Python literal here, which can fail in many ways
        why = first_line(error)
        raise UnreadableFileError(f"{name}: not a readable numpy file ({why}). Save it again with np.save.") from error
    raise UnreadableFileError(f"{name}: version {version} of the numpy format is for records only. Save plain arrays.")


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any], available: int, name: str) -> None:
    if dtype.hasobject:
        raise UnreadableFileError(f"{name}: holds pickled objects, which are refused. Save plain arrays of numbers.")
    if dtype.kind not in KINDS or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise UnreadableFileError(f"{name}: holds values of dtype {dtype!s:.80}, not numbers or text. Convert them.")
    if min(shape, default=1) < 1 or len(shape) > 32:
        raise UnreadableFileError(f"{name}: an array of shape {shape!s:.80} holds no sample. Save at least one.")
    if (declared := math.prod(shape) * dtype.itemsize) > available:
        raise UnreadableFileError(
            f"{name}: shape {shape!s:.80} of {dtype} has {declared:,} bytes, but only {available:,} follow. The file is "
            "truncated or damaged."
        )
