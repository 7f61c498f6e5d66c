"""Stage 9. One run on one output: a verb holds the lock of what it writes from its first moment to its last.

What it writes is nothing that it reads: --overwrite would take the data themselves, and figures that results bring into a
folder of images would be data of the next run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..runs.entries import check_apart
from ..runs.folder import claimed
from ..runs.lock import Lock

F = TypeVar("F", bound=Callable[..., None])
DATA = ("data", "heldout")  # parameters that may name a file or folder to read
READ = ("model", "statistics", "schedules", "also", "conditioning")


def claims_folder(command: F) -> F:
    """A verb that writes into the folder ``output``; a dry run claims nothing, a ``race`` does so itself."""
    return _claiming(command, Lock)


def claims_file(command: F) -> F:
    """A verb that writes the file ``output``."""
    return _claiming(command, Lock.of_file)


def _claiming(command: F, lock: Callable[[Path], Lock]) -> F:
    @functools.wraps(command)
    def claiming(*, output: Path, **options: Any) -> None:
        check_apart(output, *(_given(options, names) for names in (READ, DATA)))
        if options.get("dry_run") or options.get("race"):
            command(output=output, **options)
            return
        with claimed(output, lock):
            command(output=output, **options)

    return claiming  # type: ignore[return-value]


def _given(options: Mapping[str, Any], names: tuple[str, ...]) -> list[Any]:
    """Values of these parameters, each of those that may come several times."""
    values = [options.get(name) for name in names]
    return [each for value in values if value is not None for each in (value if isinstance(value, tuple) else (value,))]
