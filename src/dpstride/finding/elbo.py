"""The main job for bits/dim: statistics → schedules → held-out statistics → comparison → figures and page.

With a tolerance the network runs at some grid indices only, also on held-out data.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..adaptive.loop import check_budgets, estimate_adaptively, in_rounds
from ..adaptive.report import AdaptiveReport
from ..adaptive.scores import most_indices, refine_scores
from ..denoiser import Denoiser
from ..evaluate.comparison import Comparison, compare, shown_paths
from ..evaluate.purpose import caveat, samples_sentence
from ..objectives.band import Band, SamplesPlan
from ..objectives.elbo import fitted_numbers
from ..options import BEST, CostOptions
from ..pipeline import cost_options, schedules_from
from ..report.figures import save_figures
from ..report.page import write_page
from ..report.text import comparison_table
from ..runs.execution import Execution
from ..runs.folder import COMPARISON, RECORD, SCHEDULES, Needed
from ..runs.writing import write_text
from ..schedule import ScheduleSet
from ..statistics.artefact import Statistics
from ..statistics.data import Samples
from ..statistics.estimate import estimate_samples
from ..statistics.passes import clipping_words
from .job import HELDOUT, STATISTICS, Found, Job, Request, named, say_skipped
from .pictures import draw, pictures_evaluations
from .plain_data import gaussian_bits_per_dim, gaussian_notes, tie_notes

USES: tuple[str, ...] = ("skip_nonfinite",)
USUAL_TIMES = 20  # times that an adaptive estimate usually evaluates


def on_grid(denoiser: Denoiser, request: Request) -> Denoiser:
    """Return the model on its own grid."""
    return denoiser


def noise_samples(request: Request) -> int | None:
    """Return None: paths are chosen on data."""
    return None


def options(denoiser: Denoiser, samples: int, request: Request, how: Execution) -> dict[str, Any]:
    """Return the options that results depend on."""
    budgets = adaptive_budgets(denoiser, samples, request)
    sparse = {"every_step": True} if budgets is None else {"tolerance": request.tolerance, "budgets": list(budgets)}
    return (
        cost_options(denoiser, request.variance, request.decoder, request.max_budget)
        | sparse
        | {"skip_nonfinite": how.skip_nonfinite}
    )


def adaptive_budgets(denoiser: Denoiser, samples: int, request: Request) -> tuple[int, ...] | None:
    """Return the budgets that the tolerance applies to; None if every grid index is evaluated."""
    if request.tolerance is None or samples < 2:
        return None
    return check_budgets(request.budgets, denoiser.process.T, request.decoder, request.max_budget)


def needed(job: Job) -> dict[str, Needed]:
    """Return the statistics that are kept, and their indices if known beforehand."""
    T, skip = job.denoiser.process.T, job.how.skip_nonfinite
    every = range(1, T + 1) if adaptive_budgets(job.denoiser, len(job.choosing), job.request) is None else None
    scored = range(1, T + 1) if len(job.scoring) < 2 else every
    return {
        STATISTICS: Needed(job.inputs.estimate, every, skip),
        HELDOUT: Needed(job.inputs.heldout_estimate, scored, skip),
    }


def evaluations(job: Job) -> tuple[int, str]:
    """Count network evaluations; those of an adaptive estimate are a usual number."""
    T, choosing, scoring = job.denoiser.process.T, len(job.choosing), len(job.scoring)
    budgets = adaptive_budgets(job.denoiser, choosing, job.request)
    if budgets is None:
        return pictures_evaluations(job) + T * (choosing + scoring), ""
    times = min(USUAL_TIMES, T)
    scored = most_indices(T, times) if scoring > 1 else T
    return pictures_evaluations(job) + times * choosing + scored * scoring, "at most about "


def run(job: Job, overwrite: bool, plan: SamplesPlan | None = None) -> Found:
    """Do the work and write each result as soon as it is ready; with a ``plan`` paths are chosen for samples."""
    output, request = job.output, job.request
    names = (SCHEDULES, COMPARISON, "table.txt", STATISTICS, HELDOUT)
    files = [output / name for name in names]
    statistics, report = choosing_statistics(job, None if plan is None else plan.band)
    job.doing("Solving for every number of steps")
    costs = (request.variance, request.decoder, request.max_budget)
    schedules = schedules_from(statistics, *costs, progress=job.how.progress, plan=plan)
    if report is not None:
        report.save(output / "adaptive.json", job.record.id)
        files.append(output / "adaptive.json")
        job.say(f"{output / STATISTICS}: {report.sentence()}")
        schedules = replace(schedules, provenance={**schedules.provenance, "adaptive": report.to_dict()})
    schedules = named(schedules, job.record)
    schedules.save(output / SCHEDULES)
    heldout = scoring_statistics(job, schedules, report)
    job.doing("Comparing strides at every number of steps")
    clipping = clipping_words(job.denoiser.clip, job.choosing, job.scoring)
    comparison = compare(schedules, heldout, clipping=clipping)
    gaussian = gaussian_bits_per_dim(job.choosing, job.scoring)
    best = comparison.curves[BEST][comparison.best_budget]
    notes = (*gaussian_notes(gaussian, *best, clipping), *tie_notes(job.choosing))
    comparison = replace(
        comparison, warnings=(*comparison.warnings, *notes, *job.notes), run=job.record.id, gaussian=gaussian
    )
    comparison.save(output / COMPARISON)
    write_text(output / "table.txt", comparison_table(comparison) + "\n")
    job.doing("Drawing figures")
    files += save_figures(comparison, schedules, output)
    files += draw(job, schedules)
    job.doing("Writing the page")
    files = [write_page(output), output / RECORD, *files]
    answer = comparison.sentence() if plan is None else samples_sentence(schedules, heldout)
    details, summary = _summary(comparison, files, request.budgets or (), f"{answer} {caveat(schedules.options)}")
    return Found(
        schedules, comparison, report, answer, notes=comparison.warnings, files=tuple(files),
        details=details, summary=summary,
    )  # fmt: skip


def choosing_statistics(job: Job, band: Band | None = None) -> tuple[Statistics, AdaptiveReport | None]:
    """Return the statistics to choose paths on, from few grid indices if a tolerance allows it, and a report on these.

    The tolerance is in bits/dim; with a ``band``, for samples, it is a share of a path's cost.
    """
    budgets = adaptive_budgets(job.denoiser, len(job.choosing), job.request)
    job.doing("Evaluating the network on the choosing data")
    if budgets is None or job.request.tolerance is None:
        return estimate_to(job, STATISTICS, job.choosing), None
    how = job.execution(STATISTICS)
    statistics, report = estimate_adaptively(
        job.denoiser, job.choosing, None, how.seed, batch_size=how.batch_size, data_range=job.choosing.data_range,
        budgets=budgets, tolerance=job.request.tolerance, variance=job.request.variance, decoder=job.request.decoder,
        progress=how.progress, checkpoint=how.checkpoint, skip_nonfinite=how.skip_nonfinite, check=False, band=band,
    )  # fmt: skip
    say_skipped(statistics, job.say)
    return statistics, report


def scoring_statistics(job: Job, schedules: ScheduleSet, report: AdaptiveReport | None) -> Statistics:
    """Return held-out statistics, from only the grid indices that the scores to be shown need."""
    job.doing("Evaluating the network on held-out data")
    if report is None or len(job.scoring) < 2:
        return estimate_to(job, HELDOUT, job.scoring)
    start, options = time.monotonic(), CostOptions.from_dict(schedules.options)
    statistics = refine_scores(
        *in_rounds(job.denoiser, job.scoring, job.execution(HELDOUT)), shown_paths(schedules, tuple(report.regret)),
        options, fitted=schedules.fitted if fitted_numbers(options) else None, first=report.steps,
        limit=most_indices(schedules.process.T, len(report.steps)),
    )  # fmt: skip
    say_skipped(statistics, job.say)
    times = int(statistics.evaluated.sum())
    job.say(
        f"{job.output / HELDOUT}: {times} of {schedules.process.T:,} times, {times * len(job.scoring):,} evaluations in "
        f"{time.monotonic() - start:.0f} s"
    )
    return statistics


def estimate_to(job: Job, name: str, data: Samples, indices: list[int] | None = None) -> Statistics:
    """Return statistics of ``data``, and write them to the file ``name``."""
    start = time.monotonic()
    statistics = estimate_samples(job.denoiser, data, job.execution(name), indices)
    say_skipped(statistics, job.say)
    evaluations = (job.denoiser.process.T if indices is None else len(indices)) * len(data)
    job.say(f"{job.output / name}: {evaluations:,} evaluations in {time.monotonic() - start:.0f} s")
    return statistics


def _score(comparison: Comparison, stride: str, budget: int) -> dict[str, float]:
    """Return a score as JSON values, with the part of its error due to interpolation, if any."""
    bpd, error = comparison.curves[stride][budget]
    part = {"interpolation": comparison.interpolation[stride][budget]} if comparison.interpolation else {}
    return {"bpd": bpd, "standard_error": error, **part}


def _summary(
    comparison: Comparison, files: list[Path], budgets: tuple[int, ...], answer: str
) -> tuple[dict[str, Any], str]:
    """Return the held-out table (``budgets`` included), the answer, warnings and files: as JSON values and as text."""
    columns = sorted({*comparison.table_budgets, *(K for K in budgets if K in comparison.curves[BEST])})
    details = {
        "answer": answer,
        "enough": {"tolerance": 0.1, "budget": None if comparison.useless else comparison.enough(0.1)},
        "bits_per_dim": {
            stride: {budget: _score(comparison, stride, budget) for budget in columns} for stride in comparison.curves
        },
        "best_budget": comparison.best_budget,
        **({"gaussian": comparison.gaussian} if comparison.gaussian else {}),
        "warnings": list(comparison.warnings),
        "files": [str(path) for path in files],
    }
    lines = [comparison_table(comparison, columns), "", answer]
    if comparison.gaussian:
        references = ", ".join(f"{bpd:.3f} ({kind})" for kind, bpd in comparison.gaussian.items())
        lines.append(f"For comparison, a Gaussian fitted to the choosing data: {references} bits/dim.")
    lines += [f"Note: {warning}" for warning in comparison.warnings]
    lines += ["", "Written: " + ", ".join(str(path) for path in files)]
    return details, "\n".join(lines)
