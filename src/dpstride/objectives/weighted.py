"""Stage 6. Costs with other weights of the units than in the mean of all samples: smaller experiments, replicates.

Statistics by block are too rough for a table, so where there are no others the table of all samples is shifted by weighted
deviations of the blocks from their mean.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..fitted import Fitted
from ..statistics.decoder import gaussian_nats
from ..variances import Errors, Steps
from .engine import ElboEngine, Units

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class UnitCosts:
    """Costs by unit at some grid indices."""

    def __init__(self, engine: ElboEngine, units: Units, indices: Indices) -> None:
        self.engine, self.units, self.indices = engine, units, indices
        self.process, self.dims = engine.process, engine.dims

    @cached_property
    def squared_error(self) -> Array:
        """Σ e² of each unit, [n, units]."""
        return self.units.means(self.engine.statistics.squared_error[self.indices])

    @cached_property
    def decoder(self) -> Array:
        """Cost of the last step of each unit, [n, units], for decoders that depend on t alone."""
        return np.array([self.decoder_at(t) for t in self.indices.tolist()])

    def decoder_at(self, t: int) -> Array:
        """Cost of the last step from t of each unit, shifted to have the mean of all samples."""
        units = self.engine.decoder_units(self.units, t)
        return units if self.engine.decoder.is_upper(self.process, t) else self._with_mean(units, t)

    def _with_mean(self, units: Array, t: int) -> Array:
        ratio = self.units.dims_ratio
        return np.asarray(units + ratio * self.engine.decoder_nats(t) - ratio * (self.units.shares @ units))

    def refitted(self, mean_squared_error: Array) -> Fitted:
        """The numbers fitted to this E Σ e²/dims by grid index; those of all samples if they need more than that."""
        numbers = {}
        for fit in self.engine.fits:
            found = fit.from_errors(mean_squared_error, self.engine.statistics.data_range)
            numbers[fit.numbers] = self.engine.fitted.of(fit) if found is None else found
        return Fitted(**numbers)


class WeightedTables(UnitCosts):
    """Tables of any weighted mean of units, on the whole grid; weights add up to 1."""

    def __init__(self, engine: ElboEngine, units: Units) -> None:
        super().__init__(engine, units, np.arange(1, engine.process.T + 1))

    def table(self, weights: Array) -> tuple[Array, Array | None, Fitted]:
        """L and pairs, as `ElboEngine.table` has them with equal weights, and the fitted numbers.

        If the last two steps have a joint cost, the decoder's cost is that of all samples.
        """
        engine, T, weights = self.engine, self.process.T, self.units.balanced(weights)
        squares = np.append(0.0, self.squared_error @ weights)
        fitted = self.refitted(squares / self.dims)
        L = np.full((T + 1, T + 1), np.inf)
        for t in range(2, T + 1):
            s = np.arange(1, t)
            if engine.variance.learned:
                L[t, 1:t] = self._uniform[t, 1:t] + engine.step_deviations(self.units, t, s) @ weights
            else:
                L[t, 1:t] = engine.variance.nats(Steps(self.process, self.dims, t, s), Errors(squares[t]), fitted)
        if engine.decoder.couples:
            return L, engine.pairs(L, self._decoder_rows), fitted
        if engine.discretised:
            L[1:, 0] = self.decoder @ weights
        else:
            values = [engine.decoder.value(self.process, t, None, fitted) for t in self.indices.tolist()]
            L[1:, 0] = gaussian_nats(self.dims, squares[1:], np.array(values))
        return L, None, fitted

    @cached_property
    def _uniform(self) -> Array:
        return self.engine.table()[0]

    @cached_property
    def _decoder_rows(self) -> list[Array]:
        return [self.engine.decoder_row(t1) for t1 in range(1, self.process.T)]
