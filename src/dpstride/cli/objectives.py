"""Stage 9. `dpstride find --objective trajectory | mixed`: schedules for deterministic samplers, and for both purposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..options import DEFAULT_ODE_SAMPLER, ODE_SAMPLERS
from ..pipeline import cost_options, named
from ..runs.folder import RECORD, Needed, begin, discard
from .console import emit
from .options import given, options

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from ..runs.record import Run
    from ..schedule import ScheduleSet
    from ..statistics.artefact import Statistics
    from ..statistics.data import Samples
    from ..statistics.identity import Inputs
    from ..statistics.trajectory_artefact import Trajectory

BUDGETS = (5, 8, 10, 16, 32)
TRAJECTORIES = 64
TEACHER_STEPS = 1000
Say = Callable[[str], None]

objective = options(
    click.option(
        "--objective",
        type=click.Choice(["elbo", "trajectory", "mixed"]),
        default="elbo",
        show_default=True,
        help="What paths are best for: bits/dim, staying on a deterministic sampler's trajectory, or both.",
    ),
    click.option(
        "--sampler",
        type=click.Choice(ODE_SAMPLERS),
        default=DEFAULT_ODE_SAMPLER,
        show_default=True,
        help="Deterministic sampler of --objective trajectory.",
    ),
    click.option(
        "--lambda",
        "weight",
        type=click.FloatRange(min=0.0),
        default=10.0,
        show_default=True,
        help="Of --objective mixed: bits/dim that a mean square distance of 1 per dimension is worth.",
    ),
    click.option(
        "--trajectories",
        type=click.IntRange(min=2),
        default=TRAJECTORIES,
        show_default=True,
        help="Noises that the teacher is followed from.",
    ),
    click.option(
        "--teacher-steps",
        type=click.IntRange(min=2),
        default=TEACHER_STEPS,
        show_default=True,
        help="Steps of the teacher, at most, and of the grid that paths are chosen on.",
    ),
)


@dataclass(frozen=True)
class Request:
    """What was asked for besides model, data and folder."""

    objective: str
    sampler: Any
    weight: float
    trajectories: int
    teacher_steps: int
    variance: Any
    decoder: Any
    max_budget: int | None
    budgets: tuple[int, ...] | None
    tolerance: float | None  # None: every step
    seed: int
    batch_size: int
    progress: bool
    overwrite: bool = False

    def options(self, denoiser: Denoiser) -> dict[str, Any]:
        """What results depend on besides model, data and seed."""
        common = {"trajectories": self.trajectories, "teacher_steps": min(self.teacher_steps, denoiser.process.T)}
        common["budgets"] = list(self.budgets or BUDGETS)  # type: ignore[assignment]
        most = denoiser.process.T if self.max_budget is None else self.max_budget
        if self.objective == "trajectory":
            return {"sampler": self.sampler, "max_budget": most, **common}
        costs = cost_options(denoiser, self.variance, self.decoder, self.max_budget)
        return {"lambda": self.weight, "tolerance": self.tolerance, **costs, **common}


def on_teacher_grid(denoiser: Denoiser, steps: int) -> Denoiser:
    """The model on at most ``steps`` of its grid's steps, evenly spaced: the teacher."""
    import numpy as np

    T = denoiser.process.T
    if steps >= T:
        return denoiser
    return denoiser.on_grid(denoiser.process.subset(np.unique(np.round(np.linspace(0, T, steps + 1)).astype(np.int64))))


def find_other(
    denoiser: Denoiser,
    choosing: Samples,
    scoring: Samples,
    output: Path,
    request: Request,
    say: Say,
    names: Callable[[dict[str, Any]], Run],
    as_json: bool,
) -> None:
    """All of `find` for an objective that is not the ELBO alone; ``names`` makes the record of a run of an identity."""
    from ..statistics.identity import Inputs

    teacher = on_teacher_grid(denoiser, request.teacher_steps)
    check_request(teacher, request)
    options = request.options(denoiser)
    inputs = Inputs.of(teacher, choosing, scoring, request.seed)
    run = names(inputs.run("find", options, request.objective))
    begin(output, run, _kept(inputs, request, teacher.process.T), request.overwrite)
    trajectory = follow(teacher, choosing, output / "trajectory.safetensors", request, say)
    if request.objective == "trajectory":
        from .trajectory import find_trajectory

        result, text = find_trajectory(teacher, scoring, trajectory, output, request, say, run)
    else:
        result, text = find_mixed(teacher, choosing, scoring, trajectory, output, request, run)
    emit(as_json, result, text)


