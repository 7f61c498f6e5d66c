"""Checks of numbers given by a caller, one function each; every error names the rule and the value found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


def whole_number(value: Any, rule: str, least: float = 1, most: float = math.inf) -> int:
    """Return ``value`` as an int, if it is a whole number from ``least`` to ``most``; else raise with the ``rule``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise ValueError(f"{rule}, not {value!r:.80}.")
    return int(value)


def positive(value: Any, rule: str) -> float:
    """Return ``value`` as a float, if it is a finite number above 0; else raise with the ``rule``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < math.inf:
        raise ValueError(f"{rule}, not {value!r:.80}.")
    return float(value)


def looked_up(key: Any, unit: str) -> int:
    """Return ``key`` as the number of steps (the ``unit``) to look up in a set of schedules, or raise."""
    if isinstance(key, slice):
        raise ValueError(
            f"Schedules are looked up by one number of {unit} at a time, not by a slice. Take [schedules[K] for K in …], or "
            "list(schedules) for all."
        )
    return whole_number(key, f"Schedules are looked up by a whole number of {unit}, as in schedules[8]", -math.inf)


def check_seed(seed: Any) -> int:
    """Return a random seed that a counter-based stream can hold, or raise."""
    return whole_number(seed, "seed must be a whole number from 0 to 2**64 - 1", 0, 2**64 - 1)


def check_batch_size(batch_size: Any) -> int:
    """Return the number of samples per network pass, or raise."""
    return whole_number(batch_size, "batch_size must be a whole number of at least 1")


def spans(numbers: Sequence[int]) -> str:
    """Return ascending whole numbers in words, such as "1 to 100, 256"."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or number > numbers[i - 1] + 1]
    ends = [*(i - 1 for i in starts[1:]), len(numbers) - 1]
    runs = [(numbers[start], numbers[end]) for start, end in zip(starts, ends, strict=True)]
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
