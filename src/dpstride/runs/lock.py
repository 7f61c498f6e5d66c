"""One run at a time per output: a kernel lock on a file next to it, which is released even if the process is killed.

A run that writes a folder holds the file ``lock`` in it; a run that writes a single file holds ``NAME.lock`` next to that
file. The two exclude each other in one folder; runs that write different files in it do not.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..reading.text import printable
from .writing import hold, is_file_of

_NAME = "lock"
_OF_FILES = ".lock"
_POLL = 0.1  # seconds
_OWNER = b"process "  # beginning of a lock's file, once it is taken
LONGEST = ".progress"  # longest suffix added to the name of an output file


class BusyError(OSError):
    """Another run is working on the same output."""


class ProgressError(OSError):
    """Finished work could not be saved: a full disk, a read-only folder, a folder that was removed."""


class Lock:
    """A lock, acquired on construction (`BusyError` names the holder), released by `release` or at the end of a context.

    The folder is created if needed; a folder created for the lock is removed with it if it is empty.

    Args:
        folder: the folder that only one run may write.
        name: name of the lock's file.
        own: the folder exists for this work alone, so it is removed even if an earlier run created it.
        patience: seconds to wait for another run to end.
    """

    def __init__(self, folder: Path, name: str = _NAME, own: bool = False, patience: float = 0.0) -> None:
        self.folder, self.path = folder, folder / name
        self._goes = own or not os.path.isdir(folder)
        until = time.monotonic() + patience
        while True:
            try:
                self._descriptor: int | None = _take(self.path)
                break
            except BusyError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_POLL)
        try:
            for rival in folder.glob(f"*{_OF_FILES}") if name == _NAME else [folder / _NAME]:
                check_free(rival)
        except BaseException:
            self.release()
            raise

    @classmethod
    def of_file(cls, path: Path) -> Lock:
        """Return the lock of one output file; refuse a name too long for the files kept next to it."""
        try:
            os.lstat(path.with_name(path.name + LONGEST))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _unwritable(path, error) from error
        return cls(path.parent, path.name + _OF_FILES)

    def check(self) -> None:
        """Raise unless the lock is still held: removing the folder removes the lock, and another run may be there."""
        if self._descriptor is not None and not is_file_of(self._descriptor, self.path):
            raise ProgressError(
                f"{_output_of(self.path)}: the folder was removed or exchanged during this run, so that its results are not "
                "complete. Run the same command again."
            )

    def release(self) -> None:
        """Release the lock; releasing it twice is harmless."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            # Otherwise the folder was removed, and another run may have created it again.
            if is_file_of(self._descriptor, self.path):
                self.path.unlink()
        if self._goes:
            with suppress(OSError):  # not empty
                self.folder.rmdir()
        os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def check_free(path: Path, patience: float = 0.0) -> None:
    """Raise `BusyError` if a run is writing ``path``, which is a lock's file or a folder that may hold one."""
    path = path / _NAME if path.is_dir() else path
    until = time.monotonic() + patience
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # else a pipe would block
        except OSError:
            return
        try:
            hold(descriptor, shared=True)
            return
        except BlockingIOError:
            if not _is_ours(descriptor):  # another program's lock of the same name
                return
            if time.monotonic() >= until:
                raise _busy(path, descriptor) from None
        except OSError:  # a file system without locks
            return
        finally:
            os.close(descriptor)
        time.sleep(_POLL)


def _busy(path: Path, descriptor: int) -> BusyError:
    owner = os.pread(descriptor, 1000, 0).decode(errors="replace") or "a process that has just started"
    return BusyError(
        f"{_output_of(path)}: another run is working on this output ({printable(owner, 200)}). Wait for it, stop it, or "
        "give another output."
    )


def _is_ours(descriptor: int) -> bool:
    """Return whether an open file is our lock, held or left behind, and not a user's file of that name."""
    return stat.S_ISREG(os.fstat(descriptor).st_mode) and os.pread(descriptor, len(_OWNER), 0) in (b"", _OWNER)


def _in_the_way(path: Path) -> ProgressError:
    return ProgressError(
        f"{path}: it is not a lock of dpstride, which would overwrite it. Rename it, or give another output."
    )


def _unwritable(path: Path, error: OSError) -> ProgressError:
    remedy = "a shorter name" if error.errno == errno.ENAMETOOLONG else "an output in a folder that can be written"
    return ProgressError(f"{path}: cannot be written ({error.strerror}). Give {remedy}.")


def _output_of(lock: Path) -> Path:
    return lock.parent if lock.name == _NAME else lock.with_name(lock.name.removesuffix(_OF_FILES))


def _take(path: Path) -> int:
    """Return an open file that holds the lock; the kernel releases it however the process ends."""
    for last_try in (False, False, True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link, which may point anywhere
                raise _in_the_way(path) from error
            if isinstance(error, FileNotFoundError) and not last_try:
                continue  # a run that just ended removed the folder in between
            raise _unwritable(_output_of(path), error) from error
        try:
            hold(descriptor)
        except BlockingIOError:
            busy = _busy(path, descriptor)
            os.close(descriptor)
            raise busy from None
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK):
                raise
            warnings.warn(f"{path.parent}: this file system has no locks; start no second run there.", stacklevel=4)
        if not _is_ours(descriptor):
            os.close(descriptor)
            raise _in_the_way(path)
        if is_file_of(descriptor, path):
            with suppress(OSError):  # a full disk; the lock works without its owner's name
                since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}".encode(), 0)
            return descriptor
        os.close(descriptor)
    raise BusyError(f"{path.parent}: other runs keep starting and ending on this output. Give another output.")
