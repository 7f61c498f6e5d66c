"""Stage 5. One path for likelihood and for samples: bits/dim plus λ times the trajectory cost.

Both objectives are sums over steps, so their weighted sum is one, and the solver's path is the exact best of

    bpd(path) + λ · cost(path),

bits/dim of the negative ELBO and the trajectory cost, about the mean square distance per dimension from the teacher's end
points (see `trajectory`). Every such path lies on the lower convex hull of all paths' (bpd, cost), and every corner of the
hull is the best for some λ, so bisecting λ finds them all: `solver.front`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess
from .table import CostTable
from .trajectory import TrajectoryTable

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MixedTable:
    """What the solver takes for one λ: L and, for the `respaced` decoder, pairs, in nats."""

    process: ForwardProcess
    L: Array = field(repr=False)
    pairs: Array | None = field(default=None, repr=False)


def mixed_costs(elbo: CostTable, trajectory: TrajectoryTable, weight: float, elbo_weight: float = 1.0) -> MixedTable:
    """``elbo_weight`` times the negative ELBO plus ``weight`` (λ, in bits/dim per unit of cost) times the trajectory cost.

    ``elbo_weight=0`` with ``weight=1`` is the end of the trade-off where only the trajectory counts.
    """
    if trajectory.triples is not None:
        raise ValueError(
            "The mixed objective takes the trajectory cost of DDIM: that of dpmpp_2m depends on two steps, and the ELBO on one."
        )
    if elbo.process.fingerprint != trajectory.process.fingerprint:
        raise ValueError(
            f"The two tables are on different grids (T = {elbo.process.T} and {trajectory.process.T}). Follow the teacher with "
            "kept= the grid of the statistics, or estimate statistics on trajectory.process."
        )
    for name, value in (("weight", weight), ("elbo_weight", elbo_weight)):
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}.")
    unit = weight * elbo.dims * math.log(2.0)
    below = np.tri(elbo.T + 1, k=-1, dtype=bool)
    distance = np.where(below, unit * np.where(below, trajectory.L, 0.0), np.inf)
    if elbo.pairs is None:
        return MixedTable(elbo.process, elbo_weight * np.where(below, elbo.L, 0.0) + distance)
    L, pairs = np.full_like(elbo.L, np.inf), np.full_like(elbo.L, np.inf)
    inner = below.copy()
    inner[:, 0] = False
    L[inner] = elbo_weight * elbo.L[inner] + distance[inner]
    pairs[inner] = elbo_weight * elbo.pairs[inner] + distance[inner] + np.broadcast_to(distance[:, 0], L.shape)[inner]
    return MixedTable(elbo.process, L, pairs)
