"""Stage 0. Zip archives (.npz, .pt): declared sizes are checked before anything is unpacked.

Members are looked up by name inside the archive and read into memory; nothing is ever written under a member's name.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .limits import UnreadableFileError, check_unpacked

CHUNK = 2**24
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
    struct.error,
)


class Archive:
    """An open zip file whose members have unique names, known compression and no excessive total size."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        self.sizes: dict[str, int] = {}
        for member in archive.infolist():
            if member.filename in self.sizes:
                raise UnreadableFileError(f"{path}: holds {member.filename!r:.80} twice. Write it again.")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 0x1:
                raise UnreadableFileError(
                    f"{path}: {member.filename!r:.80} is encrypted or packed in an unusual way. Save it again."
                )
            self.sizes[member.filename] = member.file_size
        packed = path.stat().st_size
        check_unpacked(path, sum(self.sizes.values()), packed, "Save it uncompressed (np.savez, np.save, torch.save).")

    def read(self, name: str) -> bytearray:
        """Return all bytes of a member, with its checksum verified."""
        content = bytearray(self.sizes[name])
        view = memoryview(content)
        with self.archive.open(name) as file:
            filled = 0
            while filled < len(content):
                chunk = file.read(min(CHUNK, len(content) - filled))
                if not chunk:
                    raise UnreadableFileError(f"{self.path}: {name!r:.80} ends after {filled} of {len(content)} bytes.")
                view[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
            file.read(1)  # the checksum is compared at the end
        return content


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open ``path`` as an `Archive`; any defect, on opening or while reading, raises `UnreadableFileError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Archive(path, archive)
    except UnreadableFileError:
        raise
    except BROKEN as error:
        raise UnreadableFileError(
            f"{path}: not a whole zip archive ({error!s:.300}). It is truncated or damaged."
        ) from error


def check_one_directory(path: Path, archive: Archive) -> None:
    """Raise unless the archive ends with its directory, so that no other program finds other members in it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 98))
        tail = file.read()
    end = tail[-22:]
    start = int.from_bytes(end[16:20], "little")
    if start == 0xFFFFFFFF and tail[:4] == _END_64:
        start = int.from_bytes(tail[48:56], "little")
    if end[:4] != _END or end[20:] != b"\0\0" or start != archive.archive.start_dir:
        raise UnreadableFileError(f"{path}: has bytes before or after the archive. Save it again.")
