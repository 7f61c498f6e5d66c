"""Stage 0. Weights in a TorchScript archive (torch.jit.save), read as data; its code is never read.

Such an archive is a checkpoint whose pickle describes modules: objects of classes defined by code in the archive, each with
a dictionary of attributes. Here every object becomes this dictionary, and tensors are named by the attributes that lead to
them, as in a state dictionary.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .archives import check_one_directory, open_archive
from .checkpoints import _Builder, read_members
from .limits import UnreadableFileError
from .pickles import Name

if TYPE_CHECKING:
    from torch import Tensor

CLASS, LIST = "__torch__.", "torch.jit._pickle "  # names of the archive's own classes, and of typed lists


def is_torchscript(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a TorchScript archive rather than a checkpoint of torch.save."""
    with Path(path).open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
    with open_archive(Path(path)) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.sizes)


def read_torchscript(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return parameters and buffers of the module in a TorchScript archive, by their dotted names, on the CPU."""
    path = Path(path)
    with open_archive(path) as archive:
        check_one_directory(path, archive)
        roots = [name.removesuffix("data.pkl") for name in archive.sizes if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise UnreadableFileError(f"{path}: not a TorchScript archive, which has one data.pkl. Save it again.")
        module = read_members(path, archive, roots[0], _ModuleBuilder(path), fill=True)
    found: dict[str, Tensor] = {}
    _gather(module, "", found, path)
    return found


def _gather(value: Any, name: str, found: dict[str, Tensor], path: Path) -> None:
    import torch

    if isinstance(value, dict):
        for key, inner in value.items():
            _gather(inner, f"{name}.{key}" if name else str(key), found, path)
    elif isinstance(value, torch.Tensor):
        if name in found:
            raise UnreadableFileError(f"{path}: holds two tensors with the name {name!r:.80}. Save it again.")
        found[name] = value


class _ModuleBuilder(_Builder):
    """A builder of checkpoints for which an object of the archive's own classes is the dictionary of its attributes."""

    def name(self, text: str) -> Name:
        """Return a name: a class of the archive, a typed list, or one that a checkpoint may mention."""
        return Name(text) if text.startswith((CLASS, LIST)) else super().name(text)

    def step(self, opcode: str, argument: Any) -> None:
        """Follow one instruction; one that makes an object makes an empty dictionary."""
        if opcode != "NEWOBJ":
            super().step(opcode, argument)
            return
        arguments, kind = self.stack.pop(), self.stack.pop()
        known = isinstance(kind, Name) and kind.text.startswith(CLASS) and arguments == ()
        self.check(known, "it makes an object that is not a module")
        self.stack.append({})

    def set_state(self, target: Any, state: Any) -> None:
        """Fill the dictionary of a new object."""
        self.check(isinstance(state, dict) and target == {}, "it sets attributes in an unusual way")
        target.update(state)

    def call(self, function: str, arguments: tuple[Any, ...]) -> Any:
        """Return the list of a typed list."""
        if not function.startswith(LIST):
            return super().call(function, arguments)
        self.check(
            len(arguments) == 1 and isinstance(arguments[0], list), "it builds a list of something that is not one"
        )
        return arguments[0]
