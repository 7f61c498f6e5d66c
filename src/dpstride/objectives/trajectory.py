"""Stage 6. A cost for deterministic samplers: what one step adds to the distance from a teacher's end point.

A step t → s leaves the teacher's trajectory by d (see `statistics.trajectory`). Its cost is weight_s E|d|²/dims, where the
weight is the factor by which the square of an error at s changes on its way to the end:

* "measured" is the factor by which a jump's error changed on the trajectories (`Trajectory.amplification`, its logarithm
  interpolated in ln σ; 1 at s = 0).
* "gaussian" is a closed form. In coordinates z = x/f the flow is dz/dσ = ε, and for data N(μ, v I) an error at σ_s is
  multiplied by sqrt(v/(v + σ_s²)) on its way to clean data, exactly: v/(f_s² v + g_s²), with v the variance of the teacher's
  end points. Images are not Gaussian: errors made at high noise grow more than predicted, because they decide between modes.

Costs of several steps add, which is correct for errors in unrelated directions: the square root of a path's cost is then the
root mean square distance per dimension of its end points from the teacher's. Adding square roots instead bounds that distance
whatever the directions (triangle inequality), but the paths it chooses end farther from the teacher in most cases
(docs/beyond/trajectory.md). The costs decompose, so the solver that minimises the ELBO minimises them, exactly, for every
budget.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .. import samplers
from ..options import DEFAULT_ODE_SAMPLER, ODE_SAMPLERS, OdeSampler, check_choice
from ..process import ForwardProcess
from ..runs.arguments import check_kinds
from ..schedule import ScheduleSet
from ..statistics.trajectory_artefact import Trajectory
from .schedules import best_schedules
from .step_costs import StepCosts

Array = npt.NDArray[np.float64]
Weight = Literal["measured", "gaussian"]
UNIT = "mean square distance per dimension from the teacher"


def trajectory_costs(
    trajectory: Trajectory,
    sampler: OdeSampler = DEFAULT_ODE_SAMPLER,
    weight: Weight = "measured",
    combine: str | None = None,
) -> StepCosts:
    """Costs that `solve` takes: on the kept grid, or for a sampler with memory on the coarse grid of triples.

    Args:
        trajectory: from `estimate_trajectory`.
        sampler: the sampler that the schedules are for.
        weight: how an error at s counts at the end of the path.
        combine: deprecated. "norms" adds square roots of the costs, which chose worse paths.
    """
    check_kinds(trajectory_costs, trajectory=trajectory)
    check_choice("sampler", sampler, ODE_SAMPLERS)
    process, deviation, triples = trajectory.process, trajectory.deviation, None
    if samplers.find(sampler).remembers:
        if trajectory.coarse.size < 3:
            raise ValueError(
                "These trajectories were followed without triples (paired=0), which a sampler with memory needs. Follow the "
                "teacher again with paired=128."
            )
        process, deviation = trajectory.coarse_process, deviation[np.ix_(trajectory.coarse, trajectory.coarse)]
        triples = trajectory.second
    weights = propagation(process, trajectory, weight) / trajectory.dims
    costs = StepCosts(
        process=process,
        dims=trajectory.dims,
        table=np.where(np.tri(process.T + 1, k=-1, dtype=bool), deviation * weights, np.inf),
        triples=None if triples is None else triples * weights,
        unit=UNIT,
        options={"objective": "trajectory", "sampler": sampler, "weight": weight, "combine": "squares"},
        provenance={
            "model": trajectory.model,
            "seed": trajectory.seed,
            "trajectories": trajectory.samples,
            "teacher": trajectory.teacher,
            "end_variance": trajectory.end_variance,
            "process": process.fingerprint,
            "version": trajectory.version,
            **({} if trajectory.shape is None else {"shape": list(trajectory.shape)}),
        },
    )
    return costs if combine is None else _combined(costs, combine)


def trajectory_schedules(
    trajectory: Trajectory,
    sampler: OdeSampler = DEFAULT_ODE_SAMPLER,
    max_budget: int | None = None,
    weight: Weight = "measured",
    combine: str | None = None,
) -> ScheduleSet:
    """The best schedule of every budget for a deterministic sampler; ``provenance["costs"]`` are their costs, by budget."""
    return best_schedules(trajectory_costs(trajectory, sampler, weight, combine), max_budget)


def propagation(process: ForwardProcess, trajectory: Trajectory, weight: str) -> Array:
    """The factors from E|d|² at each s to that at the end: [T+1]; 0 at T, which no step reaches."""
    f, g = process.f[:-1], process.g[:-1]  # f > 0 below T; only at T may it vanish
    match weight:
        case "flat":
            warnings.warn(
                "weight='flat' counts errors as if none shrank, and will be removed; use 'measured'.",
                DeprecationWarning,
                stacklevel=3,
            )
            return np.append(1.0 / f**2, 0.0)
        case "gaussian":
            v = trajectory.end_variance
            if not (math.isfinite(v) and v > 0.0):
                raise ValueError(
                    f"weight='gaussian' needs end points that differ, but their variance is {v}. Follow more samples, or use "
                    "another weight."
                )
            return np.append(v / (f**2 * v + g**2), 0.0)
        case "measured":
            if trajectory.levels.size == 0:
                raise ValueError(
                    "weight='measured' needs trajectories with probes, on a teacher of more than a few steps; these have none. "
                    "Follow the teacher with probes=8, or use weight='gaussian'."
                )
            at = -0.5 * trajectory.process.log_snr[trajectory.levels]
            known = np.log(np.maximum(trajectory.amplification, 1e-12))
            return np.concatenate([[1.0], np.exp(np.interp(-0.5 * process.log_snr[1:-1], at, known)), [0.0]])
    raise ValueError(f"weight must be one of {', '.join(map(repr, get_args(Weight)))}, not {weight!r:.80}.")


def _combined(costs: StepCosts, combine: str) -> StepCosts:
    check_choice("combine", combine, ("norms", "squares"))
    warnings.warn(
        "combine= is deprecated: costs are squares, which chose better paths.", DeprecationWarning, stacklevel=3
    )
    if combine == "squares":
        return costs
    return replace(
        costs,
        table=np.sqrt(costs.L),
        triples=None if costs.triples is None else np.sqrt(costs.triples),
        unit="distance per dimension from the teacher, at most",
        options={**costs.options, "combine": combine},
    )
