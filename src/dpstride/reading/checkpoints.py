"""Stage 0. Checkpoints of torch.save (.pt, .pth, .bin) read as data, without unpickling them.

Such a file is a zip of raw tensors and of a pickle that says what they are. A pickle is a program; torch.load's
``weights_only`` runs it with few functions, and has been escaped more than once (GHSA-53q9-r3pm-6pq6 up to torch 2.5,
GHSA-63cw-57p8-fm3p up to 2.9). Here it is not run at all: its instructions are listed, and those that a plain checkpoint
is made of are followed to build dicts, lists, tuples, numbers, text and plain tensors. Anything else is refused by name.
"""

from __future__ import annotations

import math
import os
import pickletools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .archives import Archive, check_one_directory, open_archive
from .limits import UnreadableFileError, check_unpacked

if TYPE_CHECKING:
    from torch import Tensor

DEEPEST = 64
MOST_AXES = 16
LARGEST = 2**48
REMEDY = "Save plain tensors, numbers and text, for example torch.save(model.state_dict(), file)."
# Names that a pickle may mention, and what each stands for here; none of them is looked up or called.
STORAGES = {
    "torch DoubleStorage": "float64",
    "torch FloatStorage": "float32",
    "torch HalfStorage": "float16",
    "torch BFloat16Storage": "bfloat16",
    "torch LongStorage": "int64",
    "torch IntStorage": "int32",
    "torch ShortStorage": "int16",
    "torch CharStorage": "int8",
    "torch ByteStorage": "uint8",
    "torch BoolStorage": "bool",
    "torch.storage UntypedStorage": "uint8",
}
DTYPES = {f"torch {name}": name for name in (*STORAGES.values(), "uint16", "uint32", "uint64")}
FUNCTIONS = {
    "collections OrderedDict",
    "torch Size",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter",
}
NAMES = FUNCTIONS | STORAGES.keys() | DTYPES.keys()


def read_checkpoint(path: str | os.PathLike[str]) -> Any:
    """What torch.save wrote: a tensor, or dicts, lists and tuples of tensors, numbers and text; tensors are on the CPU."""
    return _read(Path(path), with_values=True)


def check_checkpoint(path: str | os.PathLike[str]) -> int:
    """Raise unless `read_checkpoint` would read this file as a dict of tensors, and return their number; none is read."""
    loaded = _read(Path(path), with_values=False)
    if not isinstance(loaded, dict) or not all(isinstance(k, str) and _is_tensor(v) for k, v in loaded.items()):
        raise UnreadableFileError(f"{path}: not a dict of named tensors. {REMEDY}")
    return len(loaded)


