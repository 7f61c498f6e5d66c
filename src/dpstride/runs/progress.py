"""Finished pieces of a long work, kept in a folder, so that whatever stops the work loses a few seconds of it.

Pieces are only ever added, in new files ("shards"), each whole or refused: a kill at any moment, a full disk or a flipped
bit costs what one shard held and nothing else. The result of the work is a file of its own; the folder goes when it is
written.
"""

from __future__ import annotations

import errno
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from .identity import check_identity
from .lock import Lock, ProgressError
from .storage import Arrays, DamagedFileError, read_arrays, write_arrays
from .writing import remove_leftovers

FORMAT = "dpstride-progress"
SECONDS = 5.0  # at most so much finished work is not yet on the disk
BYTES = 1 << 26  # and at most so much memory


def progress_folder(path: Path) -> Path:
    """Where finished work is kept until the file ``path`` is complete."""
    return path.with_name(path.name + ".progress")


class Progress:
    """Finished pieces in ``folder``: pairs of a key (any text) and named arrays.

    Opening makes the folder and locks it (`BusyError` names the process that has it; a killed process never leaves a
    lock behind), checks every shard, and refuses (`OtherWorkError`) those of another ``identity``, a dict of JSON values
    that says what the work is (see `check_identity`); ``identity`` is then the one to go on with. A damaged shard is named
    in a warning and removed: only its pieces are to be done again.

    Use it as a context: leaving it writes what is pending, also after an error or Ctrl-C, and gives the lock back. Write
    the final result before `remove`.

        with Progress(folder, {"seed": 0}) as progress:
            done = dict(progress.read())
            for key in keys:
                if key not in done:
                    progress.write(key, compute(key))  # {"features": array}; not to be changed afterwards
            save_result()
            progress.remove()
    """

    def __init__(self, folder: str | os.PathLike[str], identity: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._pending: list[tuple[str, Arrays]] = []
        self._pending_bytes = 0
        self._written = time.monotonic()
        self._lock = Lock(self.folder, own=True)
        try:
            for place in (self.folder, self.folder.parent):  # the result is written beside it
                remove_leftovers(place)
            found = sorted(path for path in self.folder.glob("*.safetensors") if path.stem.isdecimal())
            self._shards = [path for path in found if self._check(path)]
        except BaseException:
            self.close()
            raise
        self._next = 1 + max((int(path.stem) for path in self._shards), default=0)

    def read(self) -> Iterator[tuple[str, Arrays]]:
        """Every piece that is on the disk, oldest first; a key that was written twice comes twice."""
        for path in self._shards:
            arrays, header = read_arrays(path)
            for number, key in enumerate(json.loads(header["keys"])):
                prefix = f"{number}/"
                yield key, {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}

    def write(self, key: str, arrays: Arrays) -> None:
        """Add a finished piece. It is on the disk with the next write after `SECONDS`, or after `flush` or leaving."""
        self._pending.append((key, arrays))
        self._pending_bytes += sum(array.nbytes for array in arrays.values())
        if time.monotonic() - self._written >= SECONDS or self._pending_bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Put every piece on the disk now; on `ProgressError` what was there before is still there."""
        self._written = time.monotonic()
        if not self._pending:
            return
        path = self.folder / f"{self._next:08d}.safetensors"
        arrays = {
            f"{number}/{name}": array
            for number, (_, piece) in enumerate(self._pending)
            for name, array in piece.items()
        }
        header = {
            "format": FORMAT,
            "identity": json.dumps(self.identity),
            "keys": json.dumps([key for key, _ in self._pending]),
        }
        try:
            if not self.folder.is_dir():  # else it would be made again, with a part of the work
                raise FileNotFoundError(errno.ENOENT, "the folder was removed while the work went on")
            write_arrays(path, arrays, header)
        except OSError as error:
            raise ProgressError(
                f"{self.folder}: finished work could not be written ({error.strerror or error}). What was written before "
                "is kept; put this right and run the same command again, which goes on from there."
            ) from error
        self._shards.append(path)
        self._next += 1
        self._pending, self._pending_bytes = [], 0

    def remove(self) -> None:
        """Remove every piece and the folder: the result is written elsewhere."""
        self._pending = []
        for path in self._shards:
            path.unlink(missing_ok=True)
        self._shards = []
        self.close()

    def close(self) -> None:
        """Give the lock back, without writing; an empty folder goes."""
        self._lock.release()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not isinstance(error, ProgressError):  # which has just said that writing fails
                self.flush()
        except ProgressError as second:
            if error is None:
                raise
            warnings.warn(str(second), stacklevel=2)
        finally:
            self.close()

    def _check(self, path: Path) -> bool:
        try:
            _, header = read_arrays(path)
            identity = _identity_in(header)
        except DamagedFileError as error:
            warnings.warn(f"{path}: {error}; it is removed and what it held is computed again.", stacklevel=4)
            path.unlink()
            return False
        self.identity = check_identity(self.folder, identity, self.identity)
        return True


def _identity_in(header: dict[str, str]) -> dict[str, Any]:
    """The identity of the work that a shard says it is of; `DamagedFileError` if it is no shard."""
    try:
        identity, keys = json.loads(header["identity"]), json.loads(header["keys"])
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedFileError("it is no part of this work") from error
    named = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if header.get("format") != FORMAT or "sha256" not in header or not isinstance(identity, dict) or not named:
        raise DamagedFileError("it is no part of this work")
    return identity
