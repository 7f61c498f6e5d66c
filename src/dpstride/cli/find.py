"""Stage 9. `dpstride find`: the main job, from a model and data to schedules, a held-out table and figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pipeline import cost_options, named
from ..runs.folder import RECORD, Needed, begin
from ..runs.writing import write_text
from .claim import claims_folder
from .console import emit, notes_of, printer, say_skipped
from .expected import in_words, seconds_to_estimate
from .inputs import DEFAULT_SAMPLES, check_costs, load_model, shared_note, split
from .objectives import Request, check_objective, evaluations_of, find_other, objective
from .options import (
    adaptive,
    costs,
    data_argument,
    heldout_option,
    model_argument,
    model_option,
    output,
    overwrite,
    skip_nonfinite,
    work,
)
from .report import run_of

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from ..evaluate.comparison import Comparison
    from ..integrations.loaded import LoadedModel
    from ..runs.record import Run
    from ..schedule import ScheduleSet
    from ..statistics.artefact import Statistics
    from ..statistics.data import Samples
    from ..statistics.identity import Inputs

Sparse = tuple[float, tuple[int, ...]]  # tolerance, and the budgets that it is for
USUAL_TIMES = 20  # that an adaptive estimate evaluates


@click.command("find", short_help="The main job: the best schedules of MODEL, chosen on DATA.")
@model_argument
@data_argument
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write."
)
@heldout_option
@click.option(
    "--samples", type=click.IntRange(min=1), help=f"Samples to choose the path on.  [default: {DEFAULT_SAMPLES}]"
)
@click.option(
    "--heldout-samples", type=click.IntRange(min=1), help=f"Samples to score on.  [default: {DEFAULT_SAMPLES}]"
)
@adaptive
@click.option("--every-step", is_flag=True, help="Evaluate every step, whatever the tolerance.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, the network evaluations and the time expected.")
@objective
@model_option
@costs
@work
@skip_nonfinite
@overwrite
@output
@claims_folder
def find_command(
    model: str,
    data: str,
    output: Path,
    heldout: str | None,
    samples: int | None,
    heldout_samples: int | None,
    tolerance: float,
    budgets: tuple[int, ...] | None,
    every_step: bool,
    dry_run: bool,
    objective: str,
    sampler: str,
    weight: float,
    trajectories: int,
    teacher_steps: int,
    model_options: tuple[tuple[str, Any], ...],
    variance: Any,
    decoder: Any,
    max_budget: int | None,
    seed: int,
    batch_size: int,
    data_range: Any,
    skip_nonfinite: bool,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """The main job: the best schedules of MODEL, chosen on DATA and scored on held-out data.

    The network runs at as few steps as paths within --tolerance of the best need (adaptive.json tells what was spent and
    what is believed), and on held-out data at those and at the steps of the paths; --every-step runs it at all.

    Writes report.html, a page to look through every number of steps; schedules.json, comparison.json, table.txt,
    figures, statistics.safetensors and heldout.safetensors. Run again after an interruption, it goes on where it stopped.
    A folder with results of another model, other data or other options is refused; --overwrite replaces them.

    --objective trajectory chooses paths for a deterministic sampler instead, by how far its steps leave a teacher's
    trajectory, and scores them by the distance of end points from --heldout-samples noises, without a page; mixed weighs
    both, and writes front.json.

    \b
    Example:
      dpstride find my_package.my_model:denoiser images/ -o out --samples 128
    """
    from ..adaptive.loop import check_budgets
    from ..report.page import write_page
    from ..statistics.identity import Inputs

    say = printer(quiet or as_json)
    check_objective(objective)
    loaded = load_model(model, model_options)
    denoiser = loaded.denoiser
    choosing, scoring = split(data, heldout, samples, heldout_samples, loaded, data_range, seed)
    check_costs(denoiser, variance, decoder, max_budget, choosing, scoring)
    sparse = (
        None
        if every_step or len(choosing) < 2
        else (tolerance, check_budgets(budgets, denoiser.process.T, decoder, max_budget))
    )
    chosen_on = f"{trajectories} noises" if objective == "trajectory" else None
    say(plan(loaded, choosing, scoring, model, data, heldout, chosen_on))
    if objective != "elbo":
        request = Request(
            objective, sampler, weight, trajectories, teacher_steps, variance, decoder, max_budget, budgets,
            None if every_step else tolerance, seed, batch_size, not quiet, overwrite,
        )  # fmt: skip
        if dry_run:
            say_expected(denoiser, choosing, batch_size, evaluations_of(denoiser, choosing, scoring, request), as_json)
            return
        names = partial(run_of, model, data, heldout)
        find_other(denoiser, choosing, scoring, output, request, say, names, as_json)
        return
    if dry_run:
        say_expected(denoiser, choosing, batch_size, _evaluations(denoiser, choosing, scoring, sparse), as_json)
        return
    options = cost_options(denoiser, variance, decoder, max_budget) | sparse_options(sparse)
    inputs = Inputs.of(denoiser, choosing, scoring, seed)
    run = run_of(model, data, heldout, inputs.run("find", options | {"skip_nonfinite": skip_nonfinite}, "elbo"))
    every = range(1, denoiser.process.T + 1) if sparse is None else None
    begin(output, run, statistics_of_find(inputs, every, every, skip_nonfinite), overwrite)
    _, comparison, files = find_schedules(
        denoiser, choosing, scoring, output, variance, decoder, max_budget, seed, batch_size, say, sparse,
        skip_nonfinite=skip_nonfinite, progress=not quiet, notes=shared_note(choosing, scoring) if heldout else (), run=run,
    )  # fmt: skip
    print_result(comparison, [write_page(output), output / RECORD, *files], as_json, budgets or ())


def statistics_of_find(
    inputs: Inputs, choosing: Sequence[int] | None, scoring: Sequence[int] | None, skip_nonfinite: bool = False
) -> dict[str, Needed]:
    """What `find` needs of the network, by the names of the files that keep it, at which indices (None: not known yet)."""
    return {
        "statistics.safetensors": Needed(inputs.estimate, choosing, skip_nonfinite),
        "heldout.safetensors": Needed(inputs.heldout_estimate, scoring, skip_nonfinite),
    }


def sparse_options(sparse: Sparse | None) -> dict[str, Any]:
    """Options of an adaptive estimate on which results depend."""
    return {"every_step": True} if sparse is None else {"tolerance": sparse[0], "budgets": list(sparse[1])}


def find_schedules(
    denoiser: Denoiser,
    choosing: Samples,
    scoring: Samples,
    output: Path,
    variance: Any,
    decoder: Any,
    max_budget: int | None,
    seed: int,
    batch_size: int,
    say: Callable[[str], None],
    sparse: Sparse | None = None,
    score_sparsely: bool = True,
    skip_nonfinite: bool = False,
    progress: bool = True,
    notes: tuple[str, ...] = (),
    run: Run | None = None,
) -> tuple[ScheduleSet, Comparison, list[Path]]:
    """Statistics → schedules → held-out statistics → comparison → figures, each written as soon as it is there.

    With ``sparse``, a tolerance and the budgets that it is for, the network does not run at every step; on held-out data
    neither, if they are to be scored sparsely. Results carry the name of the ``run``.
    """
    from ..adaptive.loop import estimate_adaptively
    from ..evaluate.comparison import compare
    from ..pipeline import schedules_from
    from ..report.figures import save_figures
    from ..report.text import comparison_table

    def estimate_to(name: str, data: Samples, seed: int, steps: list[int] | None = None) -> Statistics:
        from ..statistics.estimate import estimate as run

        start = time.monotonic()
        statistics = run(
            denoiser, data, None, seed, batch_size, data.data_range, progress, output / name, steps, skip_nonfinite
        )
        say_skipped(statistics, say)
        evaluations = (denoiser.process.T if steps is None else len(steps)) * len(data)
        say(f"{output / name}: {evaluations:,} evaluations in {time.monotonic() - start:.0f} s")
        return statistics

    run_id = None if run is None else run.id
    names = ("schedules.json", "comparison.json", "table.txt", "statistics.safetensors", "heldout.safetensors")
    files = [output / name for name in names]
    steps = None
    if sparse is None:
        statistics = estimate_to("statistics.safetensors", choosing, seed)
        schedules = schedules_from(statistics, variance, decoder, max_budget, progress)
    else:
        tolerance, budgets = sparse
        statistics, report = estimate_adaptively(
            denoiser, choosing, None, seed, batch_size, choosing.data_range, budgets, tolerance, variance, decoder,
            progress=progress, checkpoint=output / "statistics.safetensors", skip_nonfinite=skip_nonfinite,
        )  # fmt: skip
        say_skipped(statistics, say)
        report.save(output / "adaptive.json", run_id)
        files.append(output / "adaptive.json")
        say(f"{output / 'statistics.safetensors'}: {report.sentence()}")
        schedules = schedules_from(statistics, variance, decoder, max_budget, progress)
        schedules = replace(schedules, provenance={**schedules.provenance, "adaptive": report.to_dict()})
        if score_sparsely:
            # The paths that are asked for are scored where they go, without interpolation.
            kept = [schedules[K].steps[:-1] for K in budgets if K in schedules.entries]
            steps = sorted({*report.steps, *(step for path in kept for step in path)})
    schedules = named(schedules, run)
    schedules.save(output / "schedules.json")
    comparison = compare(schedules, estimate_to("heldout.safetensors", scoring, seed + 1, steps))
    comparison = replace(comparison, warnings=(*comparison.warnings, *notes), run=run_id)
    comparison.save(output / "comparison.json")
    write_text(output / "table.txt", comparison_table(comparison) + "\n")
    return schedules, comparison, files + save_figures(comparison, schedules, output)


def plan(
    loaded: LoadedModel,
    choosing: Samples,
    scoring: Samples,
    model: str,
    data: str,
    heldout: str | None,
    chosen_on: str | None = None,
) -> str:
    """What is about to be done, for people; ``chosen_on`` where it is not the data that choose."""
    from ..statistics.files import describe_source

    denoiser, process = loaded.denoiser, loaded.denoiser.process
    clip = "no clipping" if denoiser.clip is None else f"x0 clipped to [{denoiser.clip[0]:g}, {denoiser.clip[1]:g}]"
    lines = [f"Model    {model}: predicts {denoiser.predicts}, {denoiser.variance} variance, {clip}", *notes_of(loaded)]
    lines.append(f"Process  {process.name}, {process.kind}, T = {process.T}")
    if chosen_on is not None:
        return "\n".join([*lines, f"Noise    {chosen_on} choose the path, {len(scoring)} others score it"])
    other = "a disjoint part of the same data" if heldout is None else describe_source(heldout)
    lines += [
        f"Data     {len(choosing)} samples of shape {choosing.shape} choose the path ({describe_source(data)})",
        f"         {len(scoring)} other samples score it ({other})",
    ]
    return "\n".join(lines)


def _evaluations(denoiser: Denoiser, choosing: Samples, scoring: Samples, sparse: Sparse | None) -> tuple[int, str]:
    """Network evaluations, and how sure that is."""
    T = denoiser.process.T
    if sparse is None:
        return T * (len(choosing) + len(scoring)), ""
    times = min(USUAL_TIMES, T)
    return times * len(choosing) + min(times + sum(sparse[1]), T) * len(scoring), "about "


def say_expected(
    denoiser: Denoiser, choosing: Samples, batch_size: int, counted: tuple[int, str], as_json: bool
) -> None:
    """A dry run: network evaluations, and the time they take by a few timed passes of the same work."""
    evaluations, about = counted
    expected = seconds_to_estimate(denoiser, choosing, batch_size) * evaluations
    result = {"evaluations": evaluations, "seconds": expected, "batch_size": batch_size}
    emit(
        as_json,
        result,
        f"Would make {about}{evaluations:,} network evaluations besides the probes, {in_words(expected)}.",
    )


def print_result(comparison: Comparison, files: list[Path], as_json: bool, budgets: Sequence[int] = ()) -> None:
    """The held-out table, also of the ``budgets`` asked for, how few steps are enough, warnings, and the files."""
    from ..report.text import comparison_table

    columns = sorted({*comparison.table_budgets, *(K for K in budgets if K in comparison.curves["dp"])})
    result = {
        "answer": comparison.sentence(),
        "enough": {"tolerance": 0.1, "budget": None if comparison.useless else comparison.enough(0.1)},
        "bits_per_dim": {
            stride: {budget: {"bpd": curve[budget][0], "standard_error": curve[budget][1]} for budget in columns}
            for stride, curve in comparison.curves.items()
        },
        "best_budget": comparison.best_budget,
        "warnings": list(comparison.warnings),
        "files": [str(path) for path in files],
    }
    lines = [comparison_table(comparison, columns), "", comparison.sentence()]
    lines += [f"Note: {warning}" for warning in comparison.warnings]
    lines += ["", "Written: " + ", ".join(str(path) for path in files)]
    emit(as_json, result, "\n".join(lines))
