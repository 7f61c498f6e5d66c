"""Stage 6. From the costs of any objective to the best schedule of every budget."""

from __future__ import annotations

import numpy as np

from ..options import BEST
from ..schedule import ScheduleSet
from ..solver import solve
from .step_costs import StepCosts


def best_schedules(costs: StepCosts, max_budget: int | None = None, progress: bool = False) -> ScheduleSet:
    """The best schedule of every budget that has a path of finite cost.

    Costs other than bits/dim are in the provenance, by budget: "costs" of an objective without bits/dim, and those of the
    parts of a mixed one.
    """
    solution = solve(costs, max_budget, progress)
    budgets = [int(budget) for budget in np.flatnonzero(np.isfinite(solution.costs))]
    paths = [solution.path(budget) for budget in budgets]
    least = [solution.cost(budget) for budget in budgets]
    scores = [costs.path_bpd(path, cost) if costs.scored else None for path, cost in zip(paths, least, strict=True)]
    return ScheduleSet(
        process=costs.process,
        entries={
            budget: (tuple(path), bpd, error)
            for budget, path, bpd, error in zip(budgets, paths, scores, costs.standard_errors(paths), strict=True)
        },
        stride=BEST,
        options=costs.options,
        fitted=costs.fitted,
        provenance={
            **costs.provenance,
            **{f"{name}s": values for name, values in costs.recorded(paths, least).items()},
        },
    )
