"""Stage 5. A cost for deterministic samplers: what one step adds to the distance from a teacher's end point.

A step t → s leaves the teacher's trajectory by d (see `statistics.trajectory`). Two choices turn d into a cost:

* How an error at s reaches the end. "measured" multiplies E|d|² by what the trajectories say became of the square of such an
  error, a jump's, at the end (`Trajectory.amplification`, its logarithm interpolated in ln σ; 1 at s = 0). Two closed forms
  stand beside it. In coordinates z = x/f the flow is dz/dσ = ε, and for data N(μ, v I) an error at σ_s is multiplied by
  sqrt(v/(v + σ_s²)) on its way to clean data, exactly: "gaussian" is v/(f_s² v + g_s²) with v the variance of the teacher's
  end points. "flat" is 1/f_s², as if no error shrank. Images are neither: errors made at high noise grow more than "gaussian"
  says, because they decide between modes, and less than "flat" says.
* How errors of several steps add. "squares", L = weight E|d|²/dims, is right for errors in unrelated directions: the square
  root of a path's cost is then the root mean square distance per dimension of its end points from the teacher's. "norms",
  L = sqrt(weight E|d|²/dims), bounds that distance whatever the directions (triangle inequality). On a network the truth lies
  between the two; on the one where both were tried the paths that the squares choose ended closer to the teacher, so they
  are the default, by that evidence and not by proof (docs/beyond/trajectory.md).

Both decompose, so the solver that minimises the ELBO minimises them, exactly, for every budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..options import GIVEN
from ..process import ForwardProcess
from ..schedule import Schedule
from ..statistics.trajectory_artefact import Trajectory

Array = npt.NDArray[np.float64]
OdeSampler = Literal["ddim", "dpmpp_2m"]
Weight = Literal["measured", "gaussian", "flat"]
Combine = Literal["norms", "squares"]


@dataclass(frozen=True, eq=False)
class TrajectoryTable:
    """Cost of every step t → s of a deterministic sampler, per dimension: squares of the data's unit (the unit, with "norms").

    ``L[t, s]`` is infinite for s >= t. For a sampler with memory ``triples[r, t, s]`` is the cost of t → s after r → t; then
    L is that of the first step of a path and of the last, which have none.
    """

    process: ForwardProcess
    L: Array = field(repr=False)
    options: Mapping[str, Any]
    triples: Array | None = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return self.process.T

    def step_costs(self, steps: Sequence[int]) -> Array:
        """Cost of each step of a path, [K]."""
        costs = [float(self.L[t, s]) for t, s in pairwise(steps)]
        if self.triples is not None:
            for i in range(1, len(costs) - 1):
                costs[i] = float(self.triples[steps[i - 1], steps[i], steps[i + 1]])
        return np.array(costs)

    def schedule(self, steps: Sequence[int], cost: float | None = None, stride: str = GIVEN) -> Schedule:
        """The path as a `Schedule`; its cost is in the provenance, since it is not bits/dim."""
        total = float(self.step_costs(steps).sum()) if cost is None else cost
        return Schedule(
            process=self.process,
            steps=tuple(int(step) for step in steps),
            stride=stride,
            options=self.options,
            provenance={**self.provenance, "cost": total},
        )


def trajectory_costs(
    trajectory: Trajectory,
    sampler: OdeSampler = "ddim",
    weight: Weight = "measured",
    combine: Combine = "squares",
) -> TrajectoryTable:
    """The table that `solve` takes: for "ddim" on the kept grid, for "dpmpp_2m" on the coarse grid of triples.

    Args:
        trajectory: from `estimate_trajectory`.
        sampler: the sampler that the schedules are for.
        weight: how an error at s counts at the end of the path.
        combine: how errors of several steps add.
    """
    check_trajectory_options(sampler, weight, combine)
    process, deviation, triples = trajectory.process, trajectory.deviation, None
    if sampler == "dpmpp_2m":
        if trajectory.coarse.size < 3:
            raise ValueError("These trajectories were followed without triples (paired=0), which dpmpp_2m needs.")
        process, deviation = trajectory.coarse_process, deviation[np.ix_(trajectory.coarse, trajectory.coarse)]
        triples = trajectory.second
    weights = propagation(process, trajectory, weight) / trajectory.dims
    s, t = np.meshgrid(np.arange(process.T + 1), np.arange(process.T + 1))

    def cost(squares: Array) -> Array:
        weighted = squares * weights
        return np.asarray(np.sqrt(weighted) if combine == "norms" else weighted)

    return TrajectoryTable(
        process=process,
        L=np.where(s < t, cost(deviation), np.inf),
        triples=None if triples is None else cost(triples),
        options={"objective": "trajectory", "sampler": sampler, "weight": weight, "combine": combine},
        provenance={
            "model": trajectory.model,
            "seed": trajectory.seed,
            "trajectories": trajectory.samples,
            "teacher": trajectory.teacher,
            "end_variance": trajectory.end_variance,
            "process": process.fingerprint,
            "version": trajectory.version,
        },
    )


def propagation(process: ForwardProcess, trajectory: Trajectory, weight: Weight) -> Array:
    """What E|d|² at each s is multiplied by to become that at the end: [T+1]; 0 at T, which no step reaches."""
    f, g = process.f[:-1], process.g[:-1]  # f > 0 below T, where alone it may vanish
    match weight:
        case "flat":
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
    raise AssertionError(weight)


def check_trajectory_options(sampler: str, weight: str = "measured", combine: str = "squares") -> None:
    """Raise unless all three are known."""
    for name, value, choices in (
        ("sampler", sampler, get_args(OdeSampler)),
        ("weight", weight, get_args(Weight)),
        ("combine", combine, get_args(Combine)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r:.80}.")
