"""Warnings about data and model, given before the network runs: shown once, and kept for the notes of the result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from ..runs.workers import current

R = TypeVar("R")


def heard(work: Callable[[], R]) -> tuple[R, tuple[str, ...]]:
    """Do ``work``; return its result and the texts of its distinct warnings, each of which is passed on once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = work()
    different = {str(each.message): each for each in caught}
    for each in different.values() if current().main else ():
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    notes = (text for text, each in different.items() if not issubclass(each.category, DeprecationWarning))
    return result, tuple(notes)
