"""Stage 9. `dpstride estimate`: statistics of a model on data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..finding.inputs import read_samples
from ..finding.job import notes_of, say_skipped
from ..options import DEFAULT_DECODER
from ..runs.folder import Needed, claim_statistics
from .claim import claims_file
from .console import emit, printer
from .inputs import load_model
from .options import (
    DECODERS,
    VARIANCES,
    adaptive,
    checks,
    conditioning_option,
    data_argument,
    model_argument,
    model_option,
    output,
    overwrite,
    skip_nonfinite,
    work,
)


@click.command("estimate", short_help="Estimate statistics of MODEL on DATA.")
@model_argument
@data_argument
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Output file.")
@click.option(
    "--samples", type=click.IntRange(min=1), help="Use only this many samples, the first of DATA.  [default: all]"
)
@click.option(
    "--adaptive", is_flag=True, help="Evaluate only as many steps as good paths need, and interpolate the others."
)
@adaptive
@checks
@click.option(
    "--variance", type=VARIANCES, help="With --adaptive: reverse variance of the paths.  [default: the model's own]"
)
@click.option(
    "--decoder",
    type=DECODERS,
    default=DEFAULT_DECODER,
    show_default=True,
    help="With --adaptive: decoder of the paths.",
)
@model_option
@conditioning_option
@work
@skip_nonfinite
@overwrite
@output
@claims_file
def estimate_command(
    model: str,
    data: str,
    output: Path,
    samples: int | None,
    adaptive: bool,
    tolerance: float,
    budgets: tuple[int, ...] | None,
    check: bool,
    variance: Any,
    decoder: Any,
    model_options: tuple[tuple[str, Any], ...],
    conditioning: str | None,
    seed: int,
    batch_size: int,
    data_range: Any,
    skip_nonfinite: bool,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Estimate statistics of MODEL on DATA, with one network pass per step and batch. Resumes from its own output.

    With --adaptive the network runs at a few steps only; evaluations spent and saved, and bounds on the regret, are written
    next to the output, to a file ending in .adaptive.json. An output with statistics of another model, data or seed is
    refused; --overwrite replaces it.

    \b
    Example:
      dpstride estimate my_package.my_model:denoiser train.npy -o statistics.safetensors
    """
    from ..checking.notice import warn_about_description
    from ..runs.execution import Execution
    from ..statistics.estimate import estimate_samples
    from ..statistics.files import describe_source
    from ..statistics.identity import identity_of

    say = printer(quiet or as_json)
    loaded = load_model(model, model_options)
    denoiser = loaded.denoiser
    gathered = read_samples(data, loaded, samples, data_range=data_range, conditioning=conditioning)
    size = f"T = {denoiser.process.T}, {len(gathered)} samples of shape {gathered.shape} ({describe_source(data)})"
    say("\n".join([f"Model    {model}: {size}", *notes_of(loaded)]))
    identity = identity_of(denoiser, gathered, seed)
    claim_statistics(output, Needed(identity, skip_nonfinite=skip_nonfinite), overwrite)
    if adaptive:
        from ..adaptive.loop import estimate_adaptively

        statistics, report = estimate_adaptively(
            denoiser, gathered, None, seed, batch_size=batch_size, data_range=gathered.data_range, budgets=budgets,
            tolerance=tolerance, variance=variance, decoder=decoder, progress=not quiet, checkpoint=output,
            skip_nonfinite=skip_nonfinite, check=check,
        )  # fmt: skip
        say_skipped(statistics, say)
        report.save(output.with_suffix(".adaptive.json"))
        emit(as_json, {"statistics": str(output), **report.to_dict()}, f"{output}: {report.sentence()}")
        return
    how = Execution(seed, batch_size, not quiet, output, skip_nonfinite=skip_nonfinite)
    if check:
        warn_about_description(denoiser, gathered, how)
    statistics = estimate_samples(denoiser, gathered, how)
    say_skipped(statistics, say)
    evaluations = statistics.process.T * statistics.samples
    result = {"statistics": str(output), "evaluations": evaluations, "skipped": list(statistics.skipped)}
    emit(as_json, result, f"{output}: {evaluations:,} evaluations")
