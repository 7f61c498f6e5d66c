"""Stage 9. `dpstride find`: the main job, from a model and data to schedules, a held-out table and figures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..finding.inputs import DEFAULT_SAMPLES
from ..options import SAMPLES, Objective, Purpose
from .claim import claims_folder
from .console import emit, expected_time, printer
from .inputs import load_any
from .objectives import check_objective, objective, objective_of
from .options import (
    adaptive,
    checks,
    conditioning_option,
    costs,
    dry_run,
    given,
    model_option,
    run_arguments,
    run_options,
)
from .report import run_of

if TYPE_CHECKING:
    from ..finding.job import Job

ASK_FOR_RACE = ("race", "purpose", "objective")
DIFFERENT_IN_RACE = ("samples",)  # here those that choose paths, there those of the final measurement


@click.command("find", short_help="The main job: find the best schedules of MODEL on DATA.")
@run_arguments
@click.option(
    "--samples", type=click.IntRange(min=1), help=f"Number of samples to choose paths on.  [default: {DEFAULT_SAMPLES}]"
)
@click.option(
    "--heldout-samples",
    type=click.IntRange(min=1),
    help=f"Number of samples to score on.  [default: {DEFAULT_SAMPLES}]",
)
@adaptive
@click.option("--every-step", is_flag=True, help="Evaluate every step, whatever the tolerance.")
@checks
@click.option(
    "--pictures",
    metavar="K",
    type=click.IntRange(min=0),
    help="For images: show a dozen samples of K steps on the page; 0 for none.  [default: 8]",
)
@dry_run
@objective
@click.option(
    "--race",
    is_flag=True,
    help="With --for samples: choose among many rules by measured samples, like dpstride tune, which has more options.",
)
@model_option
@conditioning_option
@costs
@run_options
@claims_folder
def find_command(
    model: str,
    data: str,
    output: Path,
    heldout: str | None,
    samples: int | None,
    heldout_samples: int | None,
    every_step: bool,
    dry_run: bool,
    purpose: Purpose | None,
    objective: Objective,
    race: bool,
    model_options: tuple[tuple[str, Any], ...],
    conditioning: str | None,
    seed: int,
    batch_size: int,
    data_range: Any,
    skip_nonfinite: bool,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **asked_for: Any,
) -> None:
    """The main job: find the best schedules of MODEL on DATA, and score them on held-out data.

    The network runs at only as many steps as it takes to find paths within --tolerance of the best (adaptive.json reports
    the evaluations spent and bounds on the regret), and on held-out data at those and a few more; --every-step runs it at
    every step.

    Writes report.html, an interactive page on every number of steps; schedules.json, comparison.json, table.txt, figures,
    statistics.safetensors and heldout.safetensors. Run again after an interruption, it resumes where it stopped. A folder
    with results of another model, other data or other options is refused; --overwrite replaces them.

    By default paths minimise bits/dim. --for samples chooses, from the same statistics, paths that draw good samples in few
    steps with --sampler: they minimise the divergence from the data over a band of noise levels. With --race many rules draw
    samples, and for each number of steps the one measured to be closest to real data is chosen.

    --objective trajectory chooses paths for a deterministic sampler, by how far its steps leave the trajectory of a reference
    sampler, and scores them by the distance between end points from --heldout-samples noise samples; it writes no page.
    --objective mixed weighs both, and writes front.json.

    For masked diffusion of tokens DATA is text, steps are rounds, and schedules say how many tokens each round reveals.

    \b
    Examples:
      dpstride find my_package.my_model:denoiser images/ -o out --samples 128
      dpstride find my_package.my_model:denoiser images/ -o fast --for samples --sampler ddim
      dpstride find runs/letters/model book.txt -o rounds
    """
    from ..finding.inputs import Asked, job_of
    from ..finding.job import Request
    from ..runs.execution import Execution

    objective = objective_of(purpose, objective)
    check_objective(objective)
    if race:
        race_instead(objective)
        return
    if every_step:
        asked_for["tolerance"] = None
    request = Request(objective=objective, **asked_for)
    how = Execution(seed, batch_size, not quiet, skip_nonfinite=skip_nonfinite)
    asked = Asked(data, heldout, samples, heldout_samples, data_range=data_range, conditioning=conditioning)
    job = job_of(
        load_any(model, model_options), asked, request, output,
        how=how, record=partial(run_of, model, data, heldout), say=printer(quiet or as_json),
    )  # fmt: skip
    job.say(job.plan())
    if dry_run:
        say_expected(job, as_json)
        return
    found = job.run(overwrite)
    emit(as_json, found.details, found.summary)


def race_instead(objective: Objective) -> None:
    """Run `dpstride tune` with the options given; options that it does not have are refused."""
    from .tune import tune_command

    context = click.get_current_context()
    if objective != SAMPLES:
        raise click.UsageError(f"--race measures samples, but these paths are for {objective}. Add --for samples.")
    typed = {name: value for name, value in context.params.items() if given(name) and name not in ASK_FOR_RACE}
    for name in typed:
        if name in DIFFERENT_IN_RACE or name not in {parameter.name for parameter in tune_command.params}:
            raise click.UsageError(
                f"--{name.replace('_', '-')} has no meaning with --race. Leave it out; dpstride tune --help lists the options "
                "of a race."
            )
    context.invoke(tune_command, **typed)


def say_expected(job: Job, as_json: bool) -> None:
    """Print a job's number of network evaluations and their expected time, from a few timed passes of the same work."""
    evaluations, about = job.evaluations()
    batch_size = job.how.batch_size
    expected = job.seconds_per_evaluation() * evaluations
    result = {"evaluations": evaluations, "seconds": expected, "batch_size": batch_size}
    emit(
        as_json,
        result,
        f"Would make {about}{evaluations:,} network evaluations besides the probes, {expected_time(expected)}.",
    )
