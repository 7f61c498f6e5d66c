"""Stage 3. Positions of grid indices between the evaluated ones, and interpolation there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..options import LEARNED_RANGE
from ..process import ForwardProcess
from .artefact import Statistics
from .coordinate import cuts, monotone_cubic, noise_coordinate
from .smooth import smooth_values

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def check_evaluated(process: ForwardProcess, evaluated: npt.ArrayLike) -> Mask:
    """The mask as an array of booleans by grid index, or a clear error."""
    mask = np.asarray(evaluated)
    if mask.dtype != np.bool_ or mask.shape != (process.T + 1,):
        raise ValueError(
            f"evaluated must be one boolean per grid index, {process.T + 1} of them, not {mask.dtype} of shape {mask.shape}."
        )
    if missing := [t for t in (1, process.T) if not mask[t]]:
        raise ValueError(
            f"Grid indices 1 and T = {process.T} must be evaluated, since statistics are interpolated and never "
            f"extrapolated, but {' and '.join(map(str, missing))} is not. Add it to the indices."
        )
    return mask & (np.arange(mask.size) > 0)


def predicts_of(statistics: Statistics) -> str:
    """The prediction target of the network of ``statistics``; hand-made ones may not record it, and have errors of x̂_0."""
    return str(statistics.model.get("predicts", "x0"))


def coordinate_of(statistics: Statistics) -> Array:
    """The coordinate in which rows of ``statistics`` are filled in, at every grid index."""
    learned = statistics.model.get("variance") == LEARNED_RANGE
    return noise_coordinate(statistics.process, float(statistics.data_square.mean()), predicts_of(statistics), learned)


def interpolate(u: Array, values: Array, mask: Mask) -> Array:
    """Monotone cubic interpolation in ``u`` of ``values`` [T + 1] that are known where ``mask`` is True; row 0 is unchanged."""
    known = np.flatnonzero(mask[1:]) + 1
    result = values.copy()
    if known.size > 1:
        wanted = np.flatnonzero(~mask[1:]) + 1
        result[wanted] = monotone_cubic(u[known], values[known])(u[wanted])
    return result


@dataclass(frozen=True)
class Place:
    """Where each grid index lies between its evaluated neighbours, in the noise coordinate u."""

    mask: Mask
    u: Array
    below: npt.NDArray[np.int64]  # a <= t, evaluated
    above: npt.NDArray[np.int64]  # b >= t, evaluated
    weight: Array  # of b; that of a is 1 − weight
    wanted: Mask  # rows to fill
    pieces: list[npt.NDArray[np.int64]] | None = None  # evaluated rows between breaks, which are smoothed

    @classmethod
    def between(
        cls, statistics: Statistics, mask: Mask, rows: npt.ArrayLike | None = None, smooth: bool = False
    ) -> Place:
        """The places of all grid indices, of which ``rows`` (all when None) are to be filled."""
        wanted = np.full(mask.size, rows is None)
        if rows is not None:
            wanted[np.asarray(rows)] = True
        u = coordinate_of(statistics)
        known = np.flatnonzero(mask[1:]) + 1
        t = np.arange(mask.size)
        above = known[np.searchsorted(known, t)]
        below = known[np.maximum(np.searchsorted(known, t, side="right") - 1, 0)]
        gap = u[above] - u[below]
        weight = np.divide(u - u[below], gap, out=np.zeros(mask.size), where=gap > 0.0)
        pieces = np.split(known, np.searchsorted(known, cuts(statistics.process))) if smooth else None
        return cls(mask, u, below, above, weight=weight, wanted=wanted, pieces=pieces)

    @property
    def missing(self) -> list[int]:
        """Grid indices to fill, including evaluated ones if they are smoothed."""
        left = self.wanted if self.pieces is not None else self.wanted & ~self.mask
        return [int(t) for t in np.flatnonzero(left[1:]) + 1]

    def curve(self, values: Array, units: Array) -> Array:
        """``values`` [T + 1] interpolated between evaluated rows; ``units`` [T + 1, N] show the noise if rows are smoothed."""
        for piece in self.pieces or ():
            values = values.copy()
            values[piece] = smooth_values(self.u[piece], values[piece], units[piece])
        return interpolate(self.u, values, self.mask)

    def neighbours(self, t: int) -> list[tuple[int, float]]:
        """Evaluated neighbours of t and their weights; an evaluated t is its own neighbour."""
        if self.mask[t]:
            return [(t, 1.0)]
        w = float(self.weight[t])
        return [(int(self.below[t]), 1.0 - w), (int(self.above[t]), w)]

    def sides(self, t: npt.NDArray[np.int64]) -> list[tuple[npt.NDArray[np.int64], Array]]:
        """Evaluated neighbours of each t, all below and then all above, and their weights."""
        return [(self.below[t], 1.0 - self.weight[t]), (self.above[t], self.weight[t])]

    def mix(self, values: Array, t: npt.NDArray[np.int64]) -> Array:
        """Weighted means of the neighbours' rows, for each t."""
        w = self.weight[t].reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray((1.0 - w) * values[self.below[t]] + w * values[self.above[t]])
