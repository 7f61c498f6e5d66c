"""Stage 4. Numbers fitted on the choosing data, used unchanged on other data and when sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .options import Cdf

if TYPE_CHECKING:
    from .statistics.artefact import DataRange, Statistics

Array = npt.NDArray[np.float64]
CURVE_NODES = 8  # per curve of a factor: within 1e-5 of the exact curve for the embedded models
FACTOR_SIZE = 1 + 2 * CURVE_NODES
_NUMBER = (int, float, type(None))


@dataclass(frozen=True)
class Fit:
    """A variance's or a decoder's rules for fitting its numbers on the choosing data.

    Attributes:
        numbers: their name in `Fitted`.
        on: returns all of them, from statistics at some grid indices, with the decoder's distribution function.
        at: returns one of them, roughly and quickly, from statistics at one grid index.
        from_errors: returns all of them from m = E Σ e²/dims alone, by grid index; None if the data's range needs more than m.
        note: a caution for results on a subset of the samples that use the numbers of all samples.
    """

    numbers: str
    on: Callable[[Statistics, npt.NDArray[np.int64], Cdf], Array]
    at: Callable[[Statistics, int, Cdf], float] | None = None
    from_errors: Callable[[Array, DataRange], Array | None] = lambda m, data_range: None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Numbers by grid index; each is None when its option has nothing to fit.

    ``mean_squared_error[t]`` is m = E Σ e²/dims, from which the optimal variance of any step t → s is g̃² (1 + Δ m);
    ``decoder_variance[t]`` is the decoder's; ``learned_factor[t]`` are the curves of `variances.learned_optimal`.
    """

    mean_squared_error: Array | None = None
    decoder_variance: Array | None = None
    learned_factor: Array | None = None

    def of(self, fit: Fit) -> Array:
        """The numbers of ``fit``, which the options guarantee to exist."""
        numbers: Array | None = getattr(self, fit.numbers)
        assert numbers is not None
        return numbers

    def has(self, name: str, T: int) -> bool:
        """True if there are numbers of that name for every index of a grid with T steps."""
        numbers = getattr(self, name)
        return numbers is not None and numbers.shape == _shape(name, T)

    def same(self, other: Fitted) -> bool:
        """True if all numbers are the same."""
        pairs = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        return all(
            a is b or (a is not None and b is not None and np.array_equal(a, b, equal_nan=True)) for a, b in pairs
        )

    def spread(self, where: npt.NDArray[np.int64], T: int) -> Fitted:
        """The numbers on a grid with T steps: those of index i at index where[i], NaN elsewhere."""
        found: dict[str, Array | None] = {}
        for each in fields(self):
            numbers = getattr(self, each.name)
            found[each.name] = None
            if numbers is not None:
                found[each.name] = spread_out = np.full((T + 1, *numbers.shape[1:]), np.nan)
                spread_out[where] = numbers
        return Fitted(**found)

    def check(self, T: int) -> None:
        """Raise unless there are numbers for every index of a grid with T steps."""
        for each in fields(self):
            numbers, shape = getattr(self, each.name), _shape(each.name, T)
            if numbers is not None and numbers.shape != shape:
                raise ValueError(
                    f"fitted.{each.name} must have one {'row' if shape[1:] else 'number'} per grid index, {T + 1} of them, "
                    f"not {numbers.shape}: fitted numbers belong to the grid on which they were fitted."
                )

    def to_json(self) -> dict[str, Any]:
        """The numbers as stored in a schedule file."""
        return {each.name: _to_list(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], T: int) -> Fitted:
        """Read what `to_json` wrote, and check it."""
        return cls(
            _from_list(document["mean_squared_error"], T, above=-np.finfo(np.float64).tiny),
            _from_list(document["decoder_variance"], T, above=0.0),
            _rows_from_list(document.get("learned_factor"), T),  # older files have none
        )


def _shape(name: str, T: int) -> tuple[int, ...]:
    return (T + 1, FACTOR_SIZE) if name == "learned_factor" else (T + 1,)


def _to_list(array: Array | None) -> list[Any] | None:
    if array is None:
        return None
    if array.ndim == 2:
        return [row.tolist() if np.isfinite(row).all() else None for row in array]
    return [float(x) if math.isfinite(x) else None for x in array]


def _from_list(values: Any, T: int, above: float) -> Array | None:
    if values is None:
        return None
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, _NUMBER) for v in values):
        raise ValueError("fitted numbers must be a list of numbers and nulls")
    array = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    if array.shape != (T + 1,):
        raise ValueError(f"fitted numbers must have {T + 1} entries, not {array.shape}")
    if (array[1:] <= above).any():  # index 0 is clean data, with nothing to fit
        raise ValueError("fitted numbers are mean squares: not negative, and above 0 where they are variances")
    return array


def _rows_from_list(values: Any, T: int) -> Array | None:
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != T + 1:
        raise ValueError(f"fitted factors must be a list of {T + 1} rows")
    rows = [[math.nan] * FACTOR_SIZE if row is None else row for row in values]
    whole = all(isinstance(row, list) and len(row) == FACTOR_SIZE for row in rows)
    if not whole or any(type(x) not in (int, float) for row in rows for x in row):
        raise ValueError(f"a fitted factor must be {FACTOR_SIZE} numbers, or null")
    array = np.array(rows, dtype=np.float64)
    if (array[:, 0] < 0.0).any() or (np.abs(array) > 1e4).any():
        raise ValueError("the numbers of a fitted factor are a range and logarithms: none beyond 10,000")
    return array
