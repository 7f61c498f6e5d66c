"""Compilation of kernels: numba.njit with our options, at the first call, cached on disk if it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numba.extending

# Typed in some versions of numba and not in others.
njit: Any = numba.njit
intrinsic: Any = numba.extending.intrinsic
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile ``function`` without the GIL, so that threads can run it at the same time."""
    return _compiled(function)


def fused(function: Function) -> Function:
    """Compile ``function``; a product and a sum in it may be fused."""
    return _compiled(function, fastmath={"contract"})


def _compiled(function: Function, **options: Any) -> Function:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Function, njit(cache=True, **options)(function))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return cast(Function, njit(**options)(function))
