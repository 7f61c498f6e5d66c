"""Stage 9. Printing: results to standard output, as text or JSON; progress and warnings to standard error.

Model names and messages about files contain foreign text, so everything passes `printable_lines`: a terminal shows control
characters instead of obeying them. (JSON escapes them itself.) A name with a line break, typed or found in a message, is
shown on one line, so that it cannot pass for a line of ours. A few labels are then coloured, on a terminal only, and not
where NO_COLOR is set (no-color.org).
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

# The beginning of a line, and the style of that beginning (LABELS) or of the whole line (ROWS).
LABELS: dict[str, dict[str, Any]] = {
    "Error:": {"fg": "red", "bold": True},
    "Warning:": {"fg": "yellow", "bold": True},
    "Note:": {"fg": "yellow"},
    "Written:": {"fg": "cyan"},
}
ROWS: dict[str, dict[str, Any]] = {"bits/dim, held-out": {"bold": True}, "DP stride": {"fg": "green", "bold": True}}


def complain(text: str) -> None:
    """Print ``text`` to standard error."""
    _echo(text, err=True)


def warning_printer() -> Callable[..., None]:
    """Return a replacement for ``warnings.showwarning`` that prints each warning once."""
    printed: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in printed:
            printed.add(text)
            complain(f"Warning: {text}")

    return show


def printer(silent: bool) -> Callable[[str], None]:
    """Return a function that prints progress messages, or nothing if ``silent``."""
    return (lambda text: None) if silent else complain


def emit(as_json: bool, result: dict[str, Any], text: str) -> None:
    """Print a verb's result, as JSON or as text."""
    if as_json:
        click.echo(json.dumps(result))
    else:
        _echo(text)


def _echo(text: str, err: bool = False) -> None:
    # click omits colours by itself when it does not write to a terminal
    lines = map(_coloured, printable_lines(_with_names_on_one_line(text)).split("\n"))
    click.echo("\n".join(lines), err=err, color=False if os.environ.get("NO_COLOR") else None)


def _with_names_on_one_line(text: str) -> str:
    """Return ``text`` with line breaks in typed names (files, models) escaped; other line breaks are ours."""
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
    """Return the expected time in words; compilation starts after many calls, so the timed calls are not compiled yet."""
    words = f"{seconds / 60.0:.0f} minutes" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} hours"
    if seconds < 90.0:
        words = "1 second" if round(seconds) == 1 else f"{seconds:.0f} seconds"
    return f"about {words}" + (", less once it is compiled" if running().get("compile") else "")
