"""Stage 9. `dpstride find --objective trajectory`: schedules for a deterministic sampler, scored by where they end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options import DEFAULT_ODE_SAMPLER
from ..pipeline import named
from .objectives import Request, Say, budgets_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..denoiser import Denoiser
    from ..evaluate.endpoints import EndpointDistance
    from ..runs.record import Run
    from ..schedule import Schedule
    from ..statistics.data import Samples
    from ..statistics.trajectory_artefact import Trajectory


def find_trajectory(
    teacher: Denoiser, scoring: Samples, trajectory: Trajectory, output: Path, request: Request, say: Say, run: Run
) -> tuple[dict[str, Any], str]:
    """Schedules for a deterministic sampler, and how far they and others end from the teacher, from other noises."""
    from ..evaluate.ode_strides import karras_stride
    from ..objectives.trajectory import trajectory_schedules
    from ..strides import even_stride, quadratic_stride

    schedules = named(trajectory_schedules(trajectory, request.sampler, request.max_budget), run)
    schedules.save(output / "schedules.json")
    budgets = budgets_of(schedules, request.budgets)
    process = teacher.process
    strides: dict[str, Callable[[int], Schedule]] = {
        "even": lambda K: even_stride(process, K),
        "quadratic": lambda K: quadratic_stride(process, K),
        "karras": lambda K: karras_stride(process, K),
        "dp": lambda K: schedules[K],
    }
    chosen = {
        (name, K): replace(stride(K), options=schedules.options) for name, stride in strides.items() for K in budgets
    }
    distances = endpoint_distances(teacher, trajectory, chosen, scoring, output / "endpoints.json", request, say, run)
    predicted = {K: math.sqrt(c) for K, c in zip(schedules.budgets, schedules.provenance["costs"], strict=True)}
    files = [str(output / name) for name in ("schedules.json", "endpoints.json", "trajectory.safetensors")]
    result = {
        "objective": "trajectory",
        "sampler": request.sampler,
        "distance": {name: {K: asdict(distances[name, K]) for K in budgets} for name in strides},
        "predicted": {K: predicted[K] for K in budgets},
        "files": files,
    }
    notes = _trajectory_notes(distances, predicted, budgets, request.trajectories)
    result["notes"] = notes
    rows = {name: [_cell(distances[name, K]) for K in budgets] for name in strides}
    rows["predicted"] = [f"{predicted[K]:.4f}" for K in budgets]
    samples = next(iter(distances.values())).samples
    return result, "\n".join(
        [
            f"Root mean square distance per dimension from the end points of {process.T} steps, {request.sampler}, {samples} "
            "noises that chose nothing:",
            _table(budgets, rows),
            *(f"Note: {note}" for note in notes),
            "",
            "Written: " + ", ".join(files),
        ]
    )


def _trajectory_notes(
    distances: dict[tuple[str, int], EndpointDistance], predicted: dict[int, float], budgets: Sequence[int], count: int
) -> list[str]:
    """What would mislead a reader of the table alone."""
    notes = []
    for K in budgets:
        dp = distances["dp", K]
        name, best = min(((n, d) for (n, k), d in distances.items() if k == K), key=lambda each: each[1].value)
        if dp.value - best.value > 2.0 * math.hypot(dp.standard_error, best.standard_error):
            notes.append(f"At {K} steps the {name} stride ends nearer to the teacher than the DP's path.")
        if abs(dp.value - predicted[K]) > max(0.5 * dp.value, 3.0 * dp.standard_error):
            notes.append(f"At {K} steps the distance is {dp.value:.4f}, where {predicted[K]:.4f} was predicted.")
    if notes:
        notes.append(f"{count} trajectories may be too few for this model: give more with --trajectories.")
    return notes


def endpoint_distances(
    teacher: Denoiser,
    trajectory: Trajectory,
    schedules: dict[tuple[str, int], Schedule],
    scoring: Samples,
    path: Path,
    request: Request,
    say: Say,
    run: Run,
) -> dict[tuple[str, int], EndpointDistance]:
    """Distances of every schedule's end points; what ``path`` holds of the same work is not done again."""
    from ..evaluate.endpoints import EndpointDistance, endpoint_distance
    from ..evaluate.sampling import sample
    from ..reading.documents import read_json_object
    from ..reading.limits import UnreadableFileError
    from ..runs.identity import check_identity
    from ..runs.writing import write_json
    from ..statistics.data import slice_conditioning
    from ..strides import even_stride

    n = len(scoring)
    conditioning = slice_conditioning(scoring.conditioning, slice(0, n))
    seed = request.seed + 1
    identity = {
        "format": "dpstride-endpoints-1",
        "model": teacher.fingerprint,
        "teacher": teacher.process.fingerprint,
        "sampler": request.sampler,
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
                whole = even_stride(teacher.process, teacher.process.T)
                ends = sample(
                    teacher,
                    whole,
                    n,
                    seed,
                    conditioning=conditioning,
                    batch_size=request.batch_size,
                    sampler=DEFAULT_ODE_SAMPLER,
                    progress=request.progress,
                ).numpy()
            samples = sample(
                teacher, schedule, n, seed, conditioning=conditioning, batch_size=request.batch_size
            ).numpy()
            cells[key] = asdict(endpoint_distance(samples, ends))
            write_json(path, {**identity, "run": run.id, "distances": cells})
        found[name, K] = EndpointDistance(**cells[key])
    say(f"{path}: {len(found)} paths from {n} other noises")
    return found


def _cell(distance: EndpointDistance) -> str:
    return f"{distance.value:.4f} ± {distance.standard_error:.4f}"


def _table(budgets: Sequence[int], rows: dict[str, list[str]]) -> str:
    head = f"{'steps':<12}" + "".join(f"{K:>18}" for K in budgets)
    return "\n".join(
        [head, *(f"{name:<12}" + "".join(f"{cell:>18}" for cell in cells) for name, cells in rows.items())]
    )
