"""Stage 9. What is said: results to standard output, as text or JSON; everything on the way to standard error.

Names of models and messages about files hold text of others, so all of it passes `printable_lines`: a terminal shows
their control characters and does not obey them. (JSON escapes them itself.) A name with a line break in it, typed or found
in a message, is shown on one line, so that it cannot pass for a line of ours. Colours come after that, for a few words that
an eye looks for, on a terminal only, and not where NO_COLOR is set (no-color.org).
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..reading.text import one_line, printable_lines
from .options import running

# What a line begins with, and how that (or the whole line) is drawn.
LABELS: dict[str, dict[str, Any]] = {
    "Error:": {"fg": "red", "bold": True},
    "Warning:": {"fg": "yellow", "bold": True},
    "Note:": {"fg": "yellow"},
    "Written:": {"fg": "cyan"},
}
ROWS: dict[str, dict[str, Any]] = {"bits/dim, held-out": {"bold": True}, "DP stride": {"fg": "green", "bold": True}}


def complain(text: str) -> None:
    """Say ``text`` on standard error."""
    _echo(text, err=True)


def warning_sayer() -> Callable[..., None]:
    """Return what says warnings of Python's `warnings`, each once, in place of ``warnings.showwarning``."""
    said: set[str] = set()

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in said:
            said.add(text)
            complain(f"Warning: {text}")

    return say


def printer(silent: bool) -> Callable[[str], None]:
    """A function that prints progress messages, or nothing at all."""
    return (lambda text: None) if silent else complain


def emit(as_json: bool, result: dict[str, Any], text: str) -> None:
    """A verb's result, for machines or for people."""
    if as_json:
        click.echo(json.dumps(result))
    else:
        _echo(text)


def _echo(text: str, err: bool = False) -> None:
    # click itself leaves colours out where it does not write to a terminal
    lines = map(_coloured, printable_lines(_with_names_on_one_line(text)).split("\n"))
    click.echo("\n".join(lines), err=err, color=False if os.environ.get("NO_COLOR") else None)


def _with_names_on_one_line(text: str) -> str:
    """``text`` with the line breaks of what was typed (files, models) as escapes; other line breaks are ours."""
    context = click.get_current_context(silent=True)
    typed = () if context is None else context.params.values()
    each = itertools.chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in typed)
    for name in sorted({str(value) for value in each if isinstance(value, (str, Path))}, key=len, reverse=True):
        if "\n" in name:
            text = text.replace(name, one_line(name))
    return text


def _coloured(line: str) -> str:
    for start, style in ROWS.items():
        if line.startswith(start):
            return click.style(line, **style)
    for start, style in LABELS.items():
        if line.lstrip().startswith(start):
            return line.replace(start, click.style(start, **style), 1)
    return line


def expected_time(seconds: float) -> str:
    """Expected time in words; a network is compiled only once it has been called often, so the timed calls are slower ones."""
    words = f"{seconds / 60.0:.0f} minutes" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} hours"
    if seconds < 90.0:
        words = "1 second" if round(seconds) == 1 else f"{seconds:.0f} seconds"
    return f"about {words}" + (", less once it is compiled" if running().get("compile") else "")
