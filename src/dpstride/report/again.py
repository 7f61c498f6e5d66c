"""Stage 8. Page, figures and tables rewritten from the saved results of a folder: one record for each kind of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..masked.schedule import FORMAT as MASKED
from ..racing.finish import OURS as RACED
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..runs.writing import write_text

Written = tuple[str, list[Path]]  # the answer, and the paths written, the page first


@dataclass(frozen=True)
class Kind:
    """A kind of results.

    Attributes:
        holds: tests whether schedules.json, as far as it could be read, is of this kind.
        write: writes page, figures and tables of one folder into another.
    """

    holds: Callable[[Mapping[str, Any]], bool]
    write: Callable[[Path, Path], Written]


def write_again(folder: Path, target: Path) -> Written:
    """Write page, figures and tables of ``folder`` into ``target``; return the answer and the paths, the page first."""
    found: Mapping[str, Any] = {}
    with suppress(UnreadableFileError):  # raised again by the reader of its kind
        found = read_json_object(folder / "schedules.json")
    return next(kind for kind in KINDS if kind.holds(found)).write(folder, target)


def _gaussian(folder: Path, target: Path) -> Written:
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


def _masked(folder: Path, target: Path) -> Written:
    from .masked import save_masked_figures
    from .masked_page import CAVEAT, SavedMasked, write_masked_page

    saved = SavedMasked.read(folder)
    files = [write_masked_page(target, saved)]
    files.append(write_text(target / "table.txt", saved.comparison.table() + "\n"))
    files += save_masked_figures(saved.comparison, saved.schedules, target)
    return f"{saved.comparison.sentence()} {CAVEAT}", files


def _raced(folder: Path, target: Path) -> Written:
    from .race import save_race
    from .race_page import SavedRace, write_race_page

    saved = SavedRace.read(folder)
    files = [write_race_page(target, saved), write_text(target / "table.txt", f"{saved.race}\n")]
    return saved.race.answer, [*files, *save_race(saved.race, target)]


KINDS = (
    Kind(lambda schedules: schedules.get("format") == MASKED, _masked),
    Kind(lambda schedules: schedules.get("stride") == RACED, _raced),
    Kind(lambda schedules: True, _gaussian),
)
