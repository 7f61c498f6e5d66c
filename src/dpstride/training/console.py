"""Output of the training verbs, and the command as typed."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dpstride.reading.text import printable

NEUTRAL = ("export_only", "as_json", "quiet", "tensorboard")


def print_result(folder: Path, output: Path, as_json: bool) -> None:
    """Print the model's folder, and the last line of its log."""
    last = json.loads((output / "log.json").read_text(encoding="utf-8"))["log"][-1:]
    if as_json:
        click.echo(json.dumps({"model": str(folder), **(last[0] if last else {})}))
    else:
        click.echo("".join(f"{printable(folder)}: {_words(record)}" for record in last) or printable(folder))


OPTIONS = (
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
    click.option("--threads", type=click.IntRange(1), help="CPU threads.  [torch's own choice]"),
    click.option(
        "--export-only", is_flag=True, help="Write the model of the last checkpoint without further training."
    ),
    click.option("--tensorboard", is_flag=True, help="Also write the log into OUTPUT/tensorboard, for TensorBoard."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--quiet", "-q", is_flag=True, help="Print only the result."),
)


def run_options(command: Any) -> Any:
    """Add the options that every training verb has."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@contextlib.contextmanager
def in_words(threads: int | None) -> Iterator[None]:
    """Set the number of CPU threads (torch's choice if None), and turn errors of user or network into messages."""
    import torch

    from dpstride.denoiser import NonFiniteError

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    except NonFiniteError as error:
        raise click.ClickException(str(error)) from error
    except (ValueError, FileNotFoundError) as error:
        raise click.UsageError(str(error)) from error


def shown(quiet: bool, steps: int) -> dict[str, Any]:
    """Arguments for the progress of training: a bar on a terminal, else lines, and nothing if ``quiet``."""
    return {
        "progress": False if quiet else None,
        "report": None if quiet or sys.stderr.isatty() else record_printer(steps),
    }


def record_printer(steps: int) -> Callable[[dict[str, Any]], None]:
    """A printer of the log's records with the time left, by the speed of this process so far."""
    started, first = time.monotonic(), []

    def write(record: dict[str, Any]) -> None:
        first.append(record["step"])
        done = record["step"] - first[0]
        left = f", {(time.monotonic() - started) / done * (steps - record['step']) / 3600:.2f} h left" if done else ""
        click.echo(_words(record) + left, err=True)

    return write


def _words(record: dict[str, Any]) -> str:
    held_out = "-" if record["held_out_loss"] is None else f"{record['held_out_loss']:.5f}"
    return (
        f"step {record['step']}: training loss {record['train_loss']:.5f}, held-out {held_out}, "
        f"learning rate {record['learning_rate']:.2e}, {record['hours']:.2f} h"
    )


def typed_command(context: click.Context) -> str:
    """The command as typed, without options that do not affect the weights, for dpstride.json."""
    words = ["dpstride", "train", context.info_name or ""]
    for parameter in context.command.params:
        assert parameter.name is not None
        if context.get_parameter_source(parameter.name) is not ParameterSource.COMMANDLINE or parameter.name in NEUTRAL:
            continue
        value = [str(context.params[parameter.name])]
        if isinstance(parameter, click.Option):
            value = [parameter.opts[-1]] if parameter.is_flag else [parameter.opts[-1], *value]
        words += value
    return shlex.join(words)
