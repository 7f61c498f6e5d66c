"""Packages that only some work needs, and what to install if one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(module: str, needed: str, extra: str, error: type[Exception] = ValueError, *, instead: str = "") -> Any:
    """Return an optional module, or raise: ``needed`` says what needs which package, ``extra`` is the extra to install."""
    try:
        return import_module(module)
    except ImportError as cause:
        raise error(
            f'{needed}, which is not installed ({cause}). Install it with pip install "dpstride[{extra}]"{instead}.'
        ) from cause
