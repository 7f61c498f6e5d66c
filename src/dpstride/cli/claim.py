"""Stage 9. One run per output: a verb holds the lock of its output from start to end.

An output must not be an input: --overwrite would delete the data themselves, and figures written into a folder of images
would be data of the next run.
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
    """Decorate a verb that writes the folder ``output``; a dry run claims nothing, and a ``race`` claims it itself."""
    return _claiming(command, Lock)


def claims_file(command: F) -> F:
    """Decorate a verb that writes the file ``output``."""
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
    """Return the values of these parameters as one list; a repeatable option contributes all its values."""
    values = [options.get(name) for name in names]
    return [each for value in values if value is not None for each in (value if isinstance(value, tuple) else (value,))]
