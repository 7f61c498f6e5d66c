"""The race of one budget: successive halving with common random numbers.

In every round the remaining candidates draw more samples, all from the same noise, and the better half goes on. Common
noise makes the difference of two candidates far less noisy than their distances. The number of samples doubles from round
to round, so that most of them are spent on the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..reading.types import check_types
from ..runs.workers import current

if TYPE_CHECKING:
    from ..evaluate.discrepancy import Discrepancy
    from ..schedule import Schedule
    from .arena import Arena

SURE = 2.0  # standard errors of a paired difference, beyond which it is significant


@dataclass(frozen=True)
class Round:
    """Distances of the remaining candidates by name, with standard errors, and the number of samples of each."""

    samples: int
    distances: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Heat:
    """Result of the race of one budget.

    Attributes:
        budget: number of steps.
        winner: the candidate with the least distance in the last round.
        rounds: all rounds.
        lead: the runner-up's distance minus the winner's in the last round, and its standard error; None if there was no
            runner-up.
        stopped: rounds were skipped because the purse could not pay for them.
    """

    budget: int
    winner: str
    rounds: tuple[Round, ...]
    lead: tuple[float, float] | None = None
    stopped: bool = False

    @property
    def conclusive(self) -> bool:
        """Return whether the winner is ahead of the runner-up by more than two standard errors."""
        return self.lead is None or self.lead[0] > SURE * self.lead[1]

    @property
    def samples_to_tell(self) -> int | None:
        """Samples that would distinguish winner and runner-up if the measured difference is real; None without one."""
        if self.lead is None or not self.lead[0] > 0.0:
            return None
        return math.ceil(self.rounds[-1].samples * (SURE * self.lead[1] / self.lead[0]) ** 2)

    def to_dict(self) -> dict[str, Any]:
        """The heat as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Heat:
        """Read what `to_dict` made."""
        rounds = tuple(
            Round(each["samples"], {name: tuple(pair) for name, pair in each["distances"].items()})
            for each in document["rounds"]
        )
        lead = document["lead"]
        heat = cls(**{**document, "rounds": rounds, "lead": None if lead is None else tuple(lead)})
        check_types(heat)
        if not rounds or not all(each.distances for each in rounds) or heat.winner not in rounds[-1].distances:
            raise ValueError(
                f"the race of {heat.budget} steps has a round without candidates, or a winner that was not in it"
            )
        return heat


@dataclass
class Purse:
    """The evaluations of a race: those that it may still spend (None: no limit), and those already spent."""

    left: int | None = None
    spent: int = field(default=0, init=False)

    def pay(self, evaluations: int, always: bool = False) -> bool:
        """Spend evaluations if enough are left, or ``always``; return whether they were spent."""
        if self.left is not None:
            if evaluations > self.left and not always:
                return False
            self.left -= evaluations
        self.spent += evaluations
        return True


def counts(first: int, most: int) -> list[int]:
    """Numbers of samples in the rounds: doubling from ``first`` to ``most``."""
    found = [min(first, most)]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return found


def expected(field: int, rounds: Sequence[int]) -> int:
    """Samples that a race of ``field`` candidates draws if it is not stopped."""
    total, drawn = 0, 0
    for samples in rounds:
        total += field * (samples - drawn)
        field, drawn = survivors(field), samples
    return total


def survivors(count: int) -> int:
    """Number of candidates that go on to the next round: half of them, but at least two if there are two."""
    return min(count, max(2, math.ceil(count / 2)))


def race(arena: Arena, field: Mapping[str, Schedule], rounds: Sequence[int], purse: Purse) -> Heat:
    """Race schedules of one budget, by name, in rounds with ever more samples.

    The first round is always run. A later one that the purse cannot pay for is skipped, with all after it.
    """
    left, stopped = dict(field), False
    run: list[Round] = []
    found: dict[str, Discrepancy | None] = {}
    order: list[str] = []
    for samples in rounds:
        more = samples - (run[-1].samples if run else 0)
        if not purse.pay(sum(arena.evaluations(each, more) for each in left.values()), always=not run):
            stopped = True
            break
        found = {name: arena.score(schedule, samples).distance for name, schedule in left.items()}
        run.append(Round(samples, shared(found)))
        order = sorted(left, key=lambda name: run[-1].distances[name][0])
        if len(order) == 1:
            break
        left = {name: field[name] for name in order[: survivors(len(order))]}
    lead = None
    if len(order) > 1 and current().main:
        first, second = found[order[0]], found[order[1]]
        assert first is not None
        assert second is not None
        lead = second.minus(first)
    return Heat(next(iter(field.values())).budget, order[0], tuple(run), lead, stopped=stopped)


def shared(found: Mapping[str, Discrepancy | None]) -> dict[str, tuple[float, float]]:
    """Distances and their standard errors, from the main process of a launch to all."""
    known = [[name, each.value, each.standard_error] for name, each in found.items() if each is not None]
    return {name: (value, error) for name, value, error in current().share(known)}
