"""``dpstride train masked``: a small transformer of characters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dpstride.training.console import in_words, print_result, run_options, shown, typed_command


@click.command("masked", short_help="Masked diffusion of characters, on text.")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Run folder.")
@click.option("--data", type=click.Path(path_type=Path), required=True, help="A text file, or a folder of .txt files.")
@click.option("--steps", type=click.IntRange(1), default=20_000, show_default=True, help="Total optimiser steps.")
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True)
@click.option("--learning-rate", type=float, default=2e-3, show_default=True, help="Peak, after the warm-up.")
@click.option("--warmup", type=click.IntRange(0), default=200, show_default=True, help="Steps of linear warm-up.")
@click.option("--cooldown", type=click.IntRange(1), help="Keep the peak rate until this many steps before the end.")
@click.option("--ema", "ema_decay", type=float, default=0.999, show_default=True, help="Decay of the weights' average.")
@click.option("--clip-norm", type=float, default=1.0, show_default=True, help="Largest norm of the gradient.")
@click.option("--length", type=click.IntRange(1), default=128, show_default=True, help="Characters per passage.")
@click.option("--width", type=click.IntRange(1), default=128, show_default=True, help="Width of the transformer.")
@click.option("--layers", type=click.IntRange(1), default=6, show_default=True)
@click.option("--heads", type=click.IntRange(1), default=4, show_default=True)
@run_options
def masked_command(
    output: Path,
    data: Path,
    length: int,
    width: int,
    layers: int,
    heads: int,
    threads: int | None,
    export_only: bool,
    tensorboard: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train a small masked diffusion model of characters on text; every tenth part of the text is held out.

    After an interruption, run it again with the same options: it resumes from the last checkpoint. With --export-only, the
    model of that checkpoint is written without further training.

    \b
    Example:
      dpstride train masked -o runs/letters --data texts/ --steps 20000
    """
    from dpstride.reading.plain import read_text
    from dpstride.runs.entries import check_apart
    from dpstride.training.masked.settings import MaskedTrainingSettings
    from dpstride.training.masked.train import PACE, export_masked, train_masked
    from dpstride.training.scalars import check_tensorboard
    from dpstride.zoo.characters import Architecture

    with in_words(threads):
        check_tensorboard(tensorboard, export_only)
        check_apart(output, (), [str(data)])
        architecture = Architecture(length, width, layers, heads)
        settings = MaskedTrainingSettings(architecture=architecture, **options)
        command = typed_command(click.get_current_context())
        if export_only:
            folder = export_masked(read_text(data), output, settings, command=command)
        else:
            pace = replace(PACE, **shown(quiet, settings.steps), tensorboard=tensorboard)
            folder = train_masked(read_text(data), output, settings, command=command, pace=pace)
    print_result(folder, output, as_json)
