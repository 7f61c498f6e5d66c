"""Stage 9. One run on one output: a verb holds the lock of what it writes from its first moment to its last."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..runs.lock import Lock
from ..runs.writing import remove_leftovers

F = TypeVar("F", bound=Callable[..., None])


def claims_folder(command: F) -> F:
    """A verb that writes into the folder ``output``; a dry run writes nothing and claims nothing."""
    return _claiming(command, Lock)


def claims_file(command: F) -> F:
    """A verb that writes the file ``output``."""
    return _claiming(command, Lock.of_file)


def _claiming(command: F, lock: Callable[[Path], Lock]) -> F:
    @functools.wraps(command)
    def claimed(*, output: Path, **options: Any) -> None:
        if options.get("dry_run"):
            command(output=output, **options)
            return
        with _held(output, lock):
            command(output=output, **options)

    return claimed  # type: ignore[return-value]


@contextmanager
def _held(output: Path, lock: Callable[[Path], Lock]) -> Iterator[None]:
    """The lock, which of the processes of a launch only the main one takes; the others hear of it if it is refused."""
    from ..runs.workers import current

    workers = current()
    if not workers.main:
        yield
        return
    try:
        with lock(output) as taken:
            for folder in (taken.folder, *(taken.folder / name for name in ("features", "figures"))):
                remove_leftovers(folder)
            yield
    except BaseException as error:
        workers.fail(error)
        raise
