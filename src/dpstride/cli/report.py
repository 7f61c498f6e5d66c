"""Stage 9. `dpstride report`: the page, figures and tables of a results folder again, from what it holds."""

from __future__ import annotations

from pathlib import Path

import click

from ..runs.writing import write_text
from .console import emit
from .options import output


def write_report(folder: Path, model: str, data: str, heldout: str | None) -> list[Path]:
    """report.html, and run.json, which says by what command and from what it came: the end of a verb with results."""
    from ..report.page import write_page
    from ..report.page.run import Run

    words = click.get_current_context().find_root().obj
    record = Run.of(words, model, data, heldout).save(folder)
    return [write_page(folder), record]


@click.command("report", short_help="Write report.html and figures of DIR again.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@output
def report_command(folder: Path, as_json: bool, quiet: bool) -> None:
    """Write report.html, figures and tables of DIR again, from its saved results: no network pass.

    DIR is what `dpstride find`, `demo` or `study` wrote; schedules.json with heldout.safetensors (or comparison.json) is
    enough.

    \b
    Example:
      dpstride report out
    """
    from ..report.figures import save_figures
    from ..report.page import write_page
    from ..report.page.saved import Saved
    from ..report.study_figures import save_study_figures
    from ..report.tables import save_tables
    from ..report.text import comparison_table

    saved = Saved.read(folder)
    files = [write_page(folder, saved)]
    if saved.study is None:
        table = write_text(folder / "table.txt", comparison_table(saved.comparison) + "\n")
        files += [table, *save_figures(saved.comparison, saved.schedules, folder)]
        files += [] if saved.front is None else saved.front.draw(folder)
    else:
        files += [*save_tables(saved.study, folder), *save_study_figures(saved.study, saved.schedules, folder)]
    result = {"report": str(files[0]), "files": [str(path) for path in files]}
    emit(as_json, result, saved.comparison.sentence() + "\n\nWritten: " + ", ".join(str(path) for path in files))
