"""Stage 9. The command line: one verb per stage, plus `find` and `demo`, which run them all.

Every verb reads artefacts and writes one. Results go to standard output (as JSON with ``--json``), progress and warnings
to standard error. Exit codes: 0, 1 (the work failed), 2 (bad usage or input), 130 (interrupted; finished work is kept).
Heavy packages are imported inside the verbs, so that ``dpstride --help`` is instant.
"""

from __future__ import annotations

import io
import os
import sys
import warnings

import click

from .. import __version__
from ..integrations.command import export_command
from ..reading.text import one_line
from ..runs.launched import launch_size
from ..training.command import train_command
from .check import check_command
from .compare import compare_command
from .completion import completion_command
from .console import complain, warning_printer
from .demo import demo_command
from .estimate import estimate_command
from .evaluate import evaluate_command
from .find import find_command
from .launch import as_launched, join_launch, stop_at_termination
from .models import models_command
from .options import check_output_name
from .report import report_command
from .sample import sample_command
from .solve import solve_command
from .study import study_command
from .tune import tune_command
from .user_errors import place_of

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dpstride")
def cli() -> None:
    """The best inference schedule of any pre-trained diffusion model, for every number of steps at once.

    \b
    MODEL is a zoo name (dpstride models), a diffusers folder or hub id, an OpenAI checkpoint, or
          package.module:function that returns a dpstride.Denoiser. For masked diffusion of tokens: a
          folder saved by transformers or `train masked`, or a function that returns a MaskedDenoiser.
    DATA  is a zoo name, a folder of images, a .npy, .npz, .pt or .safetensors file, CIFAR's own
          files or their folder (for the training set), a dataset on the Hugging Face hub
          (hub:OWNER/NAME,split=test), or package.module:function; for tokens a text file, a folder
          of .txt files, or token ids as .npy.
    """


for _command in (
    find_command,
    tune_command,
    demo_command,
    check_command,
    estimate_command,
    solve_command,
    evaluate_command,
    sample_command,
    study_command,
    report_command,
    compare_command,
    models_command,
    export_command,
    train_command,
    completion_command,
):
    cli.add_command(_command)
    for _verb_command in _command.commands.values() if isinstance(_command, click.Group) else (_command,):
        for _parameter in _verb_command.params:
            if "-o" in _parameter.opts:
                _parameter.callback = check_output_name


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors of the user or in the user's code become one message and an exit code."""
    stop_at_termination()
    warnings.showwarning = warning_printer()
    try:
        launch_size()
    except ValueError as error:
        complain(f"Error: {error}")
        sys.exit(2)
    with as_launched(cli, _verb(arguments)) as busy:
        code = _run(arguments) if busy else 0
    if code == INTERRUPTED:
        # After Ctrl-C CPython may still exit by the signal itself (exit code -2); everything is written, so exit now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _verb(arguments: list[str] | None) -> str | None:
    return next(iter(sys.argv[1:] if arguments is None else arguments), None)


def _run(arguments: list[str] | None) -> int:
    try:
        join_launch(_verb(arguments))
        words = sys.argv[1:] if arguments is None else arguments
        return int(cli.main(args=words, prog_name="dpstride", standalone_mode=False, obj=tuple(words)) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        complain(_usage(error))
        return 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted; finished work is kept. Run the same command again to resume.", err=True)
        return INTERRUPTED
    except (ValueError, ImportError) as error:
        from ..denoiser import NonFiniteError  # imports torch, which --help must not wait for

        complain(f"Error: {one_line(error)}{place_of(error)}")
        return 1 if isinstance(error, NonFiniteError) else 2
    except (OSError, RuntimeError, MemoryError) as error:
        complain(f"Error: {_continued(error) or type(error).__name__}{place_of(error)}")
        return 1
    except Exception as error:
        if not (place := place_of(error)):
            raise  # our own bug, and a bug report needs the traceback
        complain(f"Error: {type(error).__name__}: {_continued(error)}{place}")
        return 1


def _usage(error: click.ClickException) -> str:
    """Return click's text on bad usage with its message on one line, or the help of a verb without arguments."""
    shown = io.StringIO()
    error.show(shown)
    text = shown.getvalue().rstrip("\n")
    is_help = isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))
    return text if is_help else text.replace(error.message, one_line(error.message))


def _continued(error: BaseException) -> str:
    """The message of a foreign error; its further lines (torch writes some) are marked, so that none can pass for ours."""
    return str(error).replace("\n", "\n  | ")
