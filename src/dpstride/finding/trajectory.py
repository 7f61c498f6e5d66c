"""The main job for a deterministic sampler: paths that stay close to its trajectory, scored by their end points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

import numpy.typing as npt

from .. import samplers
from ..denoiser import Denoiser
from ..evaluate.endpoints import EndpointDistance, endpoint_distance
from ..evaluate.sampling import sample
from ..objectives.trajectory import trajectory_schedules
from ..options import BEST, DEFAULT_ODE_SAMPLER, FLOW_STRIDES, ODE_SAMPLERS, OdeSampler, check_choice
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..runs.execution import Execution
from ..runs.folder import ENDPOINTS, SCHEDULES, Needed
from ..runs.identity import check_identity
from ..runs.writing import write_json
from ..schedule import Schedule
from ..statistics.data import slice_conditioning
from ..statistics.trajectory import PAIRED
from ..statistics.trajectory_artefact import Trajectory
from ..strides import even_stride, find
from .job import Found, Job, Request, budgets_of, named
from .teacher import BUDGETS, FILE, evaluations_of_teacher, follow, needed_of_teacher, on_teacher_grid, teacher_options

USES = ("sampler", "trajectories", "teacher_steps")
FORMAT = "dpstride-endpoints-1"


def on_grid(denoiser: Denoiser, request: Request) -> Denoiser:
    """Return the model on the teacher's grid."""
    check_choice("sampler of a trajectory", request.sampler, ODE_SAMPLERS)
    why = f"the steps of the grid on which paths of {request.sampler} are chosen"
    return on_teacher_grid(denoiser, request, _paired(request) or None, why)


def _paired(request: Request) -> int:
    """Return the number of grid points on which paths of a multistep sampler are chosen; 0 for a single-step one."""
    return PAIRED if samplers.find(request.sampler).remembers else 0


def noise_samples(request: Request) -> int | None:
    """Return the number of noise samples that choose the path."""
    return request.trajectories


def options(denoiser: Denoiser, samples: int, request: Request, how: Execution) -> dict[str, Any]:
    """Return the options that results depend on."""
    most = denoiser.process.T if request.max_budget is None else request.max_budget
    return {"sampler": request.sampler, "max_budget": most, **teacher_options(denoiser, request)}


def needed(job: Job) -> dict[str, Needed]:
    """Return the trajectories that are kept."""
    return needed_of_teacher(job)


def evaluations(job: Job) -> tuple[int, str]:
    """Count network evaluations, approximately."""
    scored = job.denoiser.process.T + (len(FLOW_STRIDES) + 1) * sum(job.request.budgets or BUDGETS)
    return evaluations_of_teacher(job) + scored * len(job.scoring), "about "


def run(job: Job, overwrite: bool) -> Found:
    """Do the work: find schedules, and measure on other noise samples how far they and others end from the teacher."""
    output, request = job.output, job.request
    trajectory = follow(job, overwrite, paired=_paired(request))
    sampler = cast(OdeSampler, request.sampler)
    schedules = named(trajectory_schedules(trajectory, sampler, request.max_budget), job.record)
    schedules.save(output / SCHEDULES)
    budgets = budgets_of(schedules, request.budgets, BUDGETS)
    process = job.denoiser.process
    strides: dict[str, Callable[[int], Schedule]] = {
        **{name: partial(find(name).make, process) for name in FLOW_STRIDES},
        BEST: lambda K: schedules[K],
    }
    chosen = {
        (name, K): replace(stride(K), options=schedules.options) for name, stride in strides.items() for K in budgets
    }
    distances = endpoint_distances(job, trajectory, chosen)
    predicted = {K: math.sqrt(c) for K, c in zip(schedules.budgets, schedules.provenance["costs"], strict=True)}
    files = [output / name for name in (SCHEDULES, ENDPOINTS, FILE)]
    notes = _trajectory_notes(distances, predicted, budgets)
    details = {
        "objective": request.objective,
        "sampler": request.sampler,
        "distance": {name: {K: asdict(distances[name, K]) for K in budgets} for name in strides},
        "predicted": {K: predicted[K] for K in budgets},
        "files": [str(path) for path in files],
        "notes": notes,
    }
    rows = {name: [_cell(distances[name, K]) for K in budgets] for name in strides}
    rows["predicted"] = [f"{predicted[K]:.4f}" for K in budgets]
    samples = next(iter(distances.values())).samples
    lines = [
        f"Root mean square distance per dimension from the end points of {process.T} steps, {request.sampler}, {samples} "
        "held-out noise samples:",
        _table(budgets, rows),
        *(f"Note: {note}" for note in notes),
        "",
        "Written: " + ", ".join(str(path) for path in files),
    ]
    last = budgets[-1]
    answer = f"{last} steps of {request.sampler} end {_cell(distances['dp', last])} per dimension from its {process.T}."
    return Found(
        schedules, None, None, answer, notes=tuple(notes), files=tuple(files), details=details, summary="\n".join(lines)
    )


