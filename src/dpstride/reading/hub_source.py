"""Stage 0. Names of datasets on the Hugging Face hub: which dataset, which part of it, and which files belong to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from .hints import hint, path_hint
from .text import printable

HUB = "hub:"
FORM = "Name a dataset on the Hugging Face hub as hub:OWNER/NAME, a local copy as hub:./FOLDER."
PACKED = re.compile(r"(zip|gzip|bz2|xz|lz4|zstd)://")


@dataclass(frozen=True)
class HubSource:
    """The name of a dataset: its place and its options."""

    place: str
    config: str | None = None
    split: str | None = None
    column: str | None = None
    labels: str | None = None
    prompts: str | None = None
    revision: str | None = None
    first: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``hub:OWNER/NAME,option=value,…``."""
        place, *parts = re.split(r",(?=\w+=)", text.removeprefix(HUB))
        known = [field.name for field in fields(cls) if field.name != "place"]
        options: dict[str, Any] = {}
        for name, _, value in (part.partition("=") for part in parts):
            if name not in known:
                raise ValueError(
                    f"{printable(text)}: there is no option {name!r:.40}.{hint(name, known)} Options are {', '.join(known)}."
                )
            if name in options or not value:
                raise ValueError(f"{printable(text)}: {name} needs one value, as in {name}=VALUE.")
            options[name] = value
        if (first := options.get("first")) is not None:
            if not (first.isascii() and first.isdecimal() and int(first) > 0):
                raise ValueError(
                    f"{printable(text)}: first must be a number of examples, at least 1, not {first!r:.40}."
                )
            options["first"] = int(first)
        source = cls(place, **options)
        if source.local and "revision" in options:
            raise ValueError(
                f"{printable(text)}: revision is for datasets on the hub, but this is a folder. Leave it out."
            )
        if place.startswith((".", "/", "~")) and not source.local:
            raise ValueError(f"{printable(text)}: {place!r:.200} is not a folder.{path_hint(Path(place).expanduser())}")
        if not source.local and not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
            raise ValueError(f"{printable(text)}: {place!r:.200} is not the id of a dataset. {FORM}")
        return source

    def __str__(self) -> str:
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "place"}
        words = [f"{name}={value}" for name, value in options.items() if value is not None]
        return printable(",".join([HUB + self.place, *words]))

    @cached_property
    def folder(self) -> Path:
        """The folder of a local copy."""
        return Path(self.place).expanduser().resolve()

    @property
    def local(self) -> bool:
        """Return whether this is a local copy."""
        return self.folder.is_dir()

    def holds(self, url: str) -> bool:
        """Return whether a file, or the archive it is in, belongs to this dataset; its tables and card may name any file."""
        *hops, outer = url.split("::")
        if not all(PACKED.match(hop) for hop in hops):
            return False
        if self.local:
            return "://" not in outer and os.path.isfile(outer) and lies_in(outer, self.folder)
        return outer.startswith(f"hf://datasets/{self.place}@") and ".." not in outer.split("/")


def is_hub(text: str) -> bool:
    """Return whether ``text`` is ``hub:`` with a path or an id; ``hub:function`` is a function in a user's own hub.py."""
    return text.startswith(HUB) and "/" in text


def first_of(text: str, count: int) -> str:
    """Limit the name of a dataset on the hub to the first ``count`` examples; other names are returned unchanged."""
    return f"{text},first={count}" if is_hub(text) and HubSource.parse(text).first is None else text


def lies_in(path: str | os.PathLike[str], folder: Path) -> bool:
    """Return whether a path leads into ``folder``, links followed, or into the hub's cache that the folder is part of."""
    real, home = Path(path).resolve(), folder.resolve()
    places = [home]
    if home.parent.name == "snapshots":  # cache/models--owner--name/snapshots/commit, and files in either blobs
        places += [home.parents[1] / "blobs", home.parents[2] / "blobs"]
    return any(real.is_relative_to(place) for place in places)


class StoredFiles:
    """Files that values were read from, each counted once; sizes declared in them are not trusted."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._seen: set[str] = set()
        self._new: list[str] = []
        self._size = 0
        for url in urls:
            self.add(url)

    def add(self, url: str) -> None:
        """Count the file of ``url``, or the archive it is in."""
        outer = url.rpartition("::")[2]
        if outer not in self._seen:
            self._seen.add(outer)
            self._new.append(outer)

    @property
    def size(self) -> int:
        """Bytes of all files as stored, looked up when first needed."""
        from fsspec.core import url_to_fs

        while self._new:
            system, path = url_to_fs(self._new.pop())
            self._size += int(system.size(path) or 0)
        return self._size
