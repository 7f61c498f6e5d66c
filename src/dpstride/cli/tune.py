"""Stage 9. `dpstride tune`: schedules chosen by measured samples."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ..finding.expected import seconds_to_sample
from ..options import DEFAULT_ODE_SAMPLER, EULER, SAMPLERS
from .claim import claims_folder
from .console import emit, expected_time, printer
from .inputs import load_model
from .options import (
    VARIANCES,
    Budgets,
    Real,
    check_eta,
    conditioning_option,
    dry_run,
    model_option,
    output,
    overwrite,
    run_arguments,
    work,
)
from .report import run_of


@click.command("tune", short_help="Choose schedules of MODEL by measured samples.")
@run_arguments
@click.option(
    "--sampler",
    default=DEFAULT_ODE_SAMPLER,
    show_default=True,
    metavar="NAME",
    help=f"{', '.join(SAMPLERS)}, or package.module:function, a sampler of your own: (denoiser, schedule, noise) → samples. "
    "Euler's method is ddim, also for flows.",
)
@click.option("--eta", default=0.0, show_default=True, type=Real(0.0, 1.0), help="Noise of DDIM.")
@click.option("--variance", type=VARIANCES, help="Reverse variance of ancestral steps.  [default: chosen by the race]")
@click.option(
    "--passes",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="For a sampler of your own: network evaluations per sample and step.",
)
@click.option(
    "--budgets",
    type=Budgets(),
    help="Network evaluations per sample to race at; paths have as many steps as these allow.  [default: 4,8,16,32]",
)
@click.option(
    "--also",
    multiple=True,
    metavar="SCHEDULES",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Further schedules to race, published or of another objective; may be repeated.",
)
@click.option(
    "--features",
    help="Features to measure distances in: fashion, inception, inception:PATH, package.module:function, or none for the data "
    "themselves.  [default: those that fit the data]",
)
@click.option(
    "--samples",
    default=512,
    show_default=True,
    type=click.IntRange(min=3),
    help="Samples per path in the final measurement.",
)
@click.option(
    "--race-samples",
    default=256,
    show_default=True,
    type=click.IntRange(min=3),
    help="Samples per candidate in the last round.",
)
@click.option(
    "--polish",
    is_flag=True,
    help="Then move single times of the winners' paths as long as samples come significantly closer: pays off with multistep "
    "solvers, and costs about as much again.",
)
@click.option(
    "--reference-steps",
    type=click.IntRange(min=1),
    help="Number of even steps that count as all steps.  [default: at most 128]",
)
@click.option(
    "--within",
    type=Real(min=0.0, min_open=True),
    help="Difference from the reference's distance that counts as zero.  [default: a tenth of that distance]",
)
@click.option(
    "--evaluations",
    type=click.IntRange(min=1),
    help="Maximum number of network evaluations; each counts twice for a guided model.  [default: no limit]",
)
@click.option(
    "--seconds",
    type=Real(min=0.0, min_open=True),
    help="The same limit as a time, converted to evaluations by timing a few.",
)
@dry_run
@model_option
@conditioning_option
@work
@overwrite
@output
@claims_folder
def tune_command(
    model: str,
    data: str,
    output: Path,
    heldout: str | None,
    sampler: str,
    eta: float,
    budgets: tuple[int, ...] | None,
    also: tuple[Path, ...],
    race_samples: int,
    reference_steps: int | None,
    evaluations: int | None,
    seconds: float | None,
    dry_run: bool,
    model_options: tuple[tuple[str, Any], ...],
    conditioning: str | None,
    seed: int,
    batch_size: int,
    data_range: Any,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **wished: Any,
) -> None:
    """Choose schedules of MODEL by measured samples, for the sampler that you use.

    Candidates (the objective for samples with many weights, hand-made and published strides, the ELBO's path) race at each of
    --budgets: all start from the same noise, and in each round the better half advances to more samples. They are ranked by
    distance from real data: the kernel distance of features, or the energy distance of the data themselves. The winners,
    hand-made strides and many even steps are then measured again, on noise and real data not used for choosing.

    Writes report.html, an interactive page; schedules.json, with a schedule for every number of steps up to the largest of
    --budgets; race.json, table.txt, a figure and grids of samples. Run again after an interruption, it resumes where it
    stopped. Runs on all processes of torchrun.

    \b
    Examples:
      dpstride tune my_package.my_model:denoiser images/ -o tuned --sampler ddim --features inception
      dpstride tune my_package.my_model:denoiser table.npy -o tuned --data-range continuous --sampler mine:solver
    """
    from ..finding.inputs import Asked, shared_note, split
    from ..racing.run import prepare
    from ..racing.wish import BUDGETS, Wish
    from ..runs.execution import Execution

    chosen = _sampler(sampler, eta)
    loaded = load_model(model, model_options)
    wish = Wish(
        sampler=chosen,
        eta=eta,
        budgets=budgets or BUDGETS,
        also={str(path): path for path in also},
        race_samples=race_samples,
        first_samples=min(64, race_samples),
        reference=reference_steps,
        **wished,
        evaluations=_limit(loaded.denoiser, evaluations, seconds, batch_size),
    )
    parts = split(
        Asked(data, heldout, data_range=data_range, defaults=(wish.real, wish.real), conditioning=conditioning),
        loaded,
        seed,
    )
    event = prepare(
        loaded, parts, output, wish, how=Execution(seed, batch_size, not quiet), record=partial(run_of, model, data, heldout),
        notes=shared_note(*parts) if heldout else (), say=printer(quiet or as_json),
    )  # fmt: skip
    if dry_run:
        raced, final = event.expected()
        expected = seconds_to_sample(loaded.denoiser, batch_size) * (raced + final)
        result = {"race": raced, "finish": final, "seconds": expected}
        emit(as_json, result, f"{event.plan()}\nWould take {expected_time(expected)} besides the statistics.")
        return
    found = event.run(overwrite)
    text = f"{found}\n\nWritten: {', '.join(str(path) for path in found.files)}"
    emit(as_json, {**found.to_dict(), "files": [str(path) for path in found.files]}, text)


def _sampler(text: str, eta: float) -> Any:
    """Return a sampler's name, or the function named by package.module:function."""
    if ":" in text:
        from ..statistics.files import import_function

        return import_function(text)
    text = EULER.get(text, text)
    if text not in SAMPLERS:
        raise click.UsageError(f"--sampler must be {', '.join(SAMPLERS)} or package.module:function, not {text!r}.")
    check_eta(text, eta)
    return text


def _limit(denoiser: Any, evaluations: int | None, seconds: float | None, batch_size: int) -> int | None:
    """Return the maximum number of evaluations, limited by number, by time or by both."""
    if seconds is None:
        return evaluations
    if denoiser.shape is None:
        raise click.UsageError("--seconds needs a model that knows its sample shape. Give --evaluations instead.")
    timed = max(1, int(seconds / seconds_to_sample(denoiser, batch_size)))
    return timed if evaluations is None else min(timed, evaluations)
