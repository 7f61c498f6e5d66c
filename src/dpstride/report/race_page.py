"""Stage 8. The page of a race: final distances, paths and their rules, samples, and the rounds of the race."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import strides
from ..options import COMPARED_STRIDES, RACED_BESIDE
from ..process import ForwardProcess
from ..racing.finish import INTERVAL, OURS, REFERENCE, Entry
from ..racing.halving import SURE, Heat
from ..racing.outcome import Race
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..reading.text import printable
from ..runs.folder import RACE, RECORD, SCHEDULES, mapping
from ..runs.record import Run
from ..runs.writing import write_text
from ..schedule import ScheduleSet
from .page.document import TEXT, facts_of, noise_grid, path_masks, told
from .page.pack import pack
from .page.pictures import grid_picture
from .page.write import NAME, Layout, page_text
from .race import PICTURED, REAL, grid_name, words_of

FORMAT = "dpstride-race-page-1"
OTHERS = 5  # styles of race.css
LAYOUT = Layout("race.html", ("noise.js", "forms.js", "race.js"), ("race.css",), unit="", scores=("distances.js",))


@dataclass(frozen=True, eq=False)
class SavedRace:
    """Results of one folder of `tune`, and the record of the run."""

    folder: Path
    race: Race
    run: Run | None = None

    @classmethod
    def read(cls, folder: str | Path) -> SavedRace:
        """Everything in ``folder``; files from different runs are refused."""
        home = Path(folder)
        for name in (SCHEDULES, RACE):
            if not (home / name).is_file():
                raise UnreadableFileError(f"{home}: holds no {name}. Name the folder that `dpstride tune` wrote (-o).")
        race = Race.load(home / RACE, ScheduleSet.load(home / SCHEDULES))
        saved = cls(home, race, Run.load(home / RECORD) if (home / RECORD).is_file() else None)
        saved.check()
        return saved

    def check(self) -> None:
        """Raise unless all files are from one run: a page must not show paths of one run with numbers of another."""
        found = {
            SCHEDULES: self.race.schedules.provenance.get("run"),
            RACE: read_json_object(self.folder / RACE).get("run"),
        }
        named = found[SCHEDULES] if self.run is None else self.run.id
        if others := [name for name, run in found.items() if run != named]:
            raise ValueError(
                f"{self.folder}: {', '.join(others)} {'is' if len(others) == 1 else 'are'} from another run than "
                f"{SCHEDULES if self.run is None else RECORD} ({named}). Run the command that wrote them again."
            )

    @property
    def model(self) -> Mapping[str, Any]:
        """Facts about the model, from the schedules."""
        return mapping(self.race.schedules.provenance.get("model"))


def write_race_page(folder: str | Path, saved: SavedRace | None = None) -> Path:
    """Write report.html into a folder of `tune`, from its contents; return its path."""
    found = saved or SavedRace.read(folder)
    text = page_text(race_document(found), found.race.answer, found.race.table(), LAYOUT)
    return write_text(Path(folder) / NAME, text)


def race_document(saved: SavedRace) -> dict[str, Any]:
    """Everything on the page, ready for JSON; distances are scaled as in tables."""
    race, schedules, finish = saved.race, saved.race.schedules, saved.race.finish
    process, budgets = schedules.process, schedules.budgets
    names = list(dict.fromkeys(name for name, _ in finish.entries))
    return {
        "format": FORMAT,
        "title": printable(saved.model.get("name", "model"), TEXT),
        "process": facts_of(process),
        "caveat": _caveat(race),
        "dropped": 0,
        "budgets": pack(budgets, "u4"),
        "tableBudgets": [heat.budget for heat in race.heats],
        "grid": noise_grid(process),
        "paths": path_masks([np.array(schedules.entries[K][0]) for K in budgets], process.T),
        "otherPaths": {name: _stride_paths(process, name, budgets) for name in RACED_BESIDE},
        "rules": [_rule(race, K) for K in budgets],
        "sampler": printable(race.sampler, TEXT),
        "measure": printable(f"{race.measure}{race.times}", TEXT),
        "samples": finish.samples,
        "passes": {"step": race.cost.step, "saved": race.cost.saved, "words": race.cost.words},
        "interval": INTERVAL,
        "sure": SURE,
        "enough": finish.enough[OURS],
        "schedules": [
            {"name": name, "words": words_of(name), "style": style}
            for name, style in zip(names, _styles(names), strict=True)
        ],
        "points": [_point(entry, race.scale) for entry in finish.entries.values()],
        "reference": _point(finish.reference, race.scale),
        "pictures": _pictures(saved),
        "heats": [
            *(_heat(heat, race.scale, "") for heat in race.heats),
            *(_heat(heat, race.scale, "Reverse variances along the winner of ") for heat in race.variances),
            *(_heat(heat, race.scale, "Polishing the winner of ") for heat in race.polished),
        ],
        "spent": [[SPENT.get(part, printable(part, TEXT)), count] for part, count in race.evaluations.items()],
        "facts": told(_facts(saved)),
        "warnings": [printable(text, 2 * TEXT) for text in race.findings],
        "provenance": told(_provenance(saved)),
        "command": None if saved.run is None else printable(saved.run.command, 10 * TEXT),
    }


SPENT = {"race": "the race", "finish": "the final measurement"}


# --- paths ------------------------------------------------------------------------------------------------------------


def _stride_paths(process: ForwardProcess, name: str, budgets: Sequence[int]) -> dict[str, Any]:
    """Paths of a hand-made stride; empty where the grid has too few points."""
    found = []
    for K in budgets:
        path: Sequence[int] = ()
        with suppress(ValueError):
            path = strides.find(name).make(process, K).steps
        found.append(np.array(path, dtype=np.int64))
    return path_masks(found, process.T)


def _rule(race: Race, budget: int) -> dict[str, str]:
    """The rule of a path, and how it was chosen."""
    rules = mapping(race.schedules.provenance.get("race"))
    rule = rules.get(str(budget), "unknown")
    raced = [heat.budget for heat in race.heats]
    sources = [K for K in raced if rules.get(str(K)) == rule]
    if budget in raced:
        how = f"It won the race of {budget} steps."
    elif sources:
        nearest = min(sources, key=lambda K: abs(K - budget))
        how = f"It won the race of {nearest} steps; {budget} steps did not race."
    else:
        below, above = [K for K in raced if budget > K][-1:], [K for K in raced if budget < K][:1]
        how = f"{budget} steps did not race: this follows from the winners at {' and '.join(map(str, below + above))} steps."
    return {"rule": printable(rule, TEXT), "how": how}


# --- numbers ----------------------------------------------------------------------------------------------------------


def _styles(names: Sequence[str]) -> Iterator[str]:
    """Classes of the style sheet: a shared one if the schedule has one, else the next of race.css."""
    others = 0
    for name in names:
        if name == OURS:
            yield "dp"
        elif name in COMPARED_STRIDES:
            yield name
        else:
            yield f"other-{others % OTHERS}"
            others += 1


def _point(entry: Entry, scale: float) -> dict[str, Any]:
    return {
        "name": entry.name,
        "budget": entry.budget,
        "value": scale * entry.distance,
        "error": scale * entry.standard_error,
        "frechet": entry.frechet,
        "ahead": None if entry.ahead is None else [scale * number for number in entry.ahead],
        "beyond": None if entry.beyond is None else [scale * number for number in entry.beyond],
    }


def _heat(heat: Heat, scale: float, of: str) -> dict[str, Any]:
    """One heat: every candidate with its distances in all its rounds, the one that got furthest first."""
    order = {name: i for i, each in enumerate(heat.rounds) for name in each.distances}  # its last round

    def place(name: str) -> tuple[int, float]:
        return -order[name], heat.rounds[order[name]].distances[name][0]

    return {
        "of": of,
        "budget": heat.budget,
        "winner": printable(heat.winner, TEXT),
        "stopped": heat.stopped,
        "lead": None if heat.lead is None else [scale * number for number in heat.lead],
        "rounds": [{"samples": each.samples, "left": len(each.distances)} for each in heat.rounds],
        "candidates": [
            {
                "name": printable(name, TEXT),
                "distances": [
                    [scale * number for number in each.distances[name]] if name in each.distances else None
                    for each in heat.rounds
                ],
            }
            for name in sorted(order, key=place)
        ],
    }


# --- samples ----------------------------------------------------------------------------------------------------------


def _pictures(saved: SavedRace) -> dict[str, Any]:
    """Grids of real data and of the reference, and for every measured number of steps those of the schedules shown."""
    folder, many = saved.folder, saved.race.finish.reference.budget
    common = [
        grid_picture(folder / REAL, "real data"),
        grid_picture(folder / grid_name(REFERENCE, many), f"{many:,} even steps"),
    ]
    budgets = []
    for K in sorted({K for _, K in saved.race.finish.entries}):  # bisection measured more than raced
        grids = [grid_picture(folder / grid_name(name, K), words_of(name)) for name in PICTURED]
        if pictures := [grid for grid in grids if grid is not None]:
            budgets.append({"budget": K, "pictures": pictures})
    return {"common": [grid for grid in common if grid is not None], "budgets": budgets}


# --- words ------------------------------------------------------------------------------------------------------------


def _caveat(race: Race) -> str:
    margin = f"{race.scale * race.finish.margin:.3g}"
    return printable(
        f"Measured with {race.sampler}; another sampler may need other steps. “As close as the reference” means that the upper "
        f"end of the 95% interval of the paired difference lies below {margin}.",
        2 * TEXT,
    )


def _facts(saved: SavedRace) -> list[tuple[str, str]]:
    """The most important facts: model, sampler, measure, real data."""
    race, run, model, process = saved.race, saved.run, saved.model, saved.race.schedules.process
    variance = race.schedules.options.get("variance")
    predicts = f", predicts {model['predicts']}" if "predicts" in model else ""
    return [
        ("Model", f"{model.get('name')}: {process.name}, T = {process.T:,}{predicts}"),
        ("Sampler", race.sampler + (f", {variance} variance, which was raced too" if race.variances else "")),
        ("Measured by", f"{race.measure}{race.times}, {race.finish.samples:,} samples per path"),
        ("Real data", "?" if run is None else f"{run.data} (race); {run.heldout} (final measurement)"),
    ]


def _provenance(saved: SavedRace) -> list[tuple[str, Any]]:
    schedules, run, model = saved.race.schedules, saved.run, saved.model
    identity = {} if run is None else run.identity
    chosen, scored = (mapping(identity.get(part)) for part in ("data", "heldout"))
    return [
        ("Model", model.get("name")),
        ("Model as named", None if run is None else run.model),
        ("Model fingerprint", model.get("fingerprint")),
        ("Process fingerprint", schedules.process.fingerprint),
        ("Data of the race", None if run is None else run.data),
        ("Its fingerprint", chosen.get("fingerprint")),
        ("Data of the final measurement", None if run is None else run.heldout),
        ("Its fingerprint", scored.get("fingerprint")),
        ("Seed", identity.get("seed")),
        ("Sampler", saved.race.sampler),
        ("Clipping of x̂₀", model.get("clip") or "none"),
        ("Versions", None if run is None else ", ".join(f"{name} {version}" for name, version in run.versions.items())),
    ]
