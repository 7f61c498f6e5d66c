"""The result of a race: the answer in a sentence, what misleads a reader, a table, and race.json."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options import EVEN
from ..runs.writing import write_json
from .finish import INTERVAL, OURS, Entry, Finish
from .halving import SURE, Heat

if TYPE_CHECKING:
    from ..schedule import ScheduleSet

FORMAT = "dpstride-race-1"


@dataclass(frozen=True, repr=False)
class Race:
    """Result of `tune`; everything in it is also in the files.

    Attributes:
        schedules: the raced schedule of every number of steps up to the largest that raced.
        heats: the race of each budget.
        finish: the final measurement, on noises and real data that chose nothing.
        sampler: in words.
        measure: in words.
        scale: factor of the distances that tables show.
        evaluations: network evaluations that race and finish took, by part, whoever made them and when.
        notes: what would mislead a reader of the numbers alone.
        files: everything that was written.
        real: the first few real data, uint8 [m, C, H, W], where they are images.
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
    real: Any = ()

    def __repr__(self) -> str:
        return f"<Race over {', '.join(str(heat.budget) for heat in self.heats)} steps: {self.answer}>"

    def __str__(self) -> str:
        return "\n".join([self.answer, "", self.table(), "", *(f"Note: {note}" for note in self.findings)])

    # --- in words --------------------------------------------------------------------------------------------------------

    def _told(self, entry: Entry) -> str:
        return f"{self.scale * entry.distance:.3g} ± {self.scale * entry.standard_error:.2g}"

    @property
    def times(self) -> str:
        """The factor of distances in tables, after the name of the measure."""
        return "" if self.scale == 1.0 else f" · {self.scale:,.0f}"

    @property
    def answer(self) -> str:
        """The fewest steps that are enough, by measured samples; every number in it was measured on data that chose nothing."""
        finish, T = self.finish, self.schedules.process.T
        reference = finish.reference
        many = f"all {T:,} steps" if reference.budget == T else f"{reference.budget:,} even steps"
        raced, even = finish.enough[OURS], finish.enough[EVEN]
        most = max(heat.budget for heat in self.heats)
        if raced is None:
            closest = finish.entries[OURS, most]
            return (
                f"With {self.sampler}, no number of steps up to {most} gives samples as close to real data as {many}: "
                f"{most} steps have {self._told(closest)} ({self.measure}{self.times}), those {self._told(reference)}."
            )
        need = f"even steps need {even}" if even is not None else f"even steps need more than {most}"
        return (
            f"With {self.sampler}, {raced} steps give samples as close to real data as {many} ({self.measure}{self.times} "
            f"{self._told(finish.entries[OURS, raced])}, those {self._told(reference)}); {need}."
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """All notes: of how the race ended, of how the final measurement compares with even steps, and others."""
        return (*self._of_heats(), *self._of_even(), *self.notes)

    def _of_heats(self) -> list[str]:
        found = []
        for heat in self.heats:
            if heat.stopped:
                found.append(
                    f"The race of {heat.budget} steps was stopped after {heat.rounds[-1].samples:,} samples of each candidate, "
                    "because the evaluations allowed were used up. Allow more for a surer choice."
                )
            if not heat.conclusive:
                more = heat.samples_to_tell
                told = (
                    "" if more is None else f"; about {more:,} samples of each would tell, if they differ as it seems"
                )
                found.append(
                    f"At {heat.budget} steps the race did not tell its winner ({heat.winner}) from the runner-up{told}."
                )
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
            found.append(f"Farther from real data than even steps at {_listed(behind)}: use those there.")
        return found

    def table(self) -> str:
        """Final distances of all schedules at every raced budget; below each how far it is behind the raced one."""
        budgets = [heat.budget for heat in self.heats]
        names = list(dict.fromkeys(name for name, K in self.finish.entries if K in budgets))
        head = [f"{self.measure}{self.times}", *(f"{K} steps" for K in budgets)]
        rows = [head]
        for name in names:
            cells = []
            for K in budgets:
                entry = self.finish.entries.get((name, K))
                cells.append("" if entry is None else self._cell(entry))
            rows.append([name, *cells])
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "─" * len(lines[0]))
        lines.append(
            f"{self.finish.reference.budget:,} even steps: {self._told(self.finish.reference)}. {self.finish.samples:,} "
            f"samples a path; "
            "± is one standard error; * is surely closer or farther than the raced path (two standard errors of the paired "
            "difference)."
        )
        return "\n".join(lines)

    def _cell(self, entry: Entry) -> str:
        sure = entry.ahead is not None and abs(entry.ahead[0]) > SURE * entry.ahead[1]
        return self._told(entry) + ("*" if sure else "")

    # --- as a file -------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The race as JSON values."""
        finish = self.finish
        return {
            "answer": self.answer,
            "sampler": self.sampler,
            "measure": self.measure,
            "samples": finish.samples,
            "margin": finish.margin,
            "interval": INTERVAL,
            "enough": dict(finish.enough),
            "reference": finish.reference.to_dict(),
            "entries": [entry.to_dict() for entry in finish.entries.values()],
            "heats": [heat.to_dict() for heat in self.heats],
            "evaluations": dict(self.evaluations),
            "notes": list(self.findings),
        }

    def save(self, path: str | os.PathLike[str], run: str | None = None) -> None:
        """Write race.json, atomically."""
        write_json(path, {"format": FORMAT, "run": run, **self.to_dict()})


def _listed(budgets: list[int]) -> str:
    *first, last = map(str, budgets)
    return f"{', '.join(first)} and {last} steps" if first else f"{last} steps"
