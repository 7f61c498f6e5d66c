"""Finished pieces of long work, saved in a folder, so that an interruption of any kind loses only a few seconds.

Pieces are only ever added, in new files ("shards"), each read whole or refused: a kill at any moment, a full disk or a
flipped bit loses at most the contents of one shard. The result of the work is a separate file; the folder is removed when
it is written.
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
SECONDS = 5.0  # longest time that finished work is not yet on disk
BYTES = 1 << 26  # and most memory that it takes until then


def progress_folder(path: Path) -> Path:
    """Return the folder for finished work until the file ``path`` is complete."""
    return path.with_name(path.name + ".progress")


class Progress:
    """Finished pieces in ``folder``: pairs of a key (any text) and named arrays.

    Opening creates the folder and locks it (`BusyError` names the holder; a killed process never leaves a lock behind),
    checks every shard, and refuses (`OtherWorkError`) those of another ``identity``, a dict of JSON values that describes
    the work (see `check_identity`); ``identity`` is then the one to continue with. A damaged shard is removed with a
    warning: only its pieces have to be computed again.

    Use it as a context manager: leaving it writes pending pieces, also after an error or Ctrl-C, and releases the lock.
    Write the final result before `remove`.

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
        """Yield every piece on disk, oldest first; a key that was written twice comes twice."""
        for path in self._shards:
            arrays, header = read_arrays(path)
            for number, key in enumerate(json.loads(header["keys"])):
                prefix = f"{number}/"
                yield key, {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}

    def write(self, key: str, arrays: Arrays) -> None:
        """Add a finished piece. It is on disk with the next write after `SECONDS`, or after `flush` or leaving."""
        self._pending.append((key, arrays))
        self._pending_bytes += sum(array.nbytes for array in arrays.values())
        if time.monotonic() - self._written >= SECONDS or self._pending_bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Write every pending piece now; after `ProgressError` earlier pieces are still on disk."""
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
            if not self.folder.is_dir():  # else it would be created again, with only a part of the work
                raise FileNotFoundError(errno.ENOENT, "the folder was removed while the work went on")
            write_arrays(path, arrays, header)
        except OSError as error:
            raise ProgressError(
                f"{self.folder}: finished work could not be written ({error.strerror or error}). What was written before "
                "is kept. Fix this and run the same command again to resume."
            ) from error
        self._shards.append(path)
        self._next += 1
        self._pending, self._pending_bytes = [], 0

    def remove(self) -> None:
        """Remove every piece and the folder, once the result is written elsewhere."""
        self._pending = []
        for path in self._shards:
            path.unlink(missing_ok=True)
        self._shards = []
        self.close()

    def close(self) -> None:
        """Release the lock without writing; an empty folder is removed."""
        self._lock.release()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not isinstance(error, ProgressError):  # writing has just failed
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
            warnings.warn(f"{path}: {error}; it is removed and its contents are computed again.", stacklevel=4)
            path.unlink()
            return False
        self.identity = check_identity(self.folder, identity, self.identity)
        return True


def _identity_in(header: dict[str, str]) -> dict[str, Any]:
    """Return the identity of the work that a shard belongs to; raise `DamagedFileError` if it is not a shard."""
    try:
        identity, keys = json.loads(header["identity"]), json.loads(header["keys"])
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedFileError("it is no part of this work") from error
    named = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if header.get("format") != FORMAT or "sha256" not in header or not isinstance(identity, dict) or not named:
        raise DamagedFileError("it is no part of this work")
    return identity
