"""Stage 9. `dpstride compare`: several runs side by side."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from ..runs.folder import claimed
from ..runs.lock import check_free
from .console import emit
from .options import output, target_folder
from .report import PATIENCE


@click.command("compare", short_help="Compare held-out bits/dim of several runs.")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(file_okay=False, path_type=Path))
@target_folder("Folder for a page, the table and a figure.  [default: only print the table]")
@output
def compare_command(folders: tuple[Path, ...], target: Path | None, as_json: bool, quiet: bool) -> None:
    """Compare held-out bits/dim of several runs, from their saved results and without network passes.

    Each DIR was written by `dpstride find`, `demo` or `study`. Models, options and numbers of samples may differ; held-out
    data must not: give `find` the same --heldout. Use `dpstride tune --also` to compare runs for samples.

    \b
    Examples:
      dpstride compare out-eps out-v
      dpstride compare runs/a runs/b runs/c -o side-by-side
    """
    from ..report.compare import compare_runs

    for folder in folders:
        if not folder.is_dir():
            raise click.UsageError(f"{folder}: there is no such folder. Name folders that `dpstride find` wrote.")
        check_free(folder, PATIENCE)
    if target is not None and any((target / name).exists() for name in ("schedules.json", "run.json")):
        raise ValueError(f"{target}: already holds results, which would be mixed with these. Give another folder.")
    compared = compare_runs(folders)
    files: list[Path] = []
    with nullcontext() if target is None else claimed(target):
        if target is not None:
            files = compared.save(target)
    text = "\n".join([compared.sentence, "", compared.table(), "", *(f"Note: {note}" for note in compared.notes)])
    if files:
        text += "\n\nWritten: " + ", ".join(map(str, files))
    emit(as_json, {**compared.to_dict(), "files": [str(path) for path in files]}, text.rstrip())
