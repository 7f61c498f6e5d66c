"""Atomic writing of files, the only way in which dpstride writes: a name has all of the new content or all of the old.

Contents go to a temporary file in the same folder, reach the disk, and only then get the name. The writer holds a kernel
lock on the temporary file, so that a file left behind by a kill can be distinguished from one being written: see
`remove_leftovers`. A test finds every other place that opens a file for writing.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

_PREFIX, _SUFFIX = ".dpstride-", ".tmp"  # not built from the file's own name, which may have the maximum length
_numbers = itertools.count()


class WriteError(OSError):
    """A file could not be written: a full disk, a read-only folder, a folder that was removed. The old one is kept."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = error.strerror or str(error)
        kept = " What was there before is kept." if os.path.isfile(path) else ""
        super().__init__(f"{path}: could not be written ({reason}).{kept} Fix this and run the same command again.")
        self.strerror = reason


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a file open for writing, which becomes ``path`` when the context ends, whole and durable, or not at all.

    Missing parent folders are created. On any failure `WriteError` names the file, the old file is kept, and the temporary
    file is removed.
    """
    named, temporary = Path(path), None
    try:
        if _is_stream(named):  # no old content to keep
            with named.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(named))  # a link stays a link
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary, descriptor = _create(target.parent)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise WriteError(named, error) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new folder for files that others write (diffusers), and move them to ``path`` when the context ends.

    Each replaces the file of its name as `atomic` does, but only once all are whole; other files there are kept.
    """
    named, temporary = Path(path), None
    try:
        named.mkdir(parents=True, exist_ok=True)
        temporary = named.parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}{_SUFFIX}"
        temporary.mkdir()
        with _held(temporary):
            yield temporary
            files = sorted(found for found in temporary.rglob("*") if found.is_file())
            for found in files:
                with found.open("rb") as file:
                    os.fsync(file.fileno())
            for found in files:
                target = named / found.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(found, target)
            for folder in {named / found.relative_to(temporary).parent for found in files}:
                _sync_folder(folder)
    except OSError as error:
        raise WriteError(named, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a lock on a temporary folder, so that `remove_leftovers` leaves it alone."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks, where leftovers are not removed
            hold(descriptor)
        yield
    finally:
        os.close(descriptor)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a whole file and return its path."""
    with atomic(path) as file:
        file.write(content)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a whole file in UTF-8, with line endings unchanged, and return its path."""
    return write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], document: Any, indent: int | None = 1) -> Path:
    """Write a JSON document, which must not contain NaN or infinity, and return its path."""
    return write_text(path, json.dumps(document, indent=indent, allow_nan=False) + "\n")


def without_nan(value: Any, digits: int | None = None) -> Any:
    """Return ``value`` as JSON values: NaN and infinity become None, and floats are rounded to ``digits`` significant ones."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(inner, digits) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(inner, digits) for inner in value]
    if not isinstance(value, float) or not math.isfinite(value):
        return None if isinstance(value, float) else value
    return value if digits is None else float(f"{value:.{digits}g}")


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed runs, but not of a run that is writing now."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            is_folder = path.is_dir() and not path.is_symlink()
            descriptor = os.open(path, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_NOFOLLOW)
            try:
                hold(descriptor)
                if is_folder:
                    shutil.rmtree(path)
                else:
                    path.unlink()
            finally:
                os.close(descriptor)


def _create(folder: Path) -> tuple[Path, int]:
    """Create a file in ``folder`` that `remove_leftovers` leaves alone."""
    while True:
        path = folder / f"{_PREFIX}{os.getpid()}-{next(_numbers)}{_SUFFIX}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:  # left by a killed process with the same id
            continue
        try:
            hold(descriptor)
        except BlockingIOError:  # another process takes it for a leftover
            os.close(descriptor)
            continue
        except OSError:  # a file system without locks, where leftovers are not removed
            return path, descriptor
        if is_file_of(descriptor, path):
            return path, descriptor
        os.close(descriptor)


def hold(descriptor: int, shared: bool = False) -> None:
    """Lock an open file until it is closed or the process ends; raise BlockingIOError if another process holds it."""
    import fcntl

    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _is_stream(path: Path) -> bool:
    """Return whether ``path`` is a pipe or a device, such as /dev/stdout."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def is_file_of(descriptor: int, path: Path) -> bool:
    """Return whether ``path`` still names this open file, which may have been removed since it was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