def _read(path: Path, with_values: bool) -> Any:
    if not path.is_file():
        raise UnreadableFileError(f"{path}: there is no such file.")
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise UnreadableFileError(
                f"{path}: not a checkpoint of torch.save as it is since torch 1.6 (a zip). Load an older one in a place "
                "where it can do no harm, and save its tensors again."
            )
    with open_archive(path) as archive:
        check_one_directory(path, archive)
        roots = [name.removesuffix("data.pkl") for name in archive.sizes if name.endswith("/data.pkl")]
        if len(roots) != 1 or f"{roots[0]}constants.pkl" in archive.sizes:
            raise UnreadableFileError(f"{path}: not a plain checkpoint, but another archive (TorchScript?). {REMEDY}")
        if archive.sizes.get(f"{roots[0]}byteorder", 0) > 6:
            raise UnreadableFileError(f"{path}: not a plain checkpoint (its byte order is not a word). {REMEDY}")
        order = (
            archive.read(f"{roots[0]}byteorder").decode("latin-1") if f"{roots[0]}byteorder" in archive.sizes else ""
        )
        if (order or "little") != sys.byteorder:
            raise UnreadableFileError(
                f"{path}: its byte order is {order!r}, not {sys.byteorder!r}. Save it on this machine."
            )
        builder = _Builder(path, archive, roots[0], with_values)
        try:
            return builder.run(bytes(archive.read(f"{roots[0]}data.pkl")))
        except (IndexError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableFileError(f"{path}: not a plain checkpoint (its pickle is damaged). {REMEDY}") from error


@dataclass(frozen=True)
class _Name:
    """A name that the pickle mentions."""

    text: str


@dataclass(frozen=True)
class _Storage:
    """Raw bytes of the archive, and what they are to be read as."""

    key: str
    dtype: str
    size: int  # elements


class _Builder:
    """The stack machine of pickle's protocol 2, with plain containers only and no way to call anything."""

    def __init__(self, path: Path, archive: Archive, root: str, with_values: bool) -> None:
        self.path, self.archive, self.root, self.with_values = path, archive, root, with_values
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Any] = {}
        self.total = 0

    def run(self, program: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(program):
            if opcode.name == "STOP":
                break
            self._step(opcode.name, argument)
        if len(self.stack) != 1 or self.marks:
            raise self._refuse("its pickle is not complete")
        (result,) = self.stack
        self._check_result(result)
        return result

    def _refuse(self, what: str) -> UnreadableFileError:
        return UnreadableFileError(f"{self.path}: not a plain checkpoint, no code in it is run: {what:.120}. {REMEDY}")

    def _step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case "PROTO":
                if argument != 2:
                    raise self._refuse(f"pickle protocol {argument}, torch.save's own is 2")
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode == "NEWTRUE")
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(opcode[-1])
                if len(stack) < count:
                    raise self._refuse("its pickle is damaged")
                stack[-count:] = [tuple(stack[-count:])]
            case "MARK":
                self.marks.append(stack)
                self.stack = []
            case "TUPLE":
                self._close().append(tuple(stack))
            case "APPEND":
                self._extend([stack.pop()])
            case "APPENDS":
                self._close()
                self._extend(stack)
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                self._update([key, value])
            case "SETITEMS":
                self._close()
                self._update(stack)
            case "BUILD":  # attributes of an OrderedDict: a state dictionary's _metadata, which nothing here needs
                stack.pop()
                if not isinstance(stack[-1], dict):
                    raise self._refuse("it sets attributes of an object")
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._remembered(argument))
            case "GLOBAL":
                if argument not in NAMES:
                    raise self._refuse(f"it names {argument!r:.80}")
                stack.append(_Name(argument))
            case "BINPERSID":
                stack.append(self._storage(stack.pop()))
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append(self._build(function, arguments))
            case _:
                raise self._refuse(f"its pickle has the instruction {opcode}")

    def _close(self) -> list[Any]:
        self.stack = self.marks.pop()
        return self.stack

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise self._refuse("it appends to something that is not a list")
        self.stack[-1].extend(values)

    def _update(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise self._refuse("it sets items of something that is not a dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, (str, int)):
                raise self._refuse(f"a key is a {type(key).__name__}, not text or a whole number")
            target[key] = value

    def _remembered(self, place: int) -> Any:
        """Text, numbers, tensors and flat tuples may stand in several places; a dict or list only in one.

        Otherwise a small file could hold itself, or more copies of a list than anything that walks it can visit.
        """
        value = self.memo[place]
        if isinstance(value, (dict, list)) or (
            isinstance(value, tuple) and any(isinstance(inner, (dict, list, tuple)) for inner in value)
        ):
            raise self._refuse("it holds one list or dict in two places")
        return value

    def _storage(self, description: Any) -> _Storage:
        if not isinstance(description, tuple) or len(description) != 5 or description[0] != "storage":
            raise self._refuse("it refers to something that is not a tensor's storage")
        _, kind, key, _, size = description
        if not isinstance(kind, _Name) or kind.text not in STORAGES or not isinstance(key, str) or not _whole(size):
            raise self._refuse("it refers to a tensor's storage of an unknown kind")
        storage = _Storage(key, STORAGES[kind.text], size)
        held = self.archive.sizes.get(f"{self.root}data/{key}")
        if held != size * _itemsize(storage.dtype):
            raise self._refuse(f"a tensor's storage is declared with {size} elements, but {held} bytes are there")
        return storage

    def _build(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise self._refuse("it calls something that is not a function")
        match function.text, arguments:
            case "collections OrderedDict", ():
                return {}
            case "torch Size", (tuple() as size,) if all(_whole(length) for length in size):
                return size
            case "torch._utils _rebuild_tensor_v2", (_Storage() as storage, *place, bool(), dict() as hooks):
                if not hooks and len(place) == 3:
                    return self._tensor(storage, storage.dtype, *place)
            case "torch._utils _rebuild_tensor_v3", (
                _Storage() as storage,
                *place,
                bool(),
                dict() as hooks,
                _Name(name),
            ):
                if not hooks and len(place) == 3 and name in DTYPES:
                    return self._tensor(storage, DTYPES[name], *place)
            case "torch._utils _rebuild_parameter", (tensor, bool(), dict() as hooks):
                if not hooks and _is_tensor(tensor):
                    return tensor
        raise self._refuse(f"it calls {function.text} with unusual arguments")

    def _tensor(self, storage: _Storage, dtype: str, offset: Any, size: Any, stride: Any) -> Tensor:
        """A tensor within its storage; one that repeats elements (an expanded one) is refused, being larger than its file."""
        import torch

        elements = storage.size * _itemsize(storage.dtype) // _itemsize(dtype)
        if not (_whole(offset) and _lengths(size) and _lengths(stride) and len(size) == len(stride) <= MOST_AXES):
            raise self._refuse("a tensor's shape is not made of whole numbers")
        count = math.prod(size)
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) if count else 0
        if count > elements or last >= max(elements, 1) or math.prod(max(length, 1) for length in size) > LARGEST:
            raise self._refuse(f"a tensor of shape {size} does not fit its storage of {elements} elements")
        self.total += count * _itemsize(dtype)
        check_unpacked(self.path, self.total, self.path.stat().st_size, REMEDY)
        if not self.with_values or not elements or not count:
            return torch.empty(size, dtype=getattr(torch, dtype), device="cpu" if self.with_values else "meta")
        if storage.key not in self.storages:
            self.storages[storage.key] = self.archive.read(f"{self.root}data/{storage.key}")
        flat = torch.frombuffer(self.storages[storage.key], dtype=getattr(torch, dtype))
        return flat.as_strided(size, stride, offset)

    def _check_result(self, result: Any) -> None:
        level, depth = [result], 0
        while level:
            depth += 1
            below: list[Any] = []
            for value in level:
                if isinstance(value, dict):
                    below.extend(value.values())
                elif isinstance(value, (list, tuple)):
                    below.extend(value)
                elif isinstance(value, (_Name, _Storage)):
                    raise self._refuse("it holds a type or a storage where a value should be")
            if depth > DEEPEST and below:
                raise self._refuse(f"it is nested deeper than {DEEPEST}")
            level = below


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _lengths(value: Any) -> bool:
    return isinstance(value, tuple) and all(_whole(length) for length in value)


def _itemsize(dtype: str) -> int:
    import torch

    return int(getattr(torch, dtype).itemsize)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
