"""Stage 3. One run at a time on one output: a lock in its folder, which no kill leaves behind."""

from __future__ import annotations

import errno
import os
import socket
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_NAME = "lock"


class BusyError(OSError):
    """Another run is working on the same output."""


class ProgressError(OSError):
    """Finished work could not be kept: a full disk, a read-only folder, a folder that was removed."""


class Lock:
    """Taken when made (`BusyError` names the process that has it), given back by `release` or at the end of a context.

    The folder is made if need be, and goes with the lock if nothing else is in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = _take(folder)

    def release(self) -> None:
        """Give it back; once is enough, twice does no harm."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            alone = {path.name for path in self.folder.iterdir()} == {_NAME}
            (self.folder / _NAME).unlink()
            if alone:
                self.folder.rmdir()
        os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _take(folder: Path) -> int:
    """An open file that holds the lock of ``folder``; the kernel gives it back however the process ends."""
    import fcntl

    for last_try in (False, False, True):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not last_try:
                continue  # a run that has just ended removed the folder between the two
            raise ProgressError(
                f"{folder}: progress cannot be kept there ({error.strerror}). Give an output in a folder that can be "
                "written."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 1000, 0).decode(errors="replace") or "a process that has just started"
            os.close(descriptor)
            raise BusyError(
                f"{folder}: another run is working on this output ({owner}). Wait for it, stop it, or give another output."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK):
                raise
            warnings.warn(f"{folder}: this file system has no locks; start no second run there.", stacklevel=4)
        if _is_current(descriptor, folder / _NAME):
            with suppress(OSError):  # a full disk; the lock holds without its owner's name
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            return descriptor
        os.close(descriptor)
    raise BusyError(f"{folder}: other runs come and go on this output. Give another output.")


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether ``path`` still names this file: who had the lock may have removed it, and a lock on that is worth nothing."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
