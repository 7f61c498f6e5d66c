"""Stage 0. Pickles of numpy arrays, numbers and text, as Python 2 and 3 write them, read without unpickling.

CIFAR's "Python version" is published in this form: protocol 2 of Python 2, whose strings are bytes of unknown encoding.
Files that were loaded and dumped again use protocols 2 to 5, and the names of numpy's functions before or after numpy 2.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .limits import UnreadableFileError
from .pickles import BoundedFile, Name, PickleReader

MOST_AXES = 16
NAMES = {
    "numpy ndarray",
    "numpy dtype",
    "_codecs encode",
    "__builtin__ bytes",
    "builtins bytes",
    *(f"numpy.{core}.multiarray _reconstruct" for core in ("core", "_core")),
    *(f"numpy.{core}.numeric _frombuffer" for core in ("core", "_core")),
}


def read_array_pickle(path: str | os.PathLike[str], remedy: str) -> Any:
    """Read a pickle of plain dicts, lists, numbers, text and numpy arrays of whole numbers; keys become text."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _plain(_ArrayReader(path, remedy).run(BoundedFile(file, path.stat().st_size)))
    except OSError as error:
        raise UnreadableFileError(f"{path}: cannot be read ({error}).") from error


class _Type:
    """A dtype of whole numbers: kind and size, and a byte order that is set after creation."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "="


class _Array:
    """An array whose shape, type and numbers are set after creation."""

    values: npt.NDArray[Any] | None = None


class _ArrayReader(PickleReader):
    """A reader of dicts, lists, numbers, text and arrays of whole numbers."""

    kind, names, protocols, keys = "pickle of arrays", NAMES, {2, 3, 4, 5}, (str, bytes, int)
    unfinished = (Name, _Type)
    encoded = 0  # bytes encoded from text so far

    def step(self, opcode: str, argument: Any) -> None:
        """Follow one instruction, also of later protocols and for strings of Python 2."""
        match opcode:
            case "FRAME":
                pass
            case "BINSTRING" | "SHORT_BINSTRING" | "SHORT_BINUNICODE" | "BINUNICODE8":
                self.stack.append(argument)
            case "BINBYTES" | "SHORT_BINBYTES" | "BINBYTES8" | "BYTEARRAY8":
                self.stack.append(bytes(argument))
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "STACK_GLOBAL":
                name, module = self.stack.pop(), self.stack.pop()
                self.stack.append(self.name(f"{module} {name}"))
            case _:
                super().step(opcode, argument)

    def call(self, function: str, arguments: tuple[Any, ...]) -> Any:
        """Return bytes, a dtype, or an array."""
        match function.split(" ")[-1], arguments:
            case "encode", (str() as text, "latin1"):  # Python 3 writes bytes in protocol 2 like this
                return self._encoded(text)
            case "bytes", ():
                return b""
            case "dtype", (str() | bytes() as code, _, _) if re.fullmatch("[iu][1248]", _text(code)):
                return _Type(_text(code))
            case "_reconstruct", (Name("numpy ndarray"), (0,), _):
                return _Array()
            case "_frombuffer", (bytes() as content, _Type() as kind, tuple() as shape, "C" | "F" as order):
                array = _Array()
                array.values = self._values(content, kind, shape, order == "F")
                return array
        return super().call(function, arguments)

    def set_state(self, target: Any, state: Any) -> None:
        """Set the byte order of a dtype, or the shape, dtype, order and numbers of an array."""
        match target, state:
            case _Type(), (3, str() | bytes() as order, None, None, None, -1, -1, 0) if _text(order) in "<>|=":
                target.order = _text(order)
            case _Array(values=None), (1, tuple() as shape, _Type() as kind, bool() as fortran, str() | bytes() as raw):
                content = self._encoded(raw) if isinstance(raw, str) else raw
                target.values = self._values(content, kind, shape, fortran)
            case _:
                super().set_state(target, state)

    def _encoded(self, text: str) -> bytes:
        """Encode text as the bytes that it represents, bounded in total, or a small file could fill the memory."""
        self.encoded += len(text)
        self.check(self.encoded <= self.path.stat().st_size, "it unpacks to more bytes than it has")
        return text.encode("latin-1")

    def _values(self, content: bytes, kind: _Type, shape: tuple[Any, ...], fortran: bool) -> npt.NDArray[Any]:
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in shape)
        self.check(whole and len(shape) <= MOST_AXES, "an array's shape is not made of whole numbers")
        dtype = np.dtype(kind.order.replace("|", "=") + kind.code)
        declared = math.prod(shape) * dtype.itemsize
        self.check(
            declared == len(content), f"an array of shape {shape} has {declared} bytes, but the file has {len(content)}"
        )
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _plain(value: Any) -> Any:
    """Replace descriptions by arrays, and make keys text; depth is bounded, and no container occurs twice."""
    if isinstance(value, dict):
        return {_text(key) if isinstance(key, bytes) else key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(inner) for inner in value)
    return value.values if isinstance(value, _Array) else value
