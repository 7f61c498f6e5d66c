"""The result of a race: the answer in a sentence, caveats, a table, and race.json."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options import EVEN
from ..reading.documents import document_of
from ..reading.text import printable
from ..reading.types import check_types
from ..runs.writing import write_json
from .finish import INTERVAL, OURS, Entry, Finish
from .halving import SURE, Heat
from .passes import Passes

if TYPE_CHECKING:
    from ..schedule import ScheduleSet

FORMAT = "dpstride-race-1"
LONGEST = 2000  # characters of a note
MOST = 1e100  # limit of distances: more is a damaged file, and would overflow


@dataclass(frozen=True, repr=False)
class Race:
    """Result of `tune`; everything in it is also in the files.

    Attributes:
        schedules: the raced schedule of every number of steps up to the largest that raced.
        heats: the race of each budget.
        finish: the final measurement, on held-out noise and real data.
        sampler: the sampler in words.
        measure: the measure in words.
        scale: factor of the distances in tables.
        evaluations: network evaluations of the race and of the final measurement, including resumed ones.
        notes: caveats to the numbers.
        files: all files written.
        variances: races of the reverse variances along the winners' paths, for a sampler that takes one.
        polished: the winners' paths before and after polishing, by the distances used for choosing.
        real: the first few real data, uint8 [m, C, H, W], if they are images.
        cost: network evaluations per sample and step.
    """

    schedules: ScheduleSet
    heats: tuple[Heat, ...]
    finish: Finish
    sampler: str
    measure: str
    scale: float = 1.0
    evaluations: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    variances: tuple[Heat, ...] = ()
    polished: tuple[Heat, ...] = ()
    real: Any = ()
    cost: Passes = field(default_factory=Passes)

    def __post_init__(self) -> None:
        # Foreign text (from a file, or a function's name) goes into a table, a figure and a terminal.
        for name in ("sampler", "measure"):
            object.__setattr__(self, name, _safe(getattr(self, name)))
        object.__setattr__(self, "notes", tuple(map(_safe, self.notes)))

    def __repr__(self) -> str:
        return f"<Race over {', '.join(str(heat.budget) for heat in self.heats)} steps: {self.answer}>"

    def __str__(self) -> str:
        return "\n".join([self.answer, "", self.table(), "", *(f"Note: {note}" for note in self.findings)])

    # --- in words --------------------------------------------------------------------------------------------------------

    def _value(self, entry: Entry) -> str:
        """The scaled distance with its standard error, in words."""
        return f"{_rounded(self.scale * entry.distance, 3)} ± {_rounded(self.scale * entry.standard_error, 2)}"

    def _steps(self, budget: int) -> str:
        """Number of steps in words, with the number of evaluations if it differs."""
        evaluations = self.cost.along(budget)
        return f"{budget} steps" + ("" if evaluations == budget else f" ({evaluations:,} evaluations)")

    @property
    def _many(self) -> str:
        """The reference in words."""
        budget, T = self.finish.reference.budget, self.schedules.process.T
        return f"all {T:,} steps" if budget == T else f"{budget:,} even steps"

    @property
    def times(self) -> str:
        """The factor of distances in tables, after the name of the measure."""
        return "" if self.scale == 1.0 else f" · {self.scale:,.0f}"

    @property
    def answer(self) -> str:
        """The fewest steps that are enough, by measured samples; all its numbers are from the final measurement."""
        finish, reference, many = self.finish, self.finish.reference, self._many
        raced, even = finish.enough[OURS], finish.enough[EVEN]
        most = max(heat.budget for heat in self.heats)
        if raced is None:
            closest = finish.entries[OURS, most]
            return (
                f"With {self.sampler}, no number of steps up to {most} is shown to give samples as close to real data as "
                f"{many}: {self._value(closest)} ({self.measure}{self.times}) with {self._steps(most)}, against "
                f"{self._value(reference)}."
            )
        close = "closer to real data than" if finish.entries[OURS, raced].within(0.0) else "as close to real data as"
        need = f"even steps need {even}" if even is not None else f"even steps need more than {most}"
        return (
            f"With {self.sampler}, {self._steps(raced)} give samples {close} {many} ({self.measure}"
            f"{self.times}: {self._value(finish.entries[OURS, raced])}, against {self._value(reference)}); {need}."
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """All caveats: of the race, of the comparison with even steps and the reference, and the notes."""
        return (*self._of_heats(), *self._of_polish(), *self._of_even(), *self._of_reference(), *self.notes)

    def _of_heats(self) -> list[str]:
        found = []
        for heat in self.heats:
            if heat.stopped:
                found.append(
                    f"The race at {heat.budget} steps was stopped after {heat.rounds[-1].samples:,} samples per candidate, "
                    "because the evaluation limit was reached. Raise it for a more reliable choice."
                )
            if not heat.conclusive:
                more = heat.samples_to_tell
                hint = "" if more is None else f"; about {more:,} samples of each would, if the difference is real"
                found.append(
                    f"At {heat.budget} steps the race did not distinguish its winner ({printable(heat.winner)}) from the "
                    f"runner-up{hint}."
                )
        return found

    def _of_polish(self) -> list[str]:
        same = [heat.budget for heat in self.polished if heat.lead is None and not heat.stopped]
        stopped = [heat.budget for heat in self.polished if heat.stopped]
        found = [f"Polishing found no path that is significantly closer at {_listed(same)}."] if same else []
        if stopped:
            found.append(f"Polishing was stopped at {_listed(stopped)}, because the evaluation limit was reached.")
        return found

    def _of_even(self) -> list[str]:
        level, behind = [], []
        for heat in self.heats:
            ahead = self.finish.entries[EVEN, heat.budget].ahead
            if ahead is not None and ahead[0] < -SURE * ahead[1]:
                behind.append(heat.budget)
            elif ahead is None or ahead[0] < SURE * ahead[1]:
                level.append(heat.budget)
        found = []
        if level:
            found.append(f"Not distinguishable from even steps at {_listed(level)}.")
        if behind:
            found.append(f"Farther from real data than even steps at {_listed(behind)}: use even steps there.")
        return found

    def _of_reference(self) -> list[str]:
        """Say if the reference is poor, or how many samples would decide whether the most steps are as close."""
        finish, most, raced = self.finish, self.heats[-1].budget, self.finish.enough[OURS]
        if raced is not None and finish.entries[OURS, raced].within(0.0):
            return [
                f"Samples of {self._many} are farther from real data than those of {self._steps(raced)} of the raced path, so "
                "the reference does not show what the model can do. It often needs x0_hat to be clipped (clip), or more "
                "steps (--reference-steps)."
            ]
        beyond = finish.entries[OURS, most].beyond
        if finish.enough[OURS] is not None or beyond is None or not beyond[0] < finish.margin:
            return []
        more = math.ceil(finish.samples * (INTERVAL * beyond[1] / (finish.margin - beyond[0])) ** 2)
        return [
            f"{most} steps differ from {finish.reference.budget:,} even steps by {self.scale * beyond[0]:.2g} ± "
            f"{self.scale * beyond[1]:.2g}; below {self.scale * finish.margin:.2g} they count as close: about {more:,} samples "
            "of each would decide, if the measured difference is real (--samples)."
        ]

    def table(self) -> str:
        """Final distances of all schedules at every raced budget; * marks significant differences from the raced one."""
        budgets = [heat.budget for heat in self.heats]
        names = list(dict.fromkeys(name for name, K in self.finish.entries if K in budgets))
        head = [f"{self.measure}{self.times}", *map(self._steps, budgets)]
        rows = [head]
        for name in names:
            cells = []
            for K in budgets:
                entry = self.finish.entries.get((name, K))
                cells.append("" if entry is None else self._cell(entry))
            rows.append([printable(name), *cells])
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "─" * len(lines[0]))
        lines.append(
            f"{self.finish.reference.budget:,} even steps: {self._value(self.finish.reference)}. {self.finish.samples:,} "
            "samples per path; ± is one standard error; * is closer or farther than the raced path by more than two standard "
            "errors of the paired difference."
        )
        return "\n".join(lines)

    def _cell(self, entry: Entry) -> str:
        significant = entry.ahead is not None and abs(entry.ahead[0]) > SURE * entry.ahead[1]
        return self._value(entry) + ("*" if significant else "")

    # --- as a file -------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The race as JSON values."""
        finish = self.finish
        return {
            "answer": self.answer,
            "sampler": self.sampler,
            "measure": self.measure,
            "scale": self.scale,
            "passes": {"step": self.cost.step, "last": self.cost.last},
            "samples": finish.samples,
            "margin": finish.margin,
            "interval": INTERVAL,
            "enough": dict(finish.enough),
            "reference": finish.reference.to_dict(),
            "entries": [entry.to_dict() for entry in finish.entries.values()],
            "heats": [heat.to_dict() for heat in self.heats],
            "variances": [heat.to_dict() for heat in self.variances],
            "polished": [heat.to_dict() for heat in self.polished],
            "evaluations": dict(self.evaluations),
            "notes": list(self.notes),
            "findings": list(self.findings),
        }

    def save(self, path: str | os.PathLike[str], run: str | None = None) -> None:
        """Write race.json, atomically."""
        write_json(path, {"format": FORMAT, "run": run, **self.to_dict()})

    @classmethod
    def load(cls, path: str | os.PathLike[str], schedules: ScheduleSet) -> Race:
        """Read a file written by `save`, given the schedules of the same run; images are in separate files.

        Answer and findings are recomputed from the numbers. A file that is damaged, or belongs to other schedules, raises
        `UnreadableFileError`.
        """
        what = "a race that `dpstride tune` wrote with these schedules"
        with document_of(path, FORMAT, what, "Run it again: samples already drawn are kept.") as document:
            race = cls(
                schedules,
                tuple(Heat.from_dict(heat) for heat in document["heats"]),
                _finish(document, schedules.process.T),
                **{name: document[name] for name in ("sampler", "measure", "scale", "evaluations")},
                notes=tuple(document["notes"]),
                variances=tuple(Heat.from_dict(heat) for heat in document["variances"]),
                polished=tuple(Heat.from_dict(heat) for heat in document.get("polished", ())),
                cost=Passes(**document.get("passes", {})),
            )
            race.check()
        return race

    def check(self) -> None:
        """Raise if something that answer, tables and figures need is missing or wrong, as in a damaged file."""
        texts = (self.sampler, self.measure, *self.notes)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("sampler, measure and notes must be strings")
        if isinstance(self.scale, bool) or not isinstance(self.scale, (int, float)) or not 0.0 < self.scale < MOST:
            raise ValueError(f"scale is {self.scale!r:.80}, not a positive number")
        for value, error in self._distances():
            if not (abs(value) < MOST and 0.0 <= error < MOST):
                raise ValueError(f"{value!r:.80} ± {error!r:.80} is not a distance")
        counts = [self.finish.samples, *(heat.budget for heat in self.variances), *self.evaluations.values()]
        counts += [each.samples for heat in (*self.heats, *self.variances) for each in heat.rounds]
        if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
            raise ValueError("samples, steps and evaluations must be whole numbers, 0 or more")
        if not abs(self.finish.margin) < MOST:  # negative if the reference's unbiased distance is
            raise ValueError(f"the margin {self.finish.margin!r:.80} is not a distance")
        entries, budgets = self.finish.entries, [heat.budget for heat in self.heats]
        if not budgets or sorted(set(budgets)) != budgets:
            raise ValueError("it must have at least one heat, in ascending order of steps and without repeats")
        for K in budgets:
            if missing := [name for name in (OURS, EVEN) if (name, K) not in entries]:
                raise ValueError(f"it has no distance of {missing[0]} steps at {K} steps")
        for name, K in entries:
            if name == OURS and entries[name, K].steps != self.schedules[K].steps:
                raise ValueError(f"the raced path of {K} steps is not that of schedules.json")
        for name, fewest in self.finish.enough.items():
            if fewest is not None and (name, fewest) not in entries:
                raise ValueError(f"{fewest} steps are listed as enough, but were not measured")
        str(self)  # the numbers can be put into words

    def _distances(self) -> Iterator[tuple[float, float]]:
        """Every distance and difference, with its standard error."""
        for heat in (*self.heats, *self.variances, *self.polished):
            for each in heat.rounds:
                yield from each.distances.values()
            yield from () if heat.lead is None else (heat.lead,)
        for entry in (self.finish.reference, *self.finish.entries.values()):
            yield entry.distance, entry.standard_error
            yield from (pair for pair in (entry.ahead, entry.beyond) if pair is not None)
            yield from () if entry.frechet is None else ((entry.frechet, 0.0),)


def _safe(text: Any) -> Any:
    """Foreign text made safe to show; anything else unchanged, for `Race.check` to refuse."""
    return printable(text, LONGEST) if isinstance(text, str) else text


def _finish(document: Mapping[str, Any], T: int) -> Finish:
    """The final measurement of race.json."""
    read = [Entry.from_dict(entry, T) for entry in document["entries"]]
    entries = {(entry.name, entry.budget): entry for entry in read}
    if len(entries) < len(read):
        raise ValueError("it has two distances for one schedule")
    if document["enough"].keys() != {OURS, EVEN}:
        raise ValueError(f"it must say how many steps are enough for {OURS} and {EVEN}")
    found = Finish(
        document["samples"],
        Entry.from_dict(document["reference"], T),
        document["margin"],
        entries,
        enough=document["enough"],
        evaluations=document["evaluations"]["finish"],
        images={},
    )
    check_types(found)
    return found


def _rounded(value: float, digits: int) -> str:
    """``value`` with ``digits`` significant digits, without an exponent below 10 billion."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def _listed(budgets: list[int]) -> str:
    *first, last = map(str, budgets)
    return f"{', '.join(first)} and {last} steps" if first else f"{last} steps"
