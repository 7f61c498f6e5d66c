"""Stage 9. The command line as one of several processes: ``torchrun … -m dpstride``, ``accelerate launch … -m dpstride``.

Every process runs the same command, so that each has the model and the data; `runs.workers` distributes the network's work.
Only the main process prints and writes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click

from ..runs.launched import launch_size

# Verbs that distribute work. The others have no work for a second process; `study` knows by itself which process it is in.
SPREAD = ("find", "tune", "demo", "estimate", "sample", "study")
OWN_OUTPUT = ("find", "tune", "demo", "estimate", "sample")


def join_launch(verb: str | None) -> None:
    """Join the other processes, if there are any and the verb has work for them."""
    if launch_size() > 1 and verb in SPREAD:
        from ..runs.workers import join

        join()


@contextlib.contextmanager
def as_launched(cli: click.Group, verb: str | None) -> Iterator[bool]:
    """Silence every process but the main one; yield False in a process that has no work."""
    if launch_size() == 1 or os.environ.get("RANK", "0") == "0":
        yield True
    elif verb not in SPREAD:
        yield False
    else:
        with _silenced(cli, verb):
            yield True


def stop_at_termination() -> None:
    """Treat SIGTERM, with which job schedulers and launchers end a process, as Ctrl-C: finished work is kept."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


@contextlib.contextmanager
def _silenced(cli: click.Group, verb: str) -> Iterator[None]:
    """Print nothing, and write to a temporary folder."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # the file descriptors, since libraries may bypass sys.stdout
        os.dup2(nowhere, stream)
    with contextlib.ExitStack() as stack:
        if verb in OWN_OUTPUT:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

            def elsewhere(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
                return folder / Path(value).name

            for parameter in cli.commands[verb].params:
                if parameter.name == "output":
                    parameter.callback = elsewhere
        yield
