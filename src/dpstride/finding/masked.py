"""The main job for masked diffusion of tokens: statistics → unmasking schedules → held-out scores → figures and page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..integrations.masked_loading import MaskedSource
from ..masked.adaptive import ALL, estimate_masked_adaptively
from ..masked.comparison import MaskedComparison, compare_masked, shown_budgets
from ..masked.costs import masked_schedules
from ..masked.estimate import estimate_masked
from ..masked.passes import MaskedPasses
from ..masked.process import MaskedProcess
from ..masked.schedule import MaskedScheduleSet
from ..masked.statistics import MaskedStatistics
from ..masked.tokens import Tokens
from ..paths import finite
from ..report.masked import save_masked_figures
from ..report.masked_page import CAVEAT, SavedMasked, write_masked_page
from ..runs.execution import Execution
from ..runs.folder import COMPARISON, RECORD, SCHEDULES, begin
from ..runs.numbers import whole_number
from ..runs.pulse import Pulse
from ..runs.record import Run
from ..runs.workers import current
from ..runs.writing import write_text
from .inputs import Asked, parts_of
from .job import HELDOUT, STATISTICS, Found, Request, Say

USES = ("max_budget", "budgets", "tolerance", "check")  # of a request; tokens have no description to check
USUAL_COUNTS = 20  # counts that an adaptive estimate usually evaluates


@dataclass(frozen=True)
class MaskedJob:
    """A job ready to run: everything is loaded and checked, and nothing is written yet."""

    source: MaskedSource
    choosing: Tokens
    scoring: Tokens
    output: Path
    request: Request
    how: Execution
    record: Run
    notes: tuple[str, ...] = ()
    say: Say = lambda text: None
    doing: Say = lambda what: None

    def plan(self) -> str:
        """Describe the work ahead."""
        denoiser = self.source.denoiser
        sizes = f"{self.choosing.sizes.max()} tokens" + ("" if _equal(self.choosing) else " at most")
        return (
            f"Model    {self.record.model}: masked diffusion of up to {denoiser.length} tokens, {denoiser.vocabulary:,} ids\n"
            f"Data     {len(self.choosing)} samples of {sizes} choose the schedules ({self.record.data})\n"
            f"         {len(self.scoring)} other samples score them ({self.record.heldout})"
        )

    def evaluations(self) -> tuple[int, str]:
        """Count network evaluations; those of an adaptive estimate are a usual number."""
        length, samples = int(self.choosing.sizes.max()), len(self.choosing) + len(self.scoring)
        if self.request.tolerance is None or length <= ALL:
            return length * samples, ""
        return USUAL_COUNTS * samples, "about "

    def seconds_per_evaluation(self) -> float:
        """Time a few evaluations of the same work."""
        few = self.choosing.take(range(min(self.how.batch_size, len(self.choosing))))
        process = MaskedProcess(int(few.sizes.max()))
        passes = MaskedPasses(self.source.denoiser.on_grid(process), few, self.how)
        passes.probe()  # also warms up, and detects an unusable network
        start, everyone = time.monotonic(), np.arange(len(few))
        masked = passes.masked(np.full(len(few), (process.T + 1) // 2), everyone)
        passes.nats(masked, masked, everyone)
        return (time.monotonic() - start) / len(few) / current().size

    def run(self, overwrite: bool = False) -> Found:
        """Run the job; the folder must be locked. Results of another run are refused, or removed with ``overwrite``."""
        begin(self.output, self.record, {}, overwrite)
        with Pulse(self.say, bars=self.how.progress) as pulse:
            return _run(replace(self, say=pulse.say, doing=pulse.doing))


def prepare_asked(
    loaded: MaskedSource,
    asked: Asked,
    request: Request,
    output: Path,
    *,
    how: Execution,
    record: Callable[[dict[str, Any]], Run],
    say: Say,
) -> MaskedJob:
    """Check everything for which a job could be refused, before the network runs."""
    _check_uses(request, asked, how)
    choosing, scoring = parts_of(asked, loaded.read, how.seed)
    for part in (choosing, scoring):
        part.check(loaded.denoiser)
    length = int(choosing.sizes.max())
    for budget in (request.max_budget, *(request.budgets or ())):
        if budget is not None:
            whole_number(budget, f"Numbers of rounds must be whole numbers from 1 to {length}", 1, length)
    notes = _shared_note(choosing, scoring) if asked.heldout is not None else ()
    run = record(identity_of_run(loaded, (choosing, scoring), how.seed, _options(request)))
    return MaskedJob(loaded, choosing, scoring, output, request=request, how=how, record=run, notes=notes, say=say)


def _options(request: Request) -> dict[str, Any]:
    counts = {"every_step": True} if request.tolerance is None else {"tolerance": request.tolerance}
    return {"max_budget": request.max_budget, **counts}


def identity_of_run(
    source: MaskedSource, parts: tuple[Tokens, Tokens], seed: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Return all that the results of a run depend on; it chooses on the first of ``parts`` and scores on the second."""
    data, heldout = ({"fingerprint": part.fingerprint, "samples": len(part)} for part in parts)
    return {
        "verb": "find",
        "objective": "masked",
        "model": {name: value for name, value in source.denoiser.describe().items() if name != "name"},
        "data": data,
        "heldout": heldout,
        "seed": seed,
        "options": options,
        "version": __version__,
    }


