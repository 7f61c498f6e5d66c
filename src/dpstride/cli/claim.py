"""Stage 9. One run on one output: a verb holds the lock of what it writes from its first moment to its last."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..runs.folder import claimed
from ..runs.lock import Lock

F = TypeVar("F", bound=Callable[..., None])


def claims_folder(command: F) -> F:
    """A verb that writes into the folder ``output``; a dry run claims nothing, a ``race`` does so itself."""
    return _claiming(command, Lock)


def claims_file(command: F) -> F:
    """A verb that writes the file ``output``."""
    return _claiming(command, Lock.of_file)


def _claiming(command: F, lock: Callable[[Path], Lock]) -> F:
    @functools.wraps(command)
    def claiming(*, output: Path, **options: Any) -> None:
        if options.get("dry_run") or options.get("race"):
            command(output=output, **options)
            return
        with claimed(output, lock):
            command(output=output, **options)

    return claiming  # type: ignore[return-value]
