"""Stage 0. Checkpoints of torch.save (.pt, .pth, .bin) read as data, without unpickling them.

Such a file holds raw tensors and a pickle that describes them: in a zip, or one after the other in files of torch before
1.6. A pickle is a program; torch.load's ``weights_only`` runs it with few functions, and has been bypassed more than once
(GHSA-53q9-r3pm-6pq6 up to torch 2.5, GHSA-63cw-57p8-fm3p up to 2.9). Here it is not run at all (`pickles`): it yields dicts,
lists, tuples, numbers, text and descriptions of tensors, and tensors are filled once all of these are known to fit.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archives import CHUNK, Archive, check_one_directory, open_archive
from .limits import UnreadableFileError, check_unpacked
from .pickles import BoundedFile, Name, PickleReader

MOST_AXES = 16
LARGEST = 2**48
REMEDY = "Save plain tensors, numbers and text, for example torch.save(model.state_dict(), file)."
OLD_MAGIC = 0x1950A86A20F9469CFC6C  # the first object of a file of torch before 1.6
OLD_PROTOCOL = 1001
# Names that a pickle may mention, and their meaning here; none of them is looked up or called.
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
ITEMSIZES = {
    **dict.fromkeys(("float64", "int64", "uint64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}
DTYPES = {f"torch {name}": name for name in (*STORAGES.values(), "uint16", "uint32", "uint64")}
FUNCTIONS = {
    "collections OrderedDict",
    "torch Size",
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter",
}
NAMES = FUNCTIONS | STORAGES.keys() | DTYPES.keys()


def read_checkpoint(path: str | os.PathLike[str]) -> Any:
    """Read a file of torch.save: a tensor, or dicts, lists and tuples of tensors, numbers and text; tensors are on the CPU."""
    return _read(Path(path), fill=True)


def check_checkpoint(path: str | os.PathLike[str]) -> int:
    """Return the number of tensors, without reading them; raise unless `read_checkpoint` would return a dict of tensors."""
    loaded = _read(Path(path), fill=False)
    if not isinstance(loaded, dict) or not all(
        isinstance(k, str) and isinstance(v, _Tensor) for k, v in loaded.items()
    ):
        raise UnreadableFileError(f"{path}: not a dict of named tensors. {REMEDY}")
    return len(loaded)


def _read(path: Path, fill: bool) -> Any:
    if not path.is_file():
        raise UnreadableFileError(f"{path}: there is no such file.")
    try:
        with path.open("rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
            if not zipped:
                file.seek(0)
                return _read_old(path, BoundedFile(file, path.stat().st_size), fill)
    except OSError as error:
        raise UnreadableFileError(f"{path}: cannot be read ({error}).") from error
    with open_archive(path) as archive:
        return _read_zip(path, archive, fill)


def _read_zip(path: Path, archive: Archive, fill: bool) -> Any:
    check_one_directory(path, archive)
    roots = [name.removesuffix("data.pkl") for name in archive.sizes if name.endswith("/data.pkl")]
    if len(roots) != 1 or f"{roots[0]}constants.pkl" in archive.sizes:
        raise UnreadableFileError(f"{path}: not a plain checkpoint, but another archive (TorchScript?). {REMEDY}")
    return read_members(path, archive, roots[0], _Builder(path), fill=fill)


def read_members(path: Path, archive: Archive, root: str, builder: _Builder, fill: bool) -> Any:
    """Build the object that data.pkl below ``root`` describes, with ``builder`` and storages from data/."""
    order = "little"
    if f"{root}byteorder" in archive.sizes:
        order = archive.read(f"{root}byteorder")[:20].decode("latin-1")
    if order != sys.byteorder:
        raise UnreadableFileError(
            f"{path}: its byte order is {order!r}, not {sys.byteorder!r}. Save it on this machine."
        )
    result = builder.run(bytes(archive.read(f"{root}data.pkl")))
    for storage in builder.storages.values():
        held = archive.sizes.get(f"{root}data/{storage.key}")
        builder.check(held == storage.bytes, f"a tensor's storage of {storage.bytes} bytes is {held} bytes long")
    return _filled(result, lambda storage: archive.read(f"{root}data/{storage.key}")) if fill else result


def _read_old(path: Path, file: BoundedFile, fill: bool) -> Any:
    """Read five pickles (magic, version, machine, the object, the order of its storages), then the storages' numbers."""
    builder = _Builder(path)
    if builder.run(file) != OLD_MAGIC or builder.run(file) != OLD_PROTOCOL:
        raise UnreadableFileError(f"{path}: not a checkpoint of torch.save. {REMEDY}")
    machine = builder.run(file)
    builder.check(
        isinstance(machine, dict) and machine.get("little_endian") is True, "its numbers are not little-endian"
    )
    result, keys = builder.run(file), builder.run(file)
    named = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    builder.check(named and sorted(keys) == sorted(builder.storages), "its storages are not all there")
    places = {}
    for key in keys:
        storage, place = builder.storages[key], file.tell() + 8
        count = int.from_bytes(file.read(8), "little")
        builder.check(count == storage.count and place + storage.bytes <= file.size, "a tensor's storage is cut off")
        places[key] = place
        file.seek(place + storage.bytes)

    def contents(storage: _Storage) -> bytearray:
        file.seek(places[storage.key])
        content = bytearray(storage.bytes)
        for start in range(0, len(content), CHUNK):
            content[start : start + CHUNK] = file.read(min(CHUNK, len(content) - start))
        return content

    return _filled(result, contents) if fill else result