def _trajectory_notes(
    distances: dict[tuple[str, int], EndpointDistance], predicted: dict[int, float], budgets: Sequence[int]
) -> list[str]:
    """Return notes without which the table could mislead."""
    notes = []
    for K in budgets:
        dp = distances[BEST, K]
        name, best = min(((n, d) for (n, k), d in distances.items() if k == K), key=lambda each: each[1].value)
        if dp.value - best.value > 2.0 * math.hypot(dp.standard_error, best.standard_error):
            notes.append(f"At {K} steps the {name} stride ends closer to the teacher than the DP path.")
        if abs(dp.value - predicted[K]) > max(0.5 * dp.value, 3.0 * dp.standard_error):
            notes.append(f"At {K} steps the distance is {dp.value:.4f}, but {predicted[K]:.4f} was predicted.")
    if notes:
        notes.append(
            "Paths are chosen by a sum over steps, as if their errors were independent; if errors add up or cancel, more "
            "trajectories help little. `dpstride tune` races this path against others by measured samples."
        )
    return notes


def endpoint_distances(
    job: Job, trajectory: Trajectory, schedules: dict[tuple[str, int], Schedule]
) -> dict[tuple[str, int], EndpointDistance]:
    """Return the distances of every schedule's end points; those that endpoints.json holds of the same work are reused."""
    teacher, path, n, seed = job.denoiser, job.output / ENDPOINTS, len(job.scoring), job.how.seed + 1
    options: dict[str, Any] = {
        "conditioning": slice_conditioning(job.scoring.conditioning, slice(0, n)),
        "batch_size": job.how.batch_size,
    }
    identity = {
        "format": FORMAT,
        "model": teacher.fingerprint,
        "teacher": teacher.process.fingerprint,
        "sampler": job.request.sampler,
        "samples": n,
        "seed": seed,
        "behaviour": None if trajectory.behaviour is None else trajectory.behaviour.to_dict(),
    }
    cells: dict[str, Any] = {}
    with suppress(UnreadableFileError, FileNotFoundError):  # a damaged file is written again
        document = read_json_object(path)
        cells = document.pop("distances", {})
        document.pop("run", None)
        check_identity(path, document, identity)
    ends: npt.NDArray[Any] | None = None
    found = {}
    for (name, K), schedule in schedules.items():
        key = f"{name} {K} {schedule.times}"
        if key not in cells:
            if ends is None:
                whole, progress = even_stride(teacher.process, teacher.process.T), job.how.progress
                ends = sample(
                    teacher, whole, n, seed, sampler=DEFAULT_ODE_SAMPLER, progress=progress, **options
                ).numpy()
            samples = sample(teacher, schedule, n, seed, **options).numpy()
            cells[key] = asdict(endpoint_distance(samples, ends))
            write_json(path, {**identity, "run": job.record.id, "distances": cells})
        found[name, K] = EndpointDistance(**cells[key])
    job.say(f"{path}: {len(found)} paths from {n} held-out noise samples")
    return found


def _cell(distance: EndpointDistance) -> str:
    return f"{distance.value:.4f} ± {distance.standard_error:.4f}"


def _table(budgets: Sequence[int], rows: dict[str, list[str]]) -> str:
    head = f"{'steps':<12}" + "".join(f"{K:>18}" for K in budgets)
    return "\n".join(
        [head, *(f"{name:<12}" + "".join(f"{cell:>18}" for cell in cells) for name, cells in rows.items())]
    )
