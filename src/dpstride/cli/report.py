"""Stage 9. `dpstride report`: the page, figures and tables of a results folder again, from what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..runs.entries import check_entries
from ..runs.folder import OURS
from ..runs.lock import Lock, ProgressError, check_free
from ..runs.writing import remove_leftovers
from .console import emit
from .options import output, target_folder

if TYPE_CHECKING:
    from ..runs.record import Run

PATIENCE = 5.0  # seconds that a run has to finish writing


def run_of(model: str, data: str, heldout: str | None, identity: Mapping[str, Any]) -> Run:
    """This run of the command line, for run.json."""
    from ..runs.record import Run

    return Run.of(click.get_current_context().find_root().obj, model, data, heldout, identity=identity)


@click.command("report", short_help="Write report.html and figures of DIR again.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@target_folder("Folder to write them into, for a DIR that is read-only.  [default: DIR]")
@output
def report_command(folder: Path, target: Path | None, as_json: bool, quiet: bool) -> None:
    """Write report.html, figures and tables of DIR again, from its saved results: no network pass.

    DIR is what `dpstride find`, `demo`, `study` or `tune` wrote; schedules.json with heldout.safetensors (or comparison.json)
    is enough, and of `tune` schedules.json with race.json. While a run is writing DIR there is nothing to report: after five
    seconds of waiting that is said.

    \b
    Examples:
      dpstride report out
      dpstride report shared/out -o mine
    """
    from ..report.again import write_again

    with _claimed(folder, target) as written:
        answer, files = write_again(folder, written)
    result = {"report": str(files[0]), "files": [str(path) for path in files]}
    emit(as_json, result, answer + "\n\nWritten: " + ", ".join(str(path) for path in files))


@contextmanager
def _claimed(folder: Path, target: Path | None) -> Iterator[Path]:
    """The folder to write, locked; a run that is writing either is waited for a little, and then named."""
    if not folder.is_dir():
        raise click.UsageError(
            f"{folder}: there is no such folder. Name one that `dpstride find`, `demo`, `study` or `tune` wrote."
        )
    for place in (folder, *([] if target is None else [target])):
        check_entries(place, OURS)
    if target is not None and target.resolve() != folder.resolve():
        check_free(folder, PATIENCE)
        if (target / "schedules.json").exists():
            raise ValueError(
                f"{target}: holds results of its own, which these would be mixed with. Give another folder."
            )
    try:
        with Lock(target or folder, patience=PATIENCE) as lock:
            remove_leftovers(lock.folder)
            yield lock.folder
    except ProgressError as error:
        remedy = "" if target is not None else " To write the report elsewhere, name a folder with -o."
        raise ProgressError(f"{error}{remedy}") from error
