"""Report of an adaptive estimate as JSON: evaluations spent and saved, and how far its paths may be from the best."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..reading.documents import document_of
from ..reading.types import check_types
from ..runs.writing import write_json

FORMAT = "dpstride-adaptive-1"
Stopped = Literal["reached", "noise", "limit"]
BITS, SHARE = "bits/dim", "of what it costs"  # units of regret


@dataclass(frozen=True)
class Regret:
    """Expected cost of a chosen path above the best one's, and its 95% interval, which begins at 0."""

    believed: float
    low: float
    high: float


@dataclass(frozen=True)
class AdaptiveReport:
    """Report returned by `estimate_adaptively`.

    ``stopped`` says why it stopped: the regret of every budget is below the tolerance ("reached"), or the rest is Monte Carlo
    noise, which more times would not lower ("noise"), or ``max_steps`` was reached ("limit").
    """

    T: int
    samples: int
    steps: tuple[int, ...]  # grid indices where the network ran
    rounds: int
    tolerance: float
    regret: Mapping[int, Regret]  # by budget
    stopped: Stopped
    samples_needed: int | None  # about how many would reach the tolerance, if noise prevents it
    unit: str = BITS  # of tolerance and regret

    @property
    def evaluations(self) -> int:
        """Network evaluations spent: one for each sample at each of the steps."""
        return len(self.steps) * self.samples

    @property
    def evaluations_saved(self) -> int:
        """Further evaluations that every step of the grid would have taken."""
        return self.T * self.samples - self.evaluations

    @property
    def reached(self) -> bool:
        """Return whether the regret of every budget is below the tolerance with 95% confidence."""
        return all(regret.high <= self.tolerance for regret in self.regret.values())

    def sentence(self) -> str:
        """The evaluations spent and the estimated regret, in words."""
        worst = max(self.regret.values(), key=lambda regret: regret.high)
        budgets = ", ".join(map(str, self.regret))
        text = (
            f"{self.evaluations:,} network evaluations ({len(self.steps)} of {self.T:,} times, {self.samples} samples) instead "
            f"of {self.T * self.samples:,}. Regret against the best path of K = {budgets} steps: about {worst.believed:.4f} "
            f"{self.unit}, at most {worst.high:.4f} with 95% confidence (tolerance {self.tolerance:g})."
        )
        if self.stopped == "noise":
            text += f" More times would not help; about {self.samples_needed:,} samples would."
        if self.stopped == "limit" and not self.reached:
            text += " The limit on the number of times was reached before the tolerance."
        return text

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON and provenance."""
        return {
            "format": FORMAT,
            **asdict(self),
            "steps": list(self.steps),
            "regret": {str(budget): asdict(regret) for budget, regret in self.regret.items()},
            "evaluations": self.evaluations,
            "evaluations_saved": self.evaluations_saved,
            "reached": self.reached,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> AdaptiveReport:
        """Read what `to_dict` made."""
        needed = document["samples_needed"]
        return cls(
            T=int(document["T"]),
            samples=int(document["samples"]),
            steps=tuple(int(step) for step in document["steps"]),
            rounds=int(document["rounds"]),
            tolerance=float(document["tolerance"]),
            regret={int(budget): Regret(**regret) for budget, regret in document["regret"].items()},
            stopped=document["stopped"],
            samples_needed=None if needed is None else int(needed),
            unit=document.get("unit", BITS),
        )

    def save(self, path: str | os.PathLike[str], run: str | None = None) -> None:
        """Write as JSON, with the name of the ``run`` if it has one."""
        write_json(path, self.to_dict() | ({} if run is None else {"run": run}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AdaptiveReport:
        """Read what `save` wrote."""
        with document_of(path, FORMAT, "a report that an adaptive estimate wrote") as document:
            report = cls.from_dict(document)
            check_types(report)
            if not report.regret or (report.stopped == "noise") != (report.samples_needed is not None):
                raise ValueError("it has no regret, or it needs samples although noise did not stop it")
        return report


def samples_for(samples: int, regret: float, tolerance: float) -> int:
    """About how many samples bring the regret from Monte Carlo noise below the tolerance.

    Regret is quadratic in the table's errors, and those fall with the root of the number of samples, so it falls with the
    number itself. Rounded up to two digits: it is a guess from one draw.
    """
    needed = samples * regret / tolerance
    unit = 10.0 ** max(math.floor(math.log10(needed)) - 1, 0)
    return int(math.ceil(needed / unit) * unit)
