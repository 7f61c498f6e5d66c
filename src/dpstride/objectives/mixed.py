"""Stage 6. One path for likelihood and for samples: bits/dim plus λ times the trajectory cost.

Both objectives are sums over steps, so their weighted sum is one, and the solver's path exactly minimises

    bpd(path) + λ · cost(path),

the bits/dim of the negative ELBO and the trajectory cost, about the mean square distance per dimension from the teacher's end
points (see `trajectory`). Every such path lies on the lower convex hull of all paths' (bpd, cost), and every corner of the
hull is the best for some λ, so bisecting λ finds them all: `solver.front`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..options import DEFAULT_DECODER, DEFAULT_ODE_SAMPLER, Decoder, Variance
from ..schedule import ScheduleSet
from ..solver import solve
from ..solver.front import corners
from ..statistics.artefact import Statistics
from ..statistics.trajectory_artefact import Trajectory
from .elbo import elbo_costs
from .schedules import best_schedules
from .step_costs import StepCosts
from .trajectory import trajectory_costs


def mixed_costs(elbo: StepCosts, trajectory: StepCosts, weight: float, elbo_weight: float = 1.0) -> StepCosts:
    """``elbo_weight`` times the negative ELBO plus ``weight`` (λ, in bits/dim per unit of cost) times the trajectory cost.

    In nats, with the bits/dim and errors of the ELBO alone. ``elbo_weight=0`` with ``weight=1`` is the end of the trade-off
    where only the trajectory counts.
    """
    if trajectory.triples is not None:
        raise ValueError(
            "The mixed objective takes the trajectory cost of a sampler without memory: with memory it depends on two steps, "
            f"and the ELBO on one. Use trajectory_costs with sampler={DEFAULT_ODE_SAMPLER!r}."
        )
    if elbo.process.fingerprint != trajectory.process.fingerprint:
        raise ValueError(
            f"The two tables are on different grids (T = {elbo.process.T} and {trajectory.process.T}). Follow the teacher with "
            "kept= the grid of the statistics, or estimate statistics on trajectory.process."
        )
    for name, value in (("weight", weight), ("elbo_weight", elbo_weight)):
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}.")
    below = np.tri(elbo.T + 1, k=-1, dtype=bool)
    scale = weight * elbo.dims * math.log(2.0)
    distance = np.where(below, scale * np.where(below, trajectory.L, 0.0), np.inf)
    pairs = None
    if elbo.pairs is None:
        L = elbo_weight * np.where(below, elbo.L, 0.0) + distance
    else:
        L, pairs = np.full_like(elbo.L, np.inf), np.full_like(elbo.L, np.inf)
        inner = below.copy()
        inner[:, 0] = False
        L[inner] = elbo_weight * elbo.L[inner] + distance[inner]
        pairs[inner] = (
            elbo_weight * elbo.pairs[inner] + distance[inner] + np.broadcast_to(distance[:, 0], L.shape)[inner]
        )
    return StepCosts(
        process=elbo.process,
        dims=elbo.dims,
        table=L,
        pairs=pairs,
        pairs_rule=elbo.pairs_rule,
        unit="nats plus the weighted trajectory cost, without the prior",
        options={**elbo.options, "objective": "mixed", "lambda": float(weight)},
        fitted=elbo.fitted,
        provenance={**elbo.provenance, "trajectory": dict(trajectory.provenance)},
        likelihood=elbo,
        parts={"trajectory": trajectory},
    )


def mixed_schedules(
    statistics: Statistics,
    trajectory: Trajectory,
    weight: float,
    variance: Variance | None = None,
    decoder: Decoder = DEFAULT_DECODER,
    max_budget: int | None = None,
) -> ScheduleSet:
    """The best schedule of every budget for bits/dim + ``weight`` · trajectory cost; their bpd is that of the ELBO alone.

    ``provenance["trajectory_costs"]`` are their trajectory costs, by budget. Both arguments must have the same grid.
    """
    elbo = elbo_costs(statistics, variance, decoder)
    return best_schedules(mixed_costs(elbo, trajectory_costs(trajectory), weight), max_budget)


@dataclass(frozen=True)
class TradeOffPoint:
    """A path that is the best of bits/dim + λ · trajectory cost for every λ in ``weights``."""

    bpd: float
    trajectory_cost: float
    steps: tuple[int, ...]
    weights: tuple[float, float]


def trade_off(elbo: StepCosts, trajectory: StepCosts, budgets: Sequence[int]) -> dict[int, list[TradeOffPoint]]:
    """For each budget all paths that are the best for some λ, from the least bits/dim to the least trajectory cost.

    They are the corners of the convex hull of all paths' values; the Pareto front of all paths lies on or above it.
    """
    prior = elbo.bpd(0.0)
    unit = elbo.bpd(1.0) - prior
    fronts = {}
    for budget in budgets:

        def best(a: float, b: float, budget: int = budget) -> tuple[int, ...]:
            scale = max(a, b)
            costs = mixed_costs(elbo, trajectory, b / scale, elbo_weight=a / scale)
            return tuple(solve(costs, budget).path(budget))

        def costs(path: tuple[int, ...]) -> tuple[float, float]:
            return elbo.cost(path) * unit, trajectory.cost(path)

        fronts[int(budget)] = [
            TradeOffPoint(corner.first + prior, corner.second, corner.path, corner.weights)
            for corner in corners(best, costs)
        ]
    return fronts