def _kept(inputs: Inputs, request: Request, T: int) -> dict[str, Needed]:
    """What a run keeps of the network, by the names of the files."""
    followed = {"teacher": inputs.process, "model": inputs.model, "samples": request.trajectories, "seed": request.seed}
    kept = {"trajectory.safetensors": Needed(followed)}
    if request.objective == "mixed":
        every = range(1, T + 1) if request.tolerance is None else None
        kept["statistics.safetensors"] = Needed(inputs.estimate, every)
        kept["heldout.safetensors"] = Needed(inputs.heldout_estimate, every)
    return kept


# Options that have a use with some objectives only.
OF_OBJECTIVES = {
    "sampler": ("trajectory",),
    "weight": ("mixed",),
    "trajectories": ("trajectory", "mixed"),
    "teacher_steps": ("trajectory", "mixed"),
}


def check_objective(objective: str) -> None:
    """Refuse options of another objective."""
    for parameter, of in OF_OBJECTIVES.items():
        if given(parameter) and objective not in of:
            option = "--lambda" if parameter == "weight" else f"--{parameter.replace('_', '-')}"
            raise click.UsageError(
                f"{option} is for --objective {' or '.join(of)}; with {objective} it would do nothing. Leave it out."
            )


def check_request(teacher: Denoiser, request: Request) -> None:
    """Refuse what would be refused after hours of work."""
    from ..samplers import find
    from ..statistics.trajectory import PAIRED

    limit, reason = teacher.process.T, "the teacher's steps"
    if request.objective == "trajectory" and find(request.sampler).remembers and limit > PAIRED:
        limit, reason = PAIRED, f"the steps of the grid that {request.sampler}'s paths are chosen on"
    for name, K in (("--max-budget", request.max_budget), ("--budgets", max(request.budgets or (1,)))):
        if K is not None and limit < K:
            raise ValueError(
                f"{name} must be at most {limit}, {reason}, not {K}. Ask for fewer, or raise --teacher-steps."
            )


def evaluations_of(denoiser: Denoiser, choosing: Samples, scoring: Samples, request: Request) -> tuple[int, str]:
    """Network evaluations, the teacher's, the probes' and those that score; and how sure that is."""
    from ..statistics.trajectory import LEVELS, PROBES

    teacher = on_teacher_grid(denoiser, request.teacher_steps)
    check_request(teacher, request)
    T = teacher.process.T
    following = T * request.trajectories + T * LEVELS * min(PROBES, request.trajectories) // 2
    if request.objective == "trajectory":
        scoring_steps = T + 4 * sum(request.budgets or BUDGETS)
        evaluations = following + scoring_steps * len(scoring)
    else:
        evaluations = following + T * (len(choosing) + len(scoring))
    about = "about " if request.objective == "trajectory" or request.tolerance is None else "at most about "
    return evaluations, about


def follow(teacher: Denoiser, data: Samples, path: Path, request: Request, say: Say) -> Trajectory:
    """The teacher's trajectories, with the conditioning of the data if it has any."""
    from ..runs.identity import OtherWorkError
    from ..samplers import find
    from ..statistics.data import slice_conditioning
    from ..statistics.trajectory import PAIRED, estimate_trajectory

    count = request.trajectories if data.conditioning is None else min(request.trajectories, len(data))
    conditioning = slice_conditioning(data.conditioning, slice(0, count))
    batch_size = min(request.batch_size, 16)  # states of a whole batch are kept at every step
    mixed = request.objective == "mixed"  # whose paths are chosen on the grid of the statistics
    estimate = partial(
        estimate_trajectory,
        teacher,
        count,
        request.seed,
        batch_size,
        kept=teacher.process.T if mixed else TEACHER_STEPS,
        paired=PAIRED if find(request.sampler).remembers and not mixed else 0,
        conditioning=conditioning,
        progress=request.progress,
        checkpoint=path,
    )
    try:
        trajectory = estimate()
    except OtherWorkError:  # of the same model, but another grid
        if not request.overwrite:
            raise
        discard(path)
        trajectory = estimate()
    say(f"{path}: {count} trajectories of {teacher.process.T} steps")
    return trajectory


# --- mixed ----------------------------------------------------------------------------------------------------------------


