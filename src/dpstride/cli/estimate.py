"""Stage 9. `dpstride estimate`: statistics of a model on data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .console import emit, say_notes, sayer
from .inputs import load_model, read_samples
from .options import model_option, output, work


@click.command("estimate")
@click.argument("model")
@click.argument("data")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--samples", type=click.IntRange(min=1), help="Samples to use, the first of DATA.  [default: all]")
@model_option
@work
@output
def estimate_command(
    model: str,
    data: str,
    output: Path,
    samples: int | None,
    model_options: tuple[tuple[str, Any], ...],
    seed: int,
    batch_size: int,
    data_range: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Statistics of MODEL on DATA: one network pass per step and batch. Resumes from its own output.

    \b
    Example:
      dpstride estimate my_package.my_model:denoiser train.npy -o statistics.safetensors
    """
    from ..statistics.estimate import estimate as run

    say = sayer(quiet or as_json)
    loaded = load_model(model, model_options)
    denoiser = loaded.denoiser
    gathered = read_samples(data, loaded, samples, data_range)
    say(f"{denoiser.name}: T = {denoiser.process.T}, {len(gathered)} samples of shape {gathered.shape}")
    say_notes(loaded, say)
    statistics = run(denoiser, gathered, None, seed, batch_size, gathered.data_range, not quiet, output)
    evaluations = statistics.process.T * statistics.samples
    emit(as_json, {"statistics": str(output), "evaluations": evaluations}, f"{output}: {evaluations:,} evaluations")
