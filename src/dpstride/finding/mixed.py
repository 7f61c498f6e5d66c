"""The main job for bits/dim and a deterministic sampler at once: scored as for bits/dim, with the trade-off of each budget."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..denoiser import Denoiser
from ..evaluate.comparison import Comparison, compare
from ..evaluate.purpose import caveat
from ..objectives.elbo import elbo_costs
from ..objectives.mixed import mixed_schedules, trade_off
from ..objectives.trajectory import trajectory_costs
from ..pipeline import cost_options
from ..report.figures import save_figures
from ..report.front import Front, FrontPoint
from ..report.page import write_page
from ..report.text import comparison_table
from ..runs.execution import Execution
from ..runs.folder import COMPARISON, RECORD, SCHEDULES, Needed
from .elbo import choosing_statistics, estimate_to
from .job import HELDOUT, STATISTICS, Found, Job, Request, budgets_of, named
from .teacher import BUDGETS, evaluations_of_teacher, follow, needed_of_teacher, on_teacher_grid, teacher_options

USES = ("weight", "trajectories", "teacher_steps")


def on_grid(denoiser: Denoiser, request: Request) -> Denoiser:
    """Return the model on the teacher's grid."""
    return on_teacher_grid(denoiser, request)


def noise_samples(request: Request) -> int | None:
    """Return None: paths are chosen on data, too."""
    return None


def options(denoiser: Denoiser, samples: int, request: Request, how: Execution) -> dict[str, Any]:
    """Return the options that results depend on."""
    own = {"lambda": request.weight, "tolerance": request.tolerance}
    return (
        own
        | cost_options(denoiser, request.variance, request.decoder, request.max_budget)
        | teacher_options(denoiser, request)
    )


def needed(job: Job) -> dict[str, Needed]:
    """Return the statistics that are kept, and their indices if known beforehand."""
    every = range(1, job.denoiser.process.T + 1) if job.request.tolerance is None else None
    return needed_of_teacher(job) | {
        STATISTICS: Needed(job.inputs.estimate, every),
        HELDOUT: Needed(job.inputs.heldout_estimate, every),
    }


def evaluations(job: Job) -> tuple[int, str]:
    """Count network evaluations; for an adaptive estimate, the maximum."""
    scored = job.denoiser.process.T * (len(job.choosing) + len(job.scoring))
    about = "about " if job.request.tolerance is None else "at most about "
    return evaluations_of_teacher(job) + scored, about


def run(job: Job, overwrite: bool) -> Found:
    """Do the work and write each result as soon as it is ready."""
    output, request, record = job.output, job.request, job.record
    trajectory = follow(job, overwrite, kept=job.denoiser.process.T)  # paths are chosen on the grid of the statistics
    statistics, report = choosing_statistics(job)
    schedules = mixed_schedules(
        statistics, trajectory, request.weight, request.variance,
        decoder=request.decoder, max_budget=request.max_budget,
    )  # fmt: skip
    schedules = named(schedules, record)
    schedules.save(output / SCHEDULES)
    elbo = elbo_costs(statistics, request.variance, request.decoder)
    budgets = budgets_of(schedules, request.budgets, BUDGETS)
    fronts = trade_off(elbo, trajectory_costs(trajectory), budgets)
    indices = None
    if report is not None:  # paths are scored at their own indices, without interpolation
        paths = [schedules[K].steps for K in budgets] + [point.steps for front in fronts.values() for point in front]
        indices = sorted({*report.steps, *(index for path in paths for index in path if index)})
    heldout = estimate_to(job, HELDOUT, job.scoring, indices)
    comparison = compare(schedules, heldout)
    comparison = replace(comparison, warnings=(*comparison.warnings, *job.notes), run=record.id)
    comparison.save(output / COMPARISON)
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
    files = [front.save(output, record.id), write_page(output), output / RECORD]
    files += [output / name for name in (SCHEDULES, COMPARISON)]
    files += save_figures(comparison, schedules, output) + front.draw(output)
    details = {
        "objective": request.objective,
        "lambda": request.weight,
        "front": front.to_dict()["front"],
        "best_budget": comparison.best_budget,
        "warnings": list(comparison.warnings),
        "files": [str(path) for path in files],
    }
    summary = "\n".join([*_lines(comparison, front), "", "Written: " + ", ".join(str(path) for path in files)])
    answer, notes = f"{comparison.sentence()} {caveat(comparison.options)}", comparison.warnings
    return Found(
        schedules, comparison, report, answer, notes=notes, files=tuple(files), details=details, summary=summary
    )


def _lines(comparison: Comparison, front: Front) -> list[str]:
    lines = [
        comparison_table(comparison),
        "",
        "Trade-off, from the lowest bits/dim to the lowest trajectory cost:",
    ]
    for K, points in front.budgets.items():
        ends = " → ".join(f"({p.heldout_bpd:.3f}, {p.trajectory_cost:.5f})" for p in (points[0], points[-1]))
        lines.append(f"  {K:3d} steps, {len(points)} paths: (held-out bits/dim, trajectory cost) {ends}")
    notes = (*comparison.warnings, caveat(comparison.options))
    return lines + [f"Note: {note}" for note in notes]
