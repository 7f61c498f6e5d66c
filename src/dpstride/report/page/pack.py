"""Arrays as text: bytes transposed so that similar ones are adjacent, deflated, base64. data.js reads them back."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32, "f8": np.float64}


def pack(values: npt.ArrayLike, kind: str) -> dict[str, Any]:
    """Pack ``values`` as little-endian numbers of a ``kind`` in TYPES."""
    array = np.ascontiguousarray(values).astype(np.dtype(TYPES[kind]).newbyteorder("<")).ravel()
    planes = array.view(np.uint8).reshape(-1, array.itemsize).T
    return {"kind": kind, "data": base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")}


def unpack(packed: dict[str, Any]) -> npt.NDArray[Any]:
    """Undo `pack`, as the page does."""
    kind = np.dtype(TYPES[packed["kind"]]).newbyteorder("<")
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype=np.uint8)
    return np.ascontiguousarray(planes.reshape(kind.itemsize, -1).T).view(kind).ravel()


def smallest_unsigned(most: int) -> str:
    """The kind that holds whole numbers up to ``most``."""
    return "u1" if most < 2**8 else "u2" if most < 2**16 else "u4"
