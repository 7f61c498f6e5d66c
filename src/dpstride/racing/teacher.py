"""The trajectory objective's paths as candidates: for deterministic samplers, with a teacher of few steps.

A teacher of all steps would cost more than the race. One of 128 steps ends close to it and costs a few thousand evaluations;
paths are chosen on its grid.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..denoiser import Denoiser
from ..objectives.trajectory import trajectory_schedules
from ..options import ODE_SAMPLERS, OdeSampler
from ..runs.execution import Execution
from ..runs.folder import Needed
from ..runs.workers import current
from ..schedule import ScheduleSet
from ..statistics.data import Samples, slice_conditioning
from ..statistics.trajectory import LEVELS, PROBES, estimate_trajectory
from .sampling import BuiltIn, Sampling

FILE = "trajectory.safetensors"
STEPS = 128  # of the teacher, at most
TRAJECTORIES = 32


def followed(sampling: Sampling) -> OdeSampler | None:
    """The sampler, if the trajectory objective knows it; None if it does not, or if steps are random."""
    if isinstance(sampling, BuiltIn) and sampling.sampler in ODE_SAMPLERS and sampling.eta == 0.0:
        return sampling.sampler
    return None


def teacher_of(denoiser: Denoiser) -> Denoiser:
    """The model on even steps of its grid, at most 128."""
    process = denoiser.process
    indices = np.unique(np.round(np.linspace(0, process.T, min(STEPS, process.T) + 1)).astype(np.int64))
    return denoiser.on_grid(process.subset(indices))


def count_of(data: Samples) -> int:
    """Number of trajectories; those of a conditional model need one conditioning each."""
    return TRAJECTORIES if data.conditioning is None else min(TRAJECTORIES, len(data))


def evaluations(denoiser: Denoiser, data: Samples) -> int:
    """Approximate number of network evaluations for the teacher and its probes."""
    steps, count = min(STEPS, denoiser.process.T), count_of(data)
    return (steps * count + steps * LEVELS * min(PROBES, count) // 2) * denoiser.passes


def needed(denoiser: Denoiser, data: Samples, seed: int) -> Needed:
    """Identity of the trajectory file."""
    process = teacher_of(denoiser).process
    return Needed(
        {"teacher": process.fingerprint, "model": denoiser.describe(), "samples": count_of(data), "seed": seed}
    )


def trajectory_paths(
    denoiser: Denoiser, sampler: OdeSampler, data: Samples, most: int, how: Execution, folder: Path
) -> ScheduleSet:
    """Paths of 1 to ``most`` steps on the teacher's grid, as far as it goes, in every process of a launch."""
    teacher = teacher_of(denoiser)
    paths = None
    if current().main:
        with current().telling():
            paths = _choose(teacher, sampler, data, min(most, teacher.process.T), how=how, folder=folder)
    shared = current().share(paths)
    return ScheduleSet(teacher.process, {len(path) - 1: (tuple(path), None, None) for path in shared})


def _choose(
    teacher: Denoiser, sampler: OdeSampler, data: Samples, most: int, how: Execution, folder: Path
) -> list[list[int]]:
    count = count_of(data)
    trajectory = estimate_trajectory(
        teacher, count, how.seed, batch_size=min(how.batch_size, 16), paired=STEPS,
        conditioning=slice_conditioning(data.conditioning, slice(0, count)), progress=how.progress,
        checkpoint=folder / FILE,
    )  # fmt: skip
    weight = "measured" if trajectory.levels.size else "gaussian"  # a teacher of few steps has no levels to measure at
    chosen = trajectory_schedules(trajectory, sampler, most, weight)  # type: ignore[arg-type]  # one of two literals
    return [list(map(int, chosen[K].steps)) for K in chosen.budgets]
