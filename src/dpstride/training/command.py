"""``dpstride train``: the training loop from the command line."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstride.options import TRAINING_OBJECTIVES
from dpstride.reading.text import printable
from dpstride.training.console import in_words, print_result, run_options, shown, typed_command
from dpstride.training.masked.command import masked_command

if TYPE_CHECKING:
    from dpstride.training.images import Images
    from dpstride.training.settings import TrainingSettings

HELD_OUT = 1000


@click.group("train", short_help="Train a small model of images or text.")
def train_command() -> None:
    """Train a small model: of 8-bit images with one of the paper's objectives, or of text.

    \b
    Examples:
      dpstride train simple -o runs/fashion-simple
      dpstride train masked -o runs/letters --data texts/
    """


@click.command
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Run folder.")
@click.option("--data", help="8-bit images: DATA of any verb, or Fashion-MNIST's folder.  [Fashion-MNIST, Debian's]")
@click.option("--labels", metavar="KEY", help="Train a class-conditional model on the labels that DATA has under KEY.")
@click.option("--classes", type=click.IntRange(1), help="Number of classes.  [one more than the largest label]")
@click.option("--held-out", type=click.IntRange(1), help="Images for the held-out loss.  [a tenth, at most 1,000]")
@click.option("--steps", type=click.IntRange(1), default=10_000, show_default=True, help="Total optimiser steps.")
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True)
@click.option("--learning-rate", type=float, default=1e-3, show_default=True, help="Peak, after the warm-up.")
@click.option("--warmup", type=click.IntRange(0), default=500, show_default=True, help="Steps of linear warm-up.")
@click.option("--cooldown", type=click.IntRange(1), help="Keep the peak rate until this many steps before the end.")
@click.option("--ema", type=float, default=0.999, show_default=True, help="Decay of the average of the weights.")
@click.option("--clip-norm", type=float, default=1.0, show_default=True, help="Largest norm of the gradient.")
@click.option("--channels", help="Channels of each resolution, such as 24,48,64.  [by image size]")
@click.option("--layers-per-block", type=click.IntRange(1), default=1, show_default=True)
@click.option("--attention", help="Heights of the resolutions with attention, such as 16,8, or none.  [the coarsest]")
@click.option("--flip", is_flag=True, help="Mirror every image left to right half of the time.")
@click.option("--loss-aware", is_flag=True, help="Draw t where the loss is large; the objective stays the same.")
@click.option("--from", "warm_start", type=click.Path(path_type=Path), help="Folder of a model to start from.")
@run_options
def images_command(
    objective: str,
    output: Path,
    data: str | None,
    labels: str | None,
    classes: int | None,
    held_out: int | None,
    channels: str | None,
    attention: str | None,
    threads: int | None,
    warm_start: Path | None,
    export_only: bool,
    tensorboard: bool,
    ema: float,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train a small model of 8-bit images with one of the paper's objectives.

    After an interruption, run it again with the same options: it resumes from the last checkpoint.

    \b
    Examples:
      dpstride train simple -o runs/fashion-simple
      dpstride train hybrid -o runs/mine --data photos/ --flip --steps 50000 --cooldown 5000
    """
    from dpstride.runs.entries import check_apart
    from dpstride.training.images import read_images
    from dpstride.training.loop import export_last
    from dpstride.training.scalars import check_tensorboard
    from dpstride.training.settings import TrainingSettings
    from dpstride.training.train import Run, train

    widths = None if channels is None else _whole_numbers(channels, "24,48,64")
    heights = None if attention is None else () if attention == "none" else _whole_numbers(attention, "16,8, or none")
    with in_words(threads):
        if classes is not None and labels is None:
            raise ValueError("--classes is for class-conditional models: also name the labels of DATA with --labels.")
        check_tensorboard(tensorboard, export_only)
        check_apart(output, (), [] if data is None else [data])
        images, count = read_images(data, labels, classes)
        settings = TrainingSettings(
            objective=objective,  # type: ignore[arg-type]
            ema_decay=ema,
            channels=widths,
            attention=heights,
            classes=count,
            **options,
        )
        kept, others = images.split(min(HELD_OUT, len(images) // 10 or 1) if held_out is None else held_out)
        command = typed_command(click.get_current_context())
        if not quiet:
            click.echo(_plan(kept, others, settings, data), err=True)
        given: dict[str, Any] = {"held_out": others, "warm_start": warm_start, "command": command}
        if export_only:
            folder = export_last(output, lambda steps: Run(kept, output, replace(settings, steps=steps), **given))
        else:
            folder = train(kept, output, settings, **given, **shown(quiet, settings.steps), tensorboard=tensorboard)
    print_result(folder, output, as_json)


assert images_command.callback is not None
for _objective in TRAINING_OBJECTIVES:
    train_command.add_command(
        click.Command(
            _objective,
            callback=partial(images_command.callback, _objective),
            params=images_command.params,
            help=images_command.help,
            short_help=f"Diffusion of 8-bit images, objective {_objective}.",
        )
    )
train_command.add_command(masked_command)


def _plan(kept: Images, others: Images, settings: TrainingSettings, data: str | None) -> str:
    """Lines that describe the training, with a note if the peak learning rate is never reached."""
    source = "Fashion-MNIST of Debian's package" if data is None else printable(data)
    size = "×".join(map(str, kept.shape))
    classes = f" of {settings.classes} classes" if settings.classes else ""
    lines = [
        f"Data     {len(kept):,} images{classes}, {size} ({source}); {len(others):,} others for the held-out loss",
        f"Training {settings.objective}, {settings.steps:,} steps of {settings.batch_size}, seed {settings.seed}",
    ]
    if settings.warmup + (settings.cooldown or 0) > settings.steps:
        lines.append(
            "Note: warm-up and cooldown together are longer than the run, so the learning rate does not reach its peak."
        )
    return "\n".join(lines)


def _whole_numbers(text: str, example: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of whole numbers such as {example}.") from None
