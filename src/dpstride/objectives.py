"""The method for other objectives than the ELBO, in the order of the same stages; see `pipeline` first.

denoiser → trajectory → costs → solution → schedules                       for deterministic samplers
statistics, trajectory → both costs → solution → schedules, or their front  for one path that serves both
statistics → costs in continuous time → solution, again and again → schedule  for times between those of the grid

The default of everything stays the paper's objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .schedule import ScheduleSet

if TYPE_CHECKING:
    from .costs.table import CostTable
    from .costs.trajectory import Combine, OdeSampler, TrajectoryTable, Weight
    from .options import Decoder, Variance
    from .solver.continuous import Refined
    from .statistics.artefact import Statistics
    from .statistics.trajectory_artefact import Trajectory


def trajectory_schedules(
    trajectory: Trajectory,
    sampler: OdeSampler = "ddim",
    max_budget: int | None = None,
    weight: Weight = "measured",
    combine: Combine = "squares",
) -> ScheduleSet:
    """The best schedule of every budget for a deterministic sampler; ``provenance["costs"]`` are their costs, by budget."""
    from .costs.trajectory import trajectory_costs
    from .solver import solve

    table = trajectory_costs(trajectory, sampler, weight, combine)
    solution = solve(table, max_budget)
    budgets = [int(budget) for budget in np.flatnonzero(np.isfinite(solution.costs))]
    return ScheduleSet(
        process=table.process,
        entries={budget: (tuple(solution.path(budget)), None, None) for budget in budgets},
        stride="dp",
        options=table.options,
        provenance={**table.provenance, "costs": [solution.cost_nats(budget) for budget in budgets]},
    )


def mixed_schedules(
    statistics: Statistics,
    trajectory: Trajectory,
    weight: float,
    variance: Variance | None = None,
    decoder: Decoder = "upper",
    max_budget: int | None = None,
) -> ScheduleSet:
    """The best schedule of every budget for bits/dim + ``weight`` · trajectory cost; their bpd is that of the ELBO alone.

    ``provenance["trajectory_costs"]`` are the others, by budget. Both arguments must be of one grid.
    """
    from .costs.elbo import elbo_costs
    from .costs.mixed import mixed_costs
    from .costs.trajectory import trajectory_costs
    from .solver import solve

    elbo, distance = elbo_costs(statistics, variance, decoder), trajectory_costs(trajectory)
    solution = solve(mixed_costs(elbo, distance, weight), max_budget)
    budgets = [int(budget) for budget in np.flatnonzero(np.isfinite(solution.costs))]
    paths = [tuple(solution.path(budget)) for budget in budgets]
    return ScheduleSet(
        process=elbo.process,
        entries={
            budget: (path, elbo.bpd(float(elbo.step_nats(path).sum())), error)
            for budget, path, error in zip(budgets, paths, elbo.standard_errors(paths), strict=True)
        },
        stride="dp",
        options={**elbo.options, "objective": "mixed", "lambda": float(weight)},
        fitted=elbo.fitted,
        provenance={
            **elbo.provenance,
            "trajectory": dict(distance.provenance),
            "trajectory_costs": [float(distance.step_costs(path).sum()) for path in paths],
        },
    )


@dataclass(frozen=True)
class TradeOffPoint:
    """A path that is the best of bits/dim + λ · trajectory cost for every λ in ``weights``."""

    bpd: float
    trajectory_cost: float
    steps: tuple[int, ...]
    weights: tuple[float, float]


def trade_off(elbo: CostTable, trajectory: TrajectoryTable, budgets: Sequence[int]) -> dict[int, list[TradeOffPoint]]:
    """For each budget all paths that are the best for some λ, from the least bits/dim to the least trajectory cost.

    They are the corners of the convex hull of what all paths reach; the Pareto front of all paths lies on or above it.
    """
    from .costs.mixed import mixed_costs
    from .solver import solve
    from .solver.front import corners

    unit = elbo.bpd(1.0) - elbo.bpd(0.0)
    fronts = {}
    for budget in budgets:

        def best(a: float, b: float, budget: int = budget) -> tuple[int, ...]:
            scale = max(a, b)
            table = mixed_costs(elbo, trajectory, b / scale, elbo_weight=a / scale)
            return tuple(solve(table, budget).path(budget))

        def costs(path: tuple[int, ...]) -> tuple[float, float]:
            return float(elbo.step_nats(path).sum()) * unit, float(trajectory.step_costs(path).sum())

        prior = elbo.bpd(0.0)
        fronts[int(budget)] = [
            TradeOffPoint(corner.first + prior, corner.second, corner.path, corner.weights)
            for corner in corners(best, costs)
        ]
    return fronts


def refine_schedule(
    statistics: Statistics, budget: int, variance: Variance | None = None, decoder: Decoder = "upper"
) -> Refined:
    """The best times of ``budget`` steps in continuous time, from the best path on the grid of ``statistics``.

    Its schedule is on a process of its own, so the model goes there: ``denoiser.on_grid(refined.schedule.process)``.
    """
    from .solver import solve
    from .solver.continuous import continuous_costs, refine_path

    costs = continuous_costs(statistics, variance, decoder)
    return refine_path(costs, solve(costs.grid, budget).path(budget))
