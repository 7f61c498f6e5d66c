"""Results as files of arrays, each kind with a name, a version and a JSON record; unreadable files are refused."""

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
        version: version of the contents.
        what: its name in a sentence, "a … file".
        again: how to make the file again, as a clause.
        error: raised for a file that cannot be read.
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
        """Yield the arrays and the record of a file; errors in the block about their contents become errors of the file."""
        if not path.is_file():
            unfinished = progress_folder(path).is_dir()
            more = " Its estimate is not complete; run the same command again to finish it." if unfinished else ""
            raise self.error(f"{path}: there is no such file.{more}")
        try:
            arrays, header = read_arrays(path)
        except (DamagedFileError, OSError) as error:
            raise self.error(
                f"{path}: {error}. It is not a {self.what} file, or it is truncated or damaged. Name one that dpstride wrote, "
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
                raise ValueError("it has no checksum")
            yield arrays, json.loads(header["metadata"])
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError, IndexError, RecursionError) as error:
            raise self.error(
                f"{path}: not a valid {self.what} file ({error!r:.300}). It is damaged; {self.again}."
            ) from error
