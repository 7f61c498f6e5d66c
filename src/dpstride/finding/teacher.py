"""Parts shared by objectives that follow a deterministic sampler: the teacher, its grid and its trajectories."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..denoiser import Denoiser
from ..given import refuse_given
from ..runs.folder import Needed, discard
from ..runs.identity import OtherWorkError
from ..statistics.data import slice_conditioning
from ..statistics.trajectory import LEVELS, PROBES, estimate_trajectory
from ..statistics.trajectory_artefact import Trajectory
from .job import TEACHER_STEPS, Job, Request

BUDGETS = (5, 8, 10, 16, 32)
FILE = "trajectory.safetensors"


def on_teacher_grid(denoiser: Denoiser, request: Request, most: int | None = None, why: str = "") -> Denoiser:
    """Return the model on at most ``teacher_steps`` evenly spaced steps of its grid; ``most`` limits budgets further."""
    refuse_given(denoiser.given, "A trajectory")
    T, steps = denoiser.process.T, request.teacher_steps
    if steps < T:
        indices = np.unique(np.round(np.linspace(0, T, steps + 1)).astype(np.int64))
        denoiser = denoiser.on_grid(denoiser.process.subset(indices))
    limit, reason = denoiser.process.T, "the teacher's steps"
    if most is not None and limit > most:
        limit, reason = most, why
    for name, K in (("--max-budget", request.max_budget), ("--budgets", max(request.budgets or (1,)))):
        if K is not None and limit < K:
            raise ValueError(f"{name} must be at most {limit}, {reason}, not {K}. Lower it, or raise --teacher-steps.")
    return denoiser


def teacher_options(denoiser: Denoiser, request: Request) -> dict[str, Any]:
    """Return the options that trajectories, and tables of them, depend on."""
    return {
        "trajectories": request.trajectories,
        "teacher_steps": min(request.teacher_steps, denoiser.process.T),
        "budgets": list(request.budgets or BUDGETS),
    }


def needed_of_teacher(job: Job) -> dict[str, Needed]:
    """Return the identity of the trajectories that are kept."""
    model, teacher = job.inputs.model, job.inputs.process
    identity = {"teacher": teacher, "model": model, "samples": job.request.trajectories, "seed": job.how.seed}
    return {FILE: Needed(identity)}


def evaluations_of_teacher(job: Job) -> int:
    """Count the network evaluations of the teacher and of its probes."""
    T, count = job.denoiser.process.T, job.request.trajectories
    return T * count + T * LEVELS * min(PROBES, count) // 2


def follow(job: Job, overwrite: bool, *, kept: int = TEACHER_STEPS, paired: int = 0) -> Trajectory:
    """Return the teacher's trajectories, with the conditioning of the data if they have any."""
    data, path = job.choosing, job.output / FILE
    count = job.request.trajectories if data.conditioning is None else min(job.request.trajectories, len(data))
    estimate = partial(
        estimate_trajectory,
        job.denoiser,
        count,
        job.how.seed,
        batch_size=min(job.how.batch_size, 16),  # states of a whole batch are kept at every step
        kept=kept,
        paired=paired,
        conditioning=slice_conditioning(data.conditioning, slice(0, count)),
        progress=job.how.progress,
        checkpoint=path,
    )
    try:
        trajectory = estimate()
    except OtherWorkError:  # of the same model, but another grid
        if not overwrite:
            raise
        discard(path)
        trajectory = estimate()
    job.say(f"{path}: {count} trajectories of {job.denoiser.process.T} steps")
    return trajectory