def _filled(result: Any, contents: Callable[[_Storage], bytearray]) -> Any:
    """Return ``result`` with tensors for their descriptions; its depth is bounded, and no container occurs twice."""
    import torch

    flat: dict[str, bytearray] = {}

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(fill(inner) for inner in value)
        if not isinstance(value, _Tensor):
            return value
        dtype = getattr(torch, value.dtype)
        if not math.prod(value.size):
            return torch.empty(value.size, dtype=dtype)
        if value.storage.key not in flat:
            flat[value.storage.key] = contents(value.storage)
        whole = torch.frombuffer(flat[value.storage.key], dtype=dtype)
        return whole.as_strided(value.size, value.stride, value.offset)

    return fill(result)


@dataclass(frozen=True)
class _Storage:
    """Raw numbers somewhere in the file."""

    key: str
    dtype: str
    count: int

    @property
    def bytes(self) -> int:
        return self.count * _itemsize(self.dtype)


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage, within its bounds."""

    storage: _Storage
    dtype: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Builder(PickleReader):
    """A reader of dicts, lists, numbers and text of torch.save, with descriptions in place of tensors."""

    kind, names, unfinished = "checkpoint", NAMES, (Name, _Storage)

    def __init__(self, path: Path) -> None:
        super().__init__(path, REMEDY)
        self.storages: dict[str, _Storage] = {}
        self.total = 0

    def set_state(self, target: Any, state: Any) -> None:
        """Do nothing: an OrderedDict has a state dictionary's _metadata as an attribute, which is not needed here."""
        self.check(isinstance(target, dict), "it sets attributes of an object")

    def persistent(self, description: Any) -> _Storage:
        """Return the storage of ('storage', kind, key, device, count); old files add a long unused view, None."""
        self.check(isinstance(description, tuple) and len(description) in (5, 6), "it refers to something unknown")
        what, kind, key, _, count = description[:5]
        self.check(
            what == "storage" and description[5:] in ((), (None,)), "it refers to something that is not a storage"
        )
        known = isinstance(kind, Name) and kind.text in STORAGES and isinstance(key, str) and _whole(count)
        self.check(known, "it refers to a tensor's storage of an unknown kind")
        storage = _Storage(key, STORAGES[kind.text], count)
        self.check(self.storages.setdefault(key, storage) == storage, "it describes one storage in two ways")
        return storage

    def call(self, function: str, arguments: tuple[Any, ...]) -> Any:
        """Return a tensor's description, a size or an empty dict."""
        match function, arguments:
            case "collections OrderedDict", ():
                return {}
            case "torch Size", (tuple() as size,) if _lengths(size):
                return size
            case "torch._utils _rebuild_tensor", (_Storage() as storage, _, _, _):
                return self._tensor(storage, storage.dtype, *arguments[1:])
            case "torch._utils _rebuild_tensor_v2", (_Storage() as storage, _, _, _, bool(), dict() as hooks) if (
                not hooks
            ):
                return self._tensor(storage, storage.dtype, *arguments[1:4])
            case "torch._utils _rebuild_tensor_v3", (
                _Storage() as storage,
                _,
                _,
                _,
                bool(),
                dict() as hooks,
                Name(name),
            ):
                if not hooks and name in DTYPES:
                    return self._tensor(storage, DTYPES[name], *arguments[1:4])
            case "torch._utils _rebuild_parameter", (_Tensor() as tensor, bool(), dict() as hooks) if not hooks:
                return tensor
        return super().call(function, arguments)

    def _tensor(self, storage: _Storage, dtype: str, offset: Any, size: Any, stride: Any) -> _Tensor:
        """Return a tensor within its storage; one with repeated (expanded) elements is refused, as larger than its file."""
        shaped = _whole(offset) and _lengths(size) and _lengths(stride) and len(size) == len(stride) <= MOST_AXES
        self.check(shaped, "a tensor's shape is not made of whole numbers")
        elements, count = storage.bytes // _itemsize(dtype), math.prod(size)
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) if count else 0
        fits = count <= elements and last < max(elements, 1) and math.prod(max(n, 1) for n in size) <= LARGEST
        self.check(fits, f"a tensor of shape {size} does not fit its storage of {elements} elements")
        self.total += count * _itemsize(dtype)
        check_unpacked(self.path, self.total, self.path.stat().st_size, REMEDY)
        return _Tensor(storage, dtype, offset=offset, size=size, stride=stride)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _lengths(value: Any) -> bool:
    return isinstance(value, tuple) and all(_whole(length) for length in value)


def _itemsize(dtype: str) -> int:
    return ITEMSIZES[dtype]
