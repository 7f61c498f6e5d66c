"""Regret of paths for samples: step costs ½ M_t (Φ_s − Φ_t), of which only M_t = E Σ e² is unknown between evaluated times.

Weighted nats mean nothing to a reader, so regret is a fraction of the best path's cost: 0.01 is one percent. If a band
bounds errors or is mixed with evenness, so are the costs here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..objectives.band import REFERENCE, Band, band_levels, data_deviation
from ..options import POSTERIOR, CostOptions
from ..statistics.artefact import DataRange, Statistics
from .candidates import Array
from .regret import Judge


class BandJudge(Judge):
    """A judge of paths whose costs are those of `band_costs`; the last step counts as one to the grid's lowest level."""

    def __init__(self, statistics: Statistics, evaluated: npt.ArrayLike, band: Band) -> None:
        # The costs have no decoder, so the data's levels do not matter.
        undecoded = replace(statistics, data_range=DataRange(None), decoder_upper=None, decoder_blocks=None)
        super().__init__(undecoded, evaluated, CostOptions(POSTERIOR))
        deviation = data_deviation(statistics)
        levels = band_levels(self.process, band, deviation)
        self._phi, self._phi_end = levels[self.grid], float(levels[1])
        self._most, self._evenness = band.cap * deviation**2 * self.dims, band.evenness

    def scale(self, least: Array) -> Array:
        """Return the costs of the best paths; a path that costs nothing has no regret either."""
        return np.where(least > 0.0, least, 1.0)

    def steps(self, weights: Array, factor: Array) -> Array:
        """Costs of all steps, as `Candidates.steps` has them, with bounded errors."""
        squared_error = np.minimum(self._mean_squared_error(weights, factor), self._most)
        even, line = self._lines
        return np.asarray(even + line * squared_error[self.t])

    @cached_property
    def decoder(self) -> Array:
        """Cost of the last step of each unit, [n, units]."""
        return np.asarray(self._unevenness(self.grid)[:, None] + self._last_steps)

    @cached_property
    def rough_decoder(self) -> tuple[Array, Array]:
        """Only Σ e² is interpolated, and the last step's cost is proportional to it."""
        return np.full(self.grid.size, np.inf), self._last_steps @ self.sizes

    @cached_property
    def _last_steps(self) -> Array:
        """The part of the last step's cost that is proportional to Σ e².

        Errors are not bounded here: last steps from where the bound matters are too long to be chosen.
        """
        return np.asarray(self._share * 0.5 * (self._phi_end - self._phi)[:, None] * self.squared_error)

    @cached_property
    def _lines(self) -> tuple[Array, Array]:
        even = self._unevenness(self.grid[self.t] - self.grid[self.s])
        return even, self._share * 0.5 * (self._phi[self.s] - self._phi[self.t])

    def _unevenness(self, length: npt.NDArray[np.int64]) -> Array:
        K = min(REFERENCE, self.process.T)
        return np.asarray(self._evenness * K * (length / self.process.T) ** 2)

    @cached_property
    def _share(self) -> float:
        """The factor of the band's own costs; 1 without evenness."""
        if not self._evenness:
            return 1.0
        squared_error = np.minimum(self.squared_error @ self.sizes, self._most)
        K = min(REFERENCE, self.grid.size)
        steps = 0.5 * (self._phi[self.s] - self._phi[self.t]) * squared_error[self.t]
        least = self.table(steps, 0.5 * (self._phi_end - self._phi) * squared_error, K).least[K]
        return (1.0 - self._evenness) / float(least if least > 0.0 else 1.0)
