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


@click.command("tune", short_help="Schedules chosen by measured samples: a race, and its winners measured again.")
@run_arguments
@click.option(
    "--sampler",
    default=DEFAULT_ODE_SAMPLER,
    show_default=True,
    metavar="NAME",
    help=f"{', '.join(SAMPLERS)}, or package.module:function, a sampler of your own: (denoiser, schedule, noise) → samples. "
    "Euler's method, for flows too, is ddim.",
)
@click.option("--eta", default=0.0, show_default=True, type=Real(0.0, 1.0), help="Noise of DDIM.")
@click.option(
    "--variance", type=VARIANCES, help="Reverse variance of ancestral steps.  [default: the winner of a race]"
)
@click.option(
    "--passes",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Evaluations of a sample in every step, for a sampler of your own.",
)
@click.option(
    "--budgets",
    type=Budgets(),
    help="Evaluations of a sample to race for; paths have as many steps as these pay for.  [default: 4,8,16,32]",
)
@click.option(
    "--also",
    multiple=True,
    metavar="SCHEDULES",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Schedules that race too, of another objective or published; may be repeated.",
)
@click.option(
    "--features",
    help="Features to measure by: fashion, inception, inception:PATH, package.module:function, or none for the data "
    "themselves.  [default: what fits the data]",
)
@click.option(
    "--samples", default=512, show_default=True, type=click.IntRange(min=3), help="Samples of every path at the end."
)
@click.option(
    "--race-samples",
    default=256,
    show_default=True,
    type=click.IntRange(min=3),
    help="Samples of those candidates that come to the last round.",
)
@click.option(
    "--polish",
    is_flag=True,
    help="Then move single times of the winners' paths as long as samples surely come closer: pays with solvers that "
    "remember, and takes about as much again.",
)
@click.option(
    "--reference-steps",
    type=click.IntRange(min=1),
    help="Even steps that count as all of them.  [default: 128, at most]",
)
@click.option(
    "--within",
    type=Real(min=0.0, min_open=True),
    help="Difference from the reference's distance that counts as none.  [default: a tenth of that distance]",
)
@click.option(
    "--evaluations",
    type=click.IntRange(min=1),
    help="The most network evaluations to spend; those of a guided model count two.  [default: no limit]",
)
@click.option(
    "--seconds",
    type=Real(min=0.0, min_open=True),
    help="The same as time: as many evaluations as a few timed ones say.",
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
    """Schedules of MODEL chosen by measured samples, for the sampler that you use.

    Candidates (the objective for samples with many weights, hand-made and published strides, the ELBO's path) race at each of
    --budgets: all draw from the same noises, and the better half of them goes on to more samples. What races is the distance
    from real data: the kernel distance of features, or the energy distance of the data themselves. The winners, hand-made
    strides and many even steps are then measured again, on noises and real data that chose nothing.

    Writes report.html, a page to look through, schedules.json, with a schedule of every number of steps up to the largest of
    --budgets, race.json, table.txt, a figure and grids of samples. Run again after an interruption it goes on where it
    stopped. It spreads over the processes of torchrun.

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
    """A sampler's name, or the function that package.module:function names."""
    if ":" in text:
        from ..statistics.files import import_function

        return import_function(text)
    text = EULER.get(text, text)
    if text not in SAMPLERS:
        raise click.UsageError(f"--sampler must be {', '.join(SAMPLERS)} or package.module:function, not {text!r}.")
    check_eta(text, eta)
    return text


def _limit(denoiser: Any, evaluations: int | None, seconds: float | None, batch_size: int) -> int | None:
    """The most evaluations, by number or by time."""
    if seconds is None:
        return evaluations
    if denoiser.shape is None:
        raise click.UsageError("--seconds needs a model that knows its sample shape. Give --evaluations instead.")
    timed = max(1, int(seconds / seconds_to_sample(denoiser, batch_size)))
    return timed if evaluations is None else min(timed, evaluations)
