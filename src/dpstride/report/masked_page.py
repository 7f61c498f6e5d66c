"""Stage 8. The page of masked diffusion: its own document and main part, in the shared frame and with the shared scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluate.comparison import NEGLIGIBLE, VISIBLE
from ..masked.comparison import COLUMNS, WORDS, MaskedComparison, compare_masked, shown_budgets
from ..masked.costs import LN2
from ..masked.schedule import MaskedSchedule, MaskedScheduleSet
from ..masked.statistics import MaskedStatistics
from ..masked.strides import RULES
from ..options import BEST
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..reading.text import printable
from ..runs.record import Run
from ..runs.writing import write_text
from .page.document import TEXT, columns, path_masks, told
from .page.pack import pack
from .page.write import NAME, Layout, page_text

FORMAT = "dpstride-masked-page-1"
LAYOUT = Layout("masked.html", ("masked.js",), ("masked.css",), unit="bits/token", step="round")
CAVEAT = "Bits/token are those of tokens revealed in random order; for an order by confidence, judge the samples."


@dataclass(frozen=True, eq=False)
class SavedMasked:
    """Results of one folder: schedules, statistics for choosing and for scoring them, and the record of the run."""

    folder: Path
    schedules: MaskedScheduleSet
    choosing: MaskedStatistics
    heldout: MaskedStatistics
    comparison: MaskedComparison
    run: Run | None = None

    @classmethod
    def read(cls, folder: str | Path) -> SavedMasked:
        """Everything in ``folder``; scores are recomputed from its statistics."""
        home = Path(folder)
        for name in ("schedules.json", "statistics.safetensors", "heldout.safetensors"):
            if not (home / name).is_file():
                raise UnreadableFileError(
                    f"{home}: holds no {name}. Name the folder that `dpstride find` wrote for a masked diffusion model (-o)."
                )
        schedules = MaskedScheduleSet.load(home / "schedules.json")
        choosing, heldout = (
            MaskedStatistics.load(home / f"{name}.safetensors").filled() for name in ("statistics", "heldout")
        )
        found = replace(
            compare_masked(schedules, heldout, choosing, shown_budgets(schedules.budgets)), warnings=_warnings(home)
        )
        record = home / "run.json"
        saved = cls(
            home, schedules, choosing, heldout, comparison=found, run=Run.load(record) if record.is_file() else None
        )
        saved.check()
        return saved

    def check(self) -> None:
        """Raise unless all files are from one run: schedules must be scored by the model that they were chosen for."""
        again = "Run the command that wrote them again."
        made = self.schedules.provenance.get("model")
        fingerprints = [made.get("fingerprint") if isinstance(made, Mapping) else None]
        fingerprints += [statistics.model.get("fingerprint") for statistics in (self.choosing, self.heldout)]
        if len(set(map(str, fingerprints))) > 1:
            raise ValueError(
                f"{self.folder}: its files are of different models, so they are from different runs. {again}"
            )
        named = None if self.run is None else self.run.id
        if named is not None and self.schedules.provenance.get("run") not in (None, named):
            raise ValueError(f"{self.folder}: schedules.json is from another run than run.json ({named}). {again}")


def _warnings(home: Path) -> tuple[str, ...]:
    """Notes of the run, which cannot be recomputed from statistics."""
    with suppress(UnreadableFileError):
        found = read_json_object(home / "comparison.json").get("warnings")
        return tuple(map(str, found)) if isinstance(found, list) else ()
    return ()


def write_masked_page(folder: str | Path, saved: SavedMasked | None = None) -> Path:
    """Write report.html into a results folder of masked diffusion, from its contents; return its path."""
    found = saved or SavedMasked.read(folder)
    text = page_text(masked_document(found), found.comparison.sentence(), found.comparison.table(), LAYOUT)
    return write_text(Path(folder) / NAME, text)


def masked_document(saved: SavedMasked) -> dict[str, Any]:
    """Everything on the page, ready for JSON."""
    comparison, schedules, length = saved.comparison, saved.schedules, saved.schedules.length
    budgets = sorted(comparison.curves[BEST])
    return {
        "format": FORMAT,
        "title": printable(comparison.model.get("name", "masked model"), TEXT),
        "process": {"name": "masked", "kind": "masked", "T": length, "originT": length},
        "answer": None,
        "caveat": CAVEAT,
        "dropped": 0,
        "negligible": NEGLIGIBLE,
        "visible": VISIBLE,
        "raw": None if (ids := _vocabulary(saved)) is None else math.log2(ids),
        "names": WORDS,
        "budgets": pack(budgets, "u4"),
        "curves": {rule: columns(curve, budgets) for rule, curve in comparison.curves.items()},
        "chosen": columns({K: _predicted(schedules, K) for K in budgets}, budgets),
        "tableBudgets": [K for K in {*COLUMNS, budgets[-1]} if K in comparison.curves[BEST]],
        "paths": _masks([schedules[K] for K in budgets], length),
        "otherPaths": _other_paths(saved, budgets),
        "profile": _profile(saved.heldout),
        "exact": saved.heldout.equal,
        "steps": None,
        "facts": told(_facts(saved)),
        "warnings": [printable(text, 2 * TEXT) for text in comparison.warnings],
        "provenance": told(_provenance(saved)),
        "command": None if saved.run is None else printable(saved.run.command, 10 * TEXT),
    }


def _vocabulary(saved: SavedMasked) -> int | None:
    found = saved.comparison.model.get("vocabulary")
    return found if isinstance(found, int) and found > 1 else None


def _predicted(schedules: MaskedScheduleSet, budget: int) -> tuple[float, float]:
    """Bits/token as the choosing data have them; NaN where a file does not say."""
    _, bits, error = schedules.entries[budget]
    return math.nan if bits is None else bits, math.nan if error is None else error


def _masks(schedules: Sequence[MaskedSchedule], length: int) -> dict[str, Any]:
    return path_masks([np.array(schedule.counts) for schedule in schedules], length)


def _other_paths(saved: SavedMasked, budgets: Sequence[int]) -> dict[str, Any]:
    """Counts of the rules with fixed numbers of tokens."""
    found = {}
    for name, rule in RULES.items():
        if name in saved.comparison.curves and not rule.by_times:
            made = [rule.make(saved.choosing, K) for K in budgets]
            found[name] = _masks([each for each in made if isinstance(each, MaskedSchedule)], saved.schedules.length)
    return found


def _profile(heldout: MaskedStatistics) -> dict[str, Any]:
    """Bits of a masked token at every evaluated count."""
    counts = heldout.process.counts[1:] if heldout.evaluated is None else heldout.evaluated
    return {"counts": pack(counts, "u4"), "bits": pack(heldout.mean_nats[counts] / LN2, "f4")}


def _facts(saved: SavedMasked) -> list[tuple[str, str]]:
    """The most important facts: model, data, samples used, uncertainty."""
    run, length, ids = saved.run, saved.schedules.length, _vocabulary(saved)
    data, heldout = (f" of {run.data}", f": {run.heldout}") if run else ("", "")
    found = saved.choosing.evaluated
    counts = "" if found is None else f"; evaluated at {len(found)} of {length:,} counts, linear between them"
    sizes = f"{length:,} tokens each" if saved.choosing.equal else f"up to {length:,} tokens"
    return [
        ("Model", f"{saved.comparison.model.get('name')}: masked diffusion" + (f", {ids:,} token ids" if ids else "")),
        ("Costs", f"tokens revealed in random order, those of one round independently{counts}"),
        ("Schedules chosen on", f"{saved.choosing.samples:,} samples{data}, {sizes}"),
        ("Scored on", f"{saved.heldout.samples:,} other samples{heldout}; ± is one standard error over them"),
    ]


def _provenance(saved: SavedMasked) -> list[tuple[str, Any]]:
    run, model = saved.run, saved.comparison.model
    chosen, scored = (each.identity.get("data") for each in (saved.choosing, saved.heldout))
    return [
        ("Model", model.get("name")),
        ("Model as named", None if run is None else run.model),
        ("Model fingerprint", model.get("fingerprint")),
        ("Choosing data", None if run is None else run.data),
        ("Choosing data fingerprint", chosen.get("fingerprint") if isinstance(chosen, dict) else None),
        ("Held-out data", None if run is None else run.heldout),
        ("Held-out data fingerprint", scored.get("fingerprint") if isinstance(scored, dict) else None),
        ("Seeds", f"{saved.choosing.identity.get('seed')} (choosing), {saved.heldout.identity.get('seed')} (held-out)"),
        ("Logits", "of the next position" if model.get("shifted") else "of their own position"),
        ("Versions", None if run is None else ", ".join(f"{name} {version}" for name, version in run.versions.items())),
    ]