def _run(job: MaskedJob) -> Found:
    output = job.output
    job.doing("Evaluating the network on the choosing data")
    choosing = _choosing(job)
    job.doing("Solving for every number of rounds")
    schedules = masked_schedules(choosing, job.request.max_budget)
    schedules = replace(schedules, provenance={**schedules.provenance, "run": job.record.id})
    schedules.save(output / SCHEDULES)
    job.doing("Evaluating the network on held-out data")
    scoring = estimate_masked(
        job.source.denoiser, job.scoring, seed=job.how.seed + 1, batch_size=job.how.batch_size,
        length=choosing.process.length, counts=choosing.evaluated, progress=job.how.progress, checkpoint=output / HELDOUT,
    ).filled()  # fmt: skip
    job.doing("Comparing schedules")
    budgets = {*shown_budgets(schedules.budgets), *(job.request.budgets or ())}
    comparison = compare_masked(schedules, scoring, choosing, budgets)
    comparison = replace(comparison, warnings=(*comparison.warnings, *job.notes), run=job.record.id)
    comparison.save(output / COMPARISON)
    write_text(output / "table.txt", comparison.table(job.request.budgets or ()) + "\n")
    job.doing("Drawing figures and the page")
    files = [
        write_masked_page(
            output, SavedMasked(output, schedules, choosing, scoring, comparison=comparison, run=job.record)
        ),
        *(output / name for name in (RECORD, SCHEDULES, COMPARISON, "table.txt", STATISTICS, HELDOUT)),
        *save_masked_figures(comparison, schedules, output),
    ]
    return _found(job, schedules, comparison, files)


def _choosing(job: MaskedJob) -> MaskedStatistics:
    """Return the statistics to choose schedules on, from few counts if a tolerance allows it."""
    given: dict[str, Any] = {"seed": job.how.seed, "batch_size": job.how.batch_size, "progress": job.how.progress}
    given["checkpoint"] = job.output / STATISTICS
    if job.request.tolerance is None:
        return estimate_masked(job.source.denoiser, job.choosing, **given)
    found = estimate_masked_adaptively(job.source.denoiser, job.choosing, tolerance=job.request.tolerance, **given)
    if found.evaluated is not None:
        job.say(f"{job.output / STATISTICS}: {len(found.evaluated)} of {found.process.T:,} counts of masked tokens")
    return found


def _found(job: MaskedJob, schedules: MaskedScheduleSet, comparison: MaskedComparison, files: list[Path]) -> Found:
    answer = f"{comparison.sentence()} {CAVEAT}"
    budgets = comparison.columns(job.request.budgets or ())
    scores = {
        rule: {K: {"bits": curve[K][0], "standard_error": finite(curve[K][1])} for K in budgets}
        for rule, curve in comparison.curves.items()
    }
    details = {
        "answer": answer,
        "length": schedules.length,
        "bits_per_token": scores,
        "warnings": list(comparison.warnings),
        "files": [str(path) for path in files],
    }
    lines = [
        comparison.table(job.request.budgets or ()),
        "",
        answer,
        *(f"Note: {text}" for text in comparison.warnings),
    ]
    summary = "\n".join([*lines, "", "Written: " + ", ".join(map(str, files))])
    return Found(
        schedules, comparison, None, answer,
        notes=comparison.warnings, files=tuple(files), details=details, summary=summary,
    )  # fmt: skip


def _check_uses(request: Request, asked: Asked, how: Execution) -> None:
    """Refuse options of Gaussian diffusion, which would have no effect."""
    usual = Request()
    given = [
        each.name
        for each in fields(Request)
        if each.name not in USES and getattr(request, each.name) != getattr(usual, each.name)
    ]
    given += [
        name
        for name, found in (
            ("data_range", asked.data_range),
            ("conditioning", asked.conditioning),
            ("skip_nonfinite", how.skip_nonfinite),
        )
        if found
    ]
    if given:
        raise ValueError(
            f"{given[0]} is for diffusion of numbers; with a masked model of tokens it has no effect. Leave it out."
        )


def _shared_note(choosing: Tokens, scoring: Tokens) -> tuple[str, ...]:
    chosen = {row.tobytes() for row in choosing.ids}
    shared = sum(row.tobytes() in chosen for row in scoring.ids)
    if not shared:
        return ()
    return (
        f"{shared:,} of the {len(scoring):,} samples that score the schedules were also used to choose them, so the scores "
        "are optimistic. Give other text to --heldout, or leave it out to score on a disjoint part of the text.",
    )


def _equal(tokens: Tokens) -> bool:
    return bool((tokens.sizes == tokens.sizes.max()).all())
