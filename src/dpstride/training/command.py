"""``dpstride train``: the training loop from the command line."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

HELD_OUT = 1000  # the last images of the training split, never trained on; test images stay untouched
NEUTRAL = ("export_only", "data", "as_json", "quiet")


@click.command("train", short_help="Train a small model of Fashion-MNIST.")
@click.argument("objective", type=click.Choice(["simple", "hybrid", "vlb", "continuous", "flow"]))
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Run folder.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of Fashion-MNIST's .gz files.  [Debian's]")
@click.option("--steps", type=click.IntRange(1), default=10_000, show_default=True, help="Optimiser steps in all.")
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True)
@click.option("--learning-rate", type=float, default=1e-3, show_default=True, help="Peak, after the warm-up.")
@click.option("--warmup", type=click.IntRange(0), default=500, show_default=True, help="Steps of linear warm-up.")
@click.option("--ema", type=float, default=0.999, show_default=True, help="Decay of the average of the weights.")
@click.option("--clip-norm", type=float, default=1.0, show_default=True, help="Largest norm of the gradient.")
@click.option("--channels", default="24,48,64", show_default=True, help="Channels of each resolution.")
@click.option("--layers-per-block", type=click.IntRange(1), default=1, show_default=True)
@click.option("--loss-aware", is_flag=True, help="Draw t where the loss is large; the objective stays the same.")
@click.option("--from", "warm_start", type=click.Path(exists=True, path_type=Path), help="Model to start from.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1), help="CPU threads.  [torch's own choice]")
@click.option("--export-only", is_flag=True, help="Write the model of the last checkpoint, and train no further.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the result.")
def train_command(
    objective: str,
    output: Path,
    data: Path | None,
    channels: str,
    threads: int | None,
    warm_start: Path | None,
    export_only: bool,
    ema: float,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train a small model of Fashion-MNIST with one of the paper's OBJECTIVEs.

    Run it again with the same options after an interruption: it goes on from the last checkpoint.

    \b
    Example:
      dpstride train simple -o runs/fashion-simple --steps 10000
    """
    import torch

    from dpstride.training.objectives import Objective
    from dpstride.training.train import Run, TrainingSettings, train
    from dpstride.zoo.idx import read_fashion_mnist

    assert objective in get_args(Objective)
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        levels = tuple(int(width) for width in channels.split(","))
    except ValueError:
        raise click.BadParameter(f"{channels!r} is not a list of whole numbers such as 24,48,64.") from None
    try:
        settings = TrainingSettings(objective=objective, ema_decay=ema, channels=levels, **options)  # type: ignore[arg-type]
        images, _ = read_fashion_mnist("train", data)
        images, held_out = images[:-HELD_OUT], images[-HELD_OUT:]
        command = _typed(click.get_current_context())
        if export_only:
            output.mkdir(parents=True, exist_ok=True)
            run = Run(images, output, settings, None, held_out, warm_start, command)
            if run.step == 0:
                raise ValueError(f"{output} holds no checkpoint to export. Train first.")
            folder = run.finish()
        else:
            folder = train(
                images,
                output,
                settings,
                held_out=held_out,
                warm_start=warm_start,
                command=command,
                progress=False if quiet else None,
                report=None if quiet or sys.stderr.isatty() else _print_record,
            )
    except (ValueError, FileNotFoundError) as error:
        raise click.UsageError(str(error)) from error
    _print_result(folder, output, as_json)


def _print_result(folder: Path, output: Path, as_json: bool) -> None:
    """Where the model is, and the last line of its log."""
    last = json.loads((output / "log.json").read_text(encoding="utf-8"))["log"][-1:]
    if as_json:
        click.echo(json.dumps({"model": str(folder), **(last[0] if last else {})}))
    else:
        click.echo("".join(f"{folder}: {_words(record)}" for record in last) or str(folder))


def _print_record(record: dict[str, Any]) -> None:
    click.echo(_words(record), err=True)


def _words(record: dict[str, Any]) -> str:
    held_out = "-" if record["held_out_loss"] is None else f"{record['held_out_loss']:.5f}"
    return (
        f"step {record['step']}: training loss {record['train_loss']:.5f}, held-out {held_out}, "
        f"learning rate {record['learning_rate']:.2e}, {record['hours']:.2f} h"
    )


def _typed(context: click.Context) -> str:
    """The command as typed, without what does not change the result's weights, for dpstride.json."""
    words = ["dpstride", "train"]
    for parameter in context.command.params:
        assert parameter.name is not None
        if context.get_parameter_source(parameter.name) is not ParameterSource.COMMANDLINE or parameter.name in NEUTRAL:
            continue
        value = [str(context.params[parameter.name])]
        if isinstance(parameter, click.Option):
            value = [parameter.opts[-1]] if parameter.is_flag else [parameter.opts[-1], *value]
        words += value
    return shlex.join(words)
