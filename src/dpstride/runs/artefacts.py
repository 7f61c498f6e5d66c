"""Results as files of arrays, each kind with a name, a version and a record in JSON; what cannot be read as one is refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .progress import progress_folder
from .storage import Arrays, DamagedFileError, read_arrays, write_arrays


@dataclass(frozen=True)
class Artefact:
    """One kind of such files.

    Attributes:
        format: its name in the header.
        version: of what a file holds.
        what: its name in a sentence, "a … file".
        again: the remedy, as a clause.
        error: raised for a file that cannot be read as one.
    """

    format: str
    version: int
    what: str
    again: str
    error: type[ValueError]

    def write(self, path: Path, arrays: Arrays, record: dict[str, Any]) -> None:
        """Write to ``path``, whole or not at all."""
        header = {"format": self.format, "format_version": str(self.version), "metadata": json.dumps(record)}
        write_arrays(path, arrays, header)

    @contextlib.contextmanager
    def read(self, path: Path) -> Iterator[tuple[Arrays, dict[str, Any]]]:
        """Arrays and record of a file; what the block does not find as it must be is an error of this file too."""
        if not path.is_file():
            unfinished = progress_folder(path).is_dir()
            more = " Its estimate is not complete; run the same command again to finish it." if unfinished else ""
            raise self.error(f"{path}: there is no such file.{more}")
        try:
            arrays, header = read_arrays(path)
        except (DamagedFileError, OSError) as error:
            raise self.error(
                f"{path}: {error}. It is no {self.what} file, or a truncated or damaged one. Name one that dpstride wrote, "
                f"or remove it and {self.again}."
            ) from error
        if (found := header.get("format")) != self.format:
            raise self.error(f"{path}: format {found!r:.80} is not {self.format!r}; it is not a {self.what} file.")
        if (version := header.get("format_version")) != str(self.version):
            raise self.error(
                f"{path}: format version {version!s:.20} is not {self.version}; {self.again} with this version of dpstride, "
                "or read it with the version that wrote it."
            )
        try:
            if "sha256" not in header:
                raise ValueError("there is no checksum")
            yield arrays, json.loads(header["metadata"])
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError, IndexError, RecursionError) as error:
            raise self.error(
                f"{path}: not a valid {self.what} file ({error!r:.300}). It is damaged; {self.again}."
            ) from error
