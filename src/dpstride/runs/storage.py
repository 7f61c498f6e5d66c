"""Files of arrays, which are read exactly as they were written or refused.

Plain safetensors, readable by any program, with a checksum of contents and metadata in the header. They are written here
rather than by the library for three reasons: arrays of gigabytes are not copied, a full disk raises a plain OSError, and
contents reach the disk before the name does (`dpstride.runs.writing`).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .writing import atomic

Arrays = dict[str, npt.NDArray[Any]]
Result = TypeVar("Result")
_BEGIN = b'{"__metadata__":{"format":"dpstride-'
_KINDS = {"f": "F", "i": "I", "u": "U"}


class DamagedFileError(ValueError):
    """A file that is not as it was written: truncated, changed, or of another kind."""


def write_arrays(path: Path, arrays: Arrays, header: dict[str, str]) -> None:
    """Write to ``path``, all or nothing; see `dpstride.runs.writing.atomic`."""
    arrays = {name: _plain(array) for name, array in arrays.items()}
    with atomic(path) as file:
        file.write(_head(arrays, header | {"sha256": _digest(arrays, header)}))
        for array in arrays.values():
            file.write(array.reshape(-1).view(np.uint8).data)


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and header of a file of `write_arrays`; raise `DamagedFileError` unless they are as written."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedFileError(f"not a whole safetensors file ({error!s:.300})") from error
    found = header.pop("sha256", None)
    if found is not None and found != _digest({name: _plain(array) for name, array in arrays.items()}, header):
        raise DamagedFileError("its contents do not match its checksum")
    return arrays, header | ({} if found is None else {"sha256": found})


def read_header(path: Path) -> dict[str, str]:
    """Return the header of a file of `write_arrays`, without reading its arrays."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, ValueError, TypeError) as error:
        raise DamagedFileError(f"not a whole safetensors file ({error!s:.300})") from error


def is_remnant(path: Path) -> bool:
    """Return whether a damaged file was one of `write_arrays`: it begins like one, or is empty."""
    with path.open("rb") as file:
        begin = file.read(8 + len(_BEGIN))
    return not begin or begin[8:] == _BEGIN


def read_whole(path: Path, read: Callable[[Path], Result]) -> Result | None:
    """Return what ``read`` reads from ``path``; None if there is no file, or with a warning if ours is damaged."""
    if not path.exists():
        return None
    try:
        return read(path)
    except ValueError as error:
        if not isinstance(error.__cause__, DamagedFileError) or not is_remnant(path):
            raise
        warnings.warn(f"{path}: {error.__cause__!s:.300}; its contents are computed again.", stacklevel=3)
        return None


def to_bytes(arrays: Arrays) -> bytes:
    """Return arrays as the content of a safetensors file."""
    plain = {name: _plain(array) for name, array in arrays.items()}
    return b"".join([_head(plain, {}), *(array.tobytes() for array in plain.values())])


def from_bytes(content: bytes) -> Arrays:
    """Read what `to_bytes` wrote."""
    from safetensors.numpy import load

    return dict(load(content))


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)


def _digest(arrays: Arrays, header: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(header.items())).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(arrays[name].reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _head(arrays: Arrays, header: dict[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": header}
    place = 0
    for name, array in arrays.items():
        kind = "BOOL" if array.dtype == bool else f"{_KINDS[array.dtype.kind]}{8 * array.dtype.itemsize}"
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, place + array.nbytes]}
        place += array.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
