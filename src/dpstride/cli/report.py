"""Stage 9. `dpstride report`: write the page, figures and tables of a results folder again, from its saved results."""

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
    """Return the record of this command for run.json."""
    from ..runs.record import Run

    return Run.of(click.get_current_context().find_root().obj, model, data, heldout, identity=identity)


@click.command("report", short_help="Write report.html, figures and tables of DIR again.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@target_folder("Output folder, for a read-only DIR.  [default: DIR]")
@output
def report_command(folder: Path, target: Path | None, as_json: bool, quiet: bool) -> None:
    """Write report.html, figures and tables of DIR again, from its saved results and without network passes.

    DIR was written by `dpstride find`, `demo`, `study` or `tune`; schedules.json with heldout.safetensors (or
    comparison.json) is enough, or schedules.json with race.json from `tune`. If a run is writing DIR, this waits for five
    seconds and then gives up.

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
    """Lock and yield the folder to write; wait a little for a run that is writing either folder, then name it."""
    if not folder.is_dir():
        raise click.UsageError(
            f"{folder}: there is no such folder. Name one that `dpstride find`, `demo`, `study` or `tune` wrote."
        )
    for place in (folder, *([] if target is None else [target])):
        check_entries(place, OURS)
    if target is not None and target.resolve() != folder.resolve():
        check_free(folder, PATIENCE)
        if (target / "schedules.json").exists():
            raise ValueError(f"{target}: already holds results, which would be mixed with these. Give another folder.")
    try:
        with Lock(target or folder, patience=PATIENCE) as lock:
            remove_leftovers(lock.folder)
            yield lock.folder
    except ProgressError as error:
        remedy = "" if target is not None else " To write the report elsewhere, name a folder with -o."
        raise ProgressError(f"{error}{remedy}") from error