def find_mixed(
    teacher: Denoiser,
    choosing: Samples,
    scoring: Samples,
    trajectory: Trajectory,
    output: Path,
    request: Request,
    run: Run,
) -> tuple[dict[str, Any], str]:
    """Schedules for bits/dim + λ · trajectory cost, scored as `find` scores; and the trade-off of each budget."""
    from ..evaluate.comparison import compare
    from ..objectives.elbo import elbo_costs
    from ..objectives.mixed import mixed_schedules, trade_off
    from ..objectives.trajectory import trajectory_costs
    from ..report.figures import save_figures
    from ..report.front import Front, FrontPoint
    from ..report.page import write_page
    from ..report.text import comparison_table

    statistics, steps = _statistics(teacher, choosing, output / "statistics.safetensors", request)
    schedules = mixed_schedules(
        statistics, trajectory, request.weight, request.variance, request.decoder, request.max_budget
    )
    schedules = named(schedules, run)
    schedules.save(output / "schedules.json")
    elbo, distance = elbo_costs(statistics, request.variance, request.decoder), trajectory_costs(trajectory)
    budgets = budgets_of(schedules, request.budgets)
    fronts = trade_off(elbo, distance, budgets)
    if steps is not None:  # paths are scored where they go, without interpolation
        kept = [schedules[K].steps for K in budgets] + [point.steps for front in fronts.values() for point in front]
        steps = sorted({*steps, *(step for path in kept for step in path if step)})
    heldout = _estimate(teacher, scoring, output / "heldout.safetensors", request, request.seed + 1, steps)
    comparison = replace(compare(schedules, heldout), run=run.id)
    comparison.save(output / "comparison.json")
    scores = elbo_costs(heldout, request.variance, request.decoder, elbo.fitted)
    front = Front(
        request.weight,
        {
            K: tuple(
                FrontPoint(
                    bpd=point.bpd,
                    heldout_bpd=scores.bpd(float(scores.step_nats(point.steps).sum())),
                    trajectory_cost=point.trajectory_cost,
                    low=point.weights[0],
                    high=point.weights[1] if math.isfinite(point.weights[1]) else None,
                    steps=point.steps,
                )
                for point in points
            )
            for K, points in fronts.items()
        },
    )
    files = [front.save(output, run.id), write_page(output), output / RECORD]
    files += [*(output / name for name in ("schedules.json", "comparison.json"))]
    files += save_figures(comparison, schedules, output) + front.draw(output)
    result = {
        "objective": "mixed",
        "lambda": request.weight,
        "front": front.to_dict()["front"],
        "best_budget": comparison.best_budget,
        "warnings": list(comparison.warnings),
        "files": [str(path) for path in files],
    }
    lines = [
        comparison_table(comparison),
        "",
        "Trade-off, from the least bits/dim to the least trajectory cost:",
    ]
    for K, points in front.budgets.items():
        ends = " → ".join(f"({p.heldout_bpd:.3f}, {p.trajectory_cost:.5f})" for p in (points[0], points[-1]))
        lines.append(f"  {K:3d} steps, {len(points)} paths: (held-out bits/dim, trajectory cost) {ends}")
    lines += [f"Note: {warning}" for warning in comparison.warnings]
    return result, "\n".join([*lines, "", "Written: " + ", ".join(str(path) for path in files)])


def _statistics(
    denoiser: Denoiser, data: Samples, path: Path, request: Request
) -> tuple[Statistics, Sequence[int] | None]:
    """Statistics of the choosing data, at few steps where a tolerance allows it, and which."""
    if request.tolerance is None or len(data) < 2:
        return _estimate(denoiser, data, path, request, request.seed, None), None
    from ..adaptive.loop import check_budgets, estimate_adaptively

    wanted = check_budgets(request.budgets, denoiser.process.T, request.decoder, request.max_budget)
    statistics, report = estimate_adaptively(
        denoiser, data, None, request.seed, request.batch_size, data.data_range, wanted, request.tolerance,
        request.variance, request.decoder, progress=request.progress, checkpoint=path,
    )  # fmt: skip
    return statistics, report.steps


def _estimate(
    denoiser: Denoiser, data: Samples, path: Path, request: Request, seed: int, steps: Sequence[int] | None
) -> Statistics:
    from ..statistics.estimate import estimate

    return estimate(denoiser, data, None, seed, request.batch_size, data.data_range, request.progress, path, steps)


# --- budgets ------------------------------------------------------------------------------------------------------------


def budgets_of(schedules: ScheduleSet, wanted: tuple[int, ...] | None) -> list[int]:
    """The budgets asked for, or the usual ones, as far as there are schedules of them."""
    if wanted is not None:
        return [schedules[K].budget for K in wanted]
    return [K for K in BUDGETS if K in schedules] or [schedules.budgets[-1]]
