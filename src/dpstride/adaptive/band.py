"""Regret of paths for samples: step costs ½ M_t (Φ_s − Φ_t), of which only M_t = E Σ e² is unknown between evaluated times.

Weighted nats mean nothing to a reader, so regret is a share of what the best path costs: 0.01 is one percent.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..objectives.band import Band, band_levels, data_deviation
from ..options import POSTERIOR, CostOptions
from ..statistics.artefact import DataRange, Statistics
from .candidates import Array
from .regret import Judge


class BandJudge(Judge):
    """A judge of paths whose costs are those of `band_costs`; the last step counts as one to the grid's lowest level."""

    def __init__(self, statistics: Statistics, evaluated: npt.ArrayLike, band: Band) -> None:
        # No decoder is paid for, so the data's levels do not matter.
        undecoded = replace(statistics, data_range=DataRange(None), decoder_upper=None, decoder_blocks=None)
        super().__init__(undecoded, evaluated, CostOptions(POSTERIOR))
        levels = band_levels(self.process, band, data_deviation(statistics))
        self._phi, self._phi_end = levels[self.grid], float(levels[1])

    def scale(self, least: Array) -> Array:
        """Return the costs of the best paths; a path that costs nothing has no regret either."""
        return np.where(least > 0.0, least, 1.0)

    @cached_property
    def decoder(self) -> Array:
        """Cost of the last step of each unit, [n, units]."""
        return np.asarray(0.5 * (self._phi_end - self._phi)[:, None] * self.squared_error)

    @cached_property
    def rough_decoder(self) -> tuple[Array, Array]:
        """Nothing but Σ e² is interpolated, and the last step is in proportion to it."""
        return np.full(self.grid.size, np.inf), self.decoder @ self.sizes

    @cached_property
    def _lines(self) -> tuple[Array, Array]:
        return np.zeros(self.t.size), 0.5 * (self._phi[self.s] - self._phi[self.t])
