"""Numbers that take seconds each to compute, saved in a file one by one, so that a kill loses only the last one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from .writing import write_json


class NumberCache:
    """Lists of numbers by name. An unreadable file, or one of other work or another version, is overwritten."""

    def __init__(self, path: Path | None, identity: Any) -> None:
        self._path, self._identity = path, json.loads(json.dumps([__version__, identity]))
        self._lists = {} if path is None else self._read(path)

    def numbers(self, name: str, compute: Callable[[], Sequence[float]]) -> list[float]:
        """Return the numbers saved under ``name``, else those that ``compute`` returns."""
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = [float(number) for number in compute()]
            self._write()
        return found

    def _read(self, path: Path) -> dict[str, list[float]]:
        try:
            document = read_json_object(path)
            if document["identity"] != self._identity:
                return {}
            return {
                name: [math.nan if number is None else float(number) for number in numbers]
                for name, numbers in document["numbers"].items()
            }
        except (UnreadableFileError, OSError, KeyError, TypeError, ValueError, AttributeError):
            return {}

    def _write(self) -> None:
        if self._path is None:
            return
        numbers = {
            name: [number if math.isfinite(number) else None for number in found] for name, found in self._lists.items()
        }
        write_json(self._path, {"identity": self._identity, "numbers": numbers}, indent=None)
