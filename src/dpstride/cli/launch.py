"""Stage 9. The command line as one of several processes: ``torchrun … -m dpstride``, ``accelerate launch … -m dpstride``.

Every process runs the same command, so that each has the model and the data; the networks' work is spread by
`runs.workers`. Only the main process speaks and writes.
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

# Verbs that spread work. The others have nothing to do for a second process; `study` itself knows which one it is in.
SPREAD = ("find", "tune", "demo", "estimate", "sample", "study")
OWN_OUTPUT = ("find", "tune", "demo", "estimate", "sample")


def join_launch(verb: str | None) -> None:
    """Join the other processes, if there are any and the verb has work for them."""
    if launch_size() > 1 and verb in SPREAD:
        from ..runs.workers import join

        join()


@contextlib.contextmanager
def as_launched(cli: click.Group, verb: str | None) -> Iterator[bool]:
    """Be silent in every process but the main one; False in one that has nothing to do."""
    if launch_size() == 1 or os.environ.get("RANK", "0") == "0":
        yield True
    elif verb not in SPREAD:
        yield False
    else:
        with _in_silence(cli, verb):
            yield True


def stop_at_termination() -> None:
    """Take SIGTERM, by which schedulers and launchers end a process, for Ctrl-C: what was done is kept."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


@contextlib.contextmanager
def _in_silence(cli: click.Group, verb: str) -> Iterator[None]:
    """Say nothing, and write to a folder that is thrown away."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # below Python, whose libraries have their own ways to speak
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
