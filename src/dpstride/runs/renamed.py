"""Renamed keywords; the old name works for one release, with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def renamed(**names: str) -> Callable[[F], F]:
    """Let a function also take keywords by their old names: ``old="new"``."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def taking(*args: Any, **keywords: Any) -> Any:
            for old, new in names.items():
                if (value := keywords.pop(old, None)) is None:
                    continue
                name = function.__name__
                warnings.warn(f"{name}({old}=…) is now {name}({new}=…).", DeprecationWarning, stacklevel=2)
                if keywords.get(new) is not None:
                    raise ValueError(f"{old} is the old name of {new}: give {new} only.")
                keywords[new] = value
            return function(*args, **keywords)

        return taking  # type: ignore[return-value]

    return decorate
