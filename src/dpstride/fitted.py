"""Stage 4. Numbers fitted on the data that chose a path, used unchanged on other data and when sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .statistics.bins import chebyshev_matrix

Array = npt.NDArray[np.float64]
Index = int | npt.NDArray[np.int64]
CURVE_NODES = 8  # of each curve of a factor: within 1e-5 of it for the embedded models
FACTOR_SIZE = 1 + 2 * CURVE_NODES
FIELDS = {  # option and choice → what is fitted for it
    ("variance", "optimal"): "mean_squared_error",
    ("variance", "learned_optimal"): "learned_factor",
    ("decoder", "optimal"): "decoder_variance",
}
_NUMBER = (int, float, type(None))


@dataclass(frozen=True, eq=False)
class Fitted:
    """Numbers by grid index; each is None when its option has nothing to fit.

    ``mean_squared_error[t]`` is m = E Σ e²/dims, from which the optimal variance of any step t → s is g̃² (1 + Δ m);
    ``decoder_variance[t]`` is the decoder's; ``learned_factor[t]`` is what `factor` reads: the largest δ, and at Chebyshev
    nodes of δ between 0 and it ln(E Σ exp(−φδ)/dims)/δ and ln(E Σ e² exp(−φδ)/dims).
    """

    mean_squared_error: Array | None = None
    decoder_variance: Array | None = None
    learned_factor: Array | None = None

    def factor(self, t: Index, delta: Array, Delta: Array) -> Array:
        """By how much the learned variance of steps t → s is best multiplied: E Σ (1 + Δ e²) exp(−φδ) / dims."""
        assert self.learned_factor is not None
        rows = self.learned_factor[np.broadcast_to(t, np.shape(delta))]
        share = delta / np.maximum(rows[..., 0], 1e-300)
        nodes = chebyshev_matrix(0.0, 1.0, CURVE_NODES, np.reshape(share, -1)).reshape(*np.shape(delta), 1, CURVE_NODES)
        curves = (rows[..., 1:].reshape(*np.shape(delta), 2, CURVE_NODES) * nodes).sum(axis=-1)
        return np.asarray(np.exp(delta * curves[..., 0]) + Delta * np.exp(curves[..., 1]))

    def same(self, other: Fitted) -> bool:
        """Whether all numbers are the same."""
        pairs = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        return all(
            a is b or (a is not None and b is not None and np.array_equal(a, b, equal_nan=True)) for a, b in pairs
        )

    def spread(self, where: npt.NDArray[np.int64], T: int) -> Fitted:
        """The numbers of index i at index where[i] of a grid with T steps; NaN at others."""
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
            numbers, shape = getattr(self, each.name), shape_of(each.name, T)
            if numbers is not None and numbers.shape != shape:
                raise ValueError(
                    f"fitted.{each.name} must have one {'row' if shape[1:] else 'number'} per grid index, {T + 1} of them, "
                    f"not {numbers.shape}: fitted numbers belong to the grid on which they were fitted."
                )

    def to_json(self) -> dict[str, Any]:
        """For a schedule file."""
        return {each.name: _to_list(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], T: int) -> Fitted:
        """What `to_json` wrote, checked."""
        return cls(
            _from_list(document["mean_squared_error"], T, above=-np.finfo(np.float64).tiny),
            _from_list(document["decoder_variance"], T, above=0.0),
            _rows_from_list(document.get("learned_factor"), T),  # older files have none
        )


def fields_of(options: Mapping[str, Any]) -> dict[str, str]:
    """What these options need fitted: option → name of the numbers."""
    return {
        option: FIELDS[option, options[option]]
        for option in ("variance", "decoder")
        if (option, options.get(option)) in FIELDS
    }


def shape_of(name: str, T: int) -> tuple[int, ...]:
    """Shape of the numbers of that name on a grid with T steps."""
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
