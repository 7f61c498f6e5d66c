"""Stage 9. What is said: results to standard output, as text or JSON; everything on the way to standard error.

Names of models and messages about files hold text of others, so all of it passes `printable_lines`: a terminal shows
their control characters and does not obey them. (JSON escapes them itself.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..reading.text import printable_lines

if TYPE_CHECKING:
    from ..integrations.loaded import LoadedModel
    from ..statistics.artefact import Statistics


def say_notes(loaded: LoadedModel, say: Callable[[str], None]) -> None:
    """What was read from a foreign model and by which rules, before the work starts."""
    for note in (*loaded.notes, *(f"Warning: {warning}" for warning in loaded.warnings)):
        say(f"         {note}")


def say_skipped(statistics: Statistics, say: Callable[[str], None]) -> None:
    """Which samples were left out, if any."""
    if statistics.skipped:
        say(f"Warning: {statistics.skipped_note}")


def complain(text: str) -> None:
    """Say ``text`` on standard error."""
    click.echo(printable_lines(text), err=True)


def sayer(silent: bool) -> Callable[[str], None]:
    """What says things on the way, or nothing at all."""
    return (lambda text: None) if silent else complain


def emit(as_json: bool, result: dict[str, Any], text: str) -> None:
    """A verb's result, for machines or for people."""
    click.echo(json.dumps(result) if as_json else printable_lines(text))


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90.0:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60.0:.0f} minutes" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} hours"
