"""Stage 0. Pickles read as data: their instructions are listed, never run.

A pickle is a program for a stack machine, and the machine of Python's pickle module may call anything. The one here follows
only the instructions for plain containers, numbers and text. It represents functions and types by a `Name` and looks none of
them up: a subclass gives the meaning of calls of the names that it knows (tensors of torch.save in `checkpoints`, numpy
arrays in `array_pickles`). Anything else is refused by name.
"""

from __future__ import annotations

import pickletools
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from .limits import UnreadableFileError

DEEPEST = 64
MOST_SHARED = 64  # values of a tuple that may occur in several places


class BoundedFile:
    """A file of which at most the remaining bytes are requested, since Python allocates memory for the request."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size, self.tell, self.seek, self.readline = size, file.tell, file.seek, file.readline
        self._read = file.read

    def read(self, count: int) -> bytes:
        """Read at most ``count`` bytes."""
        return self._read(max(0, min(count, self.size - self.tell())))


@dataclass(frozen=True)
class Name:
    """A name that the pickle mentions: "module name"."""

    text: str


class PickleReader:
    """The stack machine of pickle's protocol 2, with plain containers only and no way to call anything."""

    kind: ClassVar[str]  # of file, in messages
    names: ClassVar[Set[str]]  # names that the pickle may mention
    protocols: ClassVar[Set[int]] = {2}
    keys: ClassVar[tuple[type, ...]] = (str, int)  # types of a dict's keys
    unfinished: ClassVar[tuple[type, ...]] = (Name,)  # types that are not values by themselves

    def __init__(self, path: Path, remedy: str) -> None:
        self.path, self.remedy = path, remedy
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, program: Any) -> Any:
        """Return the value that the next pickle of ``program`` (bytes or a file) describes."""
        self.stack, self.marks, self.memo = [], [], {}
        try:
            for opcode, argument, _ in pickletools.genops(program):
                if opcode.name != "STOP":
                    self.step(opcode.name, argument)
        except UnreadableFileError:
            raise
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            raise self.refusal("its pickle is damaged") from error
        self.check(len(self.stack) == 1 and not self.marks, "its pickle is not complete")
        (result,) = self.stack
        self._check_result(result)
        return result

    def check(self, good: bool, otherwise: str) -> None:
        """Refuse the file unless ``good``."""
        if not good:
            raise self.refusal(otherwise)

    def refusal(self, what: str) -> UnreadableFileError:
        """Return the error that names the file, the problem and the remedy."""
        return UnreadableFileError(
            f"{self.path}: not a plain {self.kind}, no code in it is run: {what:.120}. {self.remedy}"
        )

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def call(self, function: str, arguments: tuple[Any, ...]) -> Any:
        """Return the value of a call of a known name."""
        raise self.refusal(f"it calls {function} with unusual arguments")

    def persistent(self, description: Any) -> Any:
        """Return the value of a reference to something outside the pickle."""
        raise self.refusal("its pickle has the instruction BINPERSID")

    def set_state(self, target: Any, state: Any) -> None:
        """Give ``target`` the attributes that the pickle sets."""
        raise self.refusal("it sets attributes of an object")

    # --- the machine ------------------------------------------------------------------------------------------------

    def step(self, opcode: str, argument: Any) -> None:
        """Follow one instruction."""
        stack = self.stack
        match opcode:
            case "PROTO":
                usual = " or ".join(map(str, sorted(self.protocols)))
                self.check(argument in self.protocols, f"pickle protocol {argument}, not {usual} as in such files")
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
                self.check(len(stack) >= count, "its pickle is damaged")
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
            case "BUILD":
                state = stack.pop()
                self.set_state(stack[-1], state)
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._remembered(argument))
            case "GLOBAL":
                stack.append(self.name(argument))
            case "BINPERSID":
                stack.append(self.persistent(stack.pop()))
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                if not isinstance(function, Name) or not isinstance(arguments, tuple):
                    raise self.refusal("it calls something that is not a function")
                stack.append(self.call(function.text, arguments))
            case _:
                raise self.refusal(f"its pickle has the instruction {opcode}")

    def name(self, text: str) -> Name:
        """Return a name that this kind of file may mention."""
        if text not in self.names:
            raise self.refusal(f"it names {text!r:.80}")
        return Name(text)

    def _close(self) -> list[Any]:
        self.stack = self.marks.pop()
        return self.stack

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise self.refusal("it appends to something that is not a list")
        self.stack[-1].extend(values)

    def _update(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise self.refusal("it sets items of something that is not a dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, self.keys):
                raise self.refusal(f"a key is a {type(key).__name__}, not text or a whole number")
            target[key] = value

    def _remembered(self, place: int) -> Any:
        """Return a remembered value: text, numbers, tensors and small flat tuples may be reused, a dict or list may not.

        Otherwise a small file could contain itself, or more copies of a list than any program could visit.
        """
        value = self.memo[place]
        if isinstance(value, (dict, list)) or (
            isinstance(value, tuple)
            and (len(value) > MOST_SHARED or any(isinstance(inner, (dict, list, tuple)) for inner in value))
        ):
            raise self.refusal("it holds one list, dict or long tuple in two places")
        return value

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
                self.check(
                    not isinstance(value, self.unfinished), "it holds a type or a storage where a value should be"
                )
            self.check(depth <= DEEPEST or not below, f"it is nested deeper than {DEEPEST}")
            level = below
