"""Stage 9. `dpstride check`: is the model described correctly?"""

from __future__ import annotations

from typing import Any

import click

from ..finding.inputs import read_samples
from ..finding.job import notes_of
from .console import emit, printer
from .inputs import load_model
from .options import conditioning_option, data_argument, model_argument, model_option, output, work

BETTER = 1  # exit code when another description would be better, or the network is untrained


@click.command("check", short_help="Check on DATA that MODEL is described correctly.")
@model_argument
@data_argument
@click.option("--all", "show_all", is_flag=True, help="List the cost of every single change.")
@model_option
@conditioning_option
@work
@output
def check_command(
    model: str,
    data: str,
    show_all: bool,
    model_options: tuple[tuple[str, Any], ...],
    conditioning: str | None,
    seed: int,
    batch_size: int,
    data_range: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check that MODEL is described correctly, by trying other descriptions on a few samples of DATA.

    Tries other choices of what the network predicts, its time input, process, data scale, channel order and mode. If one
    explains the network's outputs better, it is named with what it would save. Takes several hundred network evaluations.

    Exit code 0 if nothing better was found, 1 if a better description was found or the network is untrained, 2 for bad
    input.

    \b
    Example:
      dpstride check my_package.my_model:denoiser test.npy
    """
    from ..checking.run import check

    loaded = load_model(model, model_options)
    printer(quiet or as_json)("\n".join([f"Model    {model}", *notes_of(loaded)]))
    samples = read_samples(data, loaded, data_range=data_range, conditioning=conditioning)
    found = check(
        loaded.denoiser, samples, seed, batch_size, data_range=samples.data_range, progress=not (quiet or as_json)
    )
    text = str(found)
    if show_all:
        refused = [f"  {label}: refused by the network ({why})" for label, why in found.refused.items()]
        text += "\n" + "\n".join([*(f"  {cost}" for cost in found.tried), *refused])
    emit(as_json, found.to_dict(), text)
    if not found.ok:
        click.get_current_context().exit(BETTER)
