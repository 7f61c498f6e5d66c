"""Stage 8. What a results folder shows, written again from its saved results: each kind of schedules has its own writer."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..masked.schedule import FORMAT as MASKED
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..runs.writing import write_text


def write_again(folder: Path, target: Path) -> tuple[str, list[Path]]:
    """Write page, figures and tables of ``folder`` into ``target``; the answer, and the paths written, the page first."""
    found = None
    with suppress(UnreadableFileError):  # told by what reads it
        found = read_json_object(folder / "schedules.json").get("format")
    return (_masked if found == MASKED else _gaussian)(folder, target)


def _gaussian(folder: Path, target: Path) -> tuple[str, list[Path]]:
    from ..evaluate.purpose import caveat
    from .figures import save_figures
    from .page import write_page
    from .page.saved import Saved
    from .study_figures import save_study_figures
    from .tables import save_tables
    from .text import comparison_table

    saved = Saved.read(folder)
    files = [write_page(target, saved)]
    if saved.study is None:
        files.append(write_text(target / "table.txt", comparison_table(saved.comparison) + "\n"))
        files += save_figures(saved.comparison, saved.schedules, target)
        files += [] if saved.front is None else saved.front.draw(target)
    else:
        files += save_tables(saved.study, target)
        files += save_study_figures(saved.study, saved.schedules, target, folder / "features")
    return f"{saved.headline} {caveat(saved.schedules.options)}", files


def _masked(folder: Path, target: Path) -> tuple[str, list[Path]]:
    from .masked import save_masked_figures
    from .masked_page import CAVEAT, SavedMasked, write_masked_page

    saved = SavedMasked.read(folder)
    files = [write_masked_page(target, saved=saved)]
    files.append(write_text(target / "table.txt", saved.comparison.table() + "\n"))
    files += save_masked_figures(saved.comparison, saved.schedules, target)
    return f"{saved.comparison.sentence()} {CAVEAT}", files
