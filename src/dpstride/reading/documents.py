"""Stage 0. JSON files: strict, shallow and with bounded numbers, so that their readers meet no surprises.

Python's parser accepts NaN, repeated names, integers of any length and nesting up to its recursion limit. None of these
occurs in files that this package, diffusers or transformers writes, and each breaks a reader later on.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .limits import UNPACKED_BYTES, UnreadableFileError
from .text import first_line

MOST_BYTES = UNPACKED_BYTES  # a schedule set of T = 4000 has 4 MB
DEEPEST = 64
MOST_BITS = 256  # a seed may be long, but every number fits a float


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; `UnreadableFileError` names the file and what is wrong with it."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        document = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
        _check(document)
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{path}: there is no such file.") from error
    except RecursionError as error:
        raise UnreadableFileError(f"{path}: not a whole JSON file (nested deeper than {DEEPEST}).") from error
    except (OSError, ValueError) as error:
        raise UnreadableFileError(f"{path}: not a whole JSON file ({first_line(error)}). Write it again.") from error
    return document


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON file that holds an object (names and values)."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise UnreadableFileError(f"{path}: holds a JSON {type(document).__name__}, not an object. Write it again.")
    return document


@contextlib.contextmanager
def document_of(path: str | os.PathLike[str], kind: str, what: str, remedy: str = "") -> Iterator[dict[str, Any]]:
    """Read a JSON file of the format ``kind``, and yield its contents without the format.

    A file of another format, and errors in the block about its contents, raise `UnreadableFileError`: it is not ``what``
    it should be.
    """
    document = read_json_object(path)
    try:
        if (found := document.pop("format", None)) != kind:
            raise ValueError(f"format {found!r:.80} is not {kind!r}")
        yield document
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadableFileError(f"{path}: not {what} ({error!s:.300}).{remedy and ' '}{remedy}") from error


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON; a missing number is null")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r:.80} occurs twice")
        found[name] = value
    return found


def _check(document: Any) -> None:
    """Check the depth and the size of numbers, without recursion."""
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST}")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, int) and value.bit_length() > MOST_BITS:
                raise ValueError(f"a whole number of {value.bit_length()} bits, more than {MOST_BITS}")
            elif isinstance(value, float) and value in (float("inf"), float("-inf")):
                raise ValueError("a number too large for a float")
        level = below
