"""The race of one budget: successive halving on common noises.

Every round the candidates that are left draw more samples, each from the same noises as all others, and the better half
goes on. Common noises make the difference of two candidates far less noisy than their distances. The number of samples
doubles from round to round, so that most of them are spent on the best.
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

SURE = 2.0  # standard errors of a paired difference


@dataclass(frozen=True)
class Round:
    """Distances of the candidates that were left, by name, with standard errors; and of how many samples."""

    samples: int
    distances: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Heat:
    """The race of one budget.

    Attributes:
        budget: number of steps.
        winner: the candidate with the least distance in the last round.
        rounds: all rounds.
        lead: the difference of the runner-up's distance and the winner's in the last round, and its standard error; None where
            nobody else was left.
        stopped: rounds were left out, because the allowed evaluations were used up.
    """

    budget: int
    winner: str
    rounds: tuple[Round, ...]
    lead: tuple[float, float] | None = None
    stopped: bool = False

    @property
    def conclusive(self) -> bool:
        """Return whether the winner is ahead of the runner-up beyond two standard errors."""
        return self.lead is None or self.lead[0] > SURE * self.lead[1]

    @property
    def samples_to_tell(self) -> int | None:
        """The samples that would tell winner and runner-up apart, if their difference is as it looks; None for none."""
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
    """Network evaluations that a race may still spend; None for no limit."""

    left: int | None = None
    spent: int = field(default=0, init=False)

    def pay(self, evaluations: int, always: bool = False) -> bool:
        """Spend evaluations if that many are left, or ``always``; return whether they were spent."""
        if self.left is not None:
            if evaluations > self.left and not always:
                return False
            self.left -= evaluations
        self.spent += evaluations
        return True


def counts(first: int, most: int) -> list[int]:
    """Numbers of samples of the rounds: doubling from ``first`` to ``most``."""
    found = [min(first, most)]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return found


def expected(field: int, rounds: Sequence[int]) -> int:
    """Samples that a race of so many candidates draws, if none is stopped."""
    total, drawn = 0, 0
    for samples in rounds:
        total += field * (samples - drawn)
        field, drawn = survivors(field), samples
    return total


def survivors(count: int) -> int:
    """Candidates that go on to the next round: the better half, and two as long as there are two."""
    return min(count, max(2, math.ceil(count / 2)))


def race(arena: Arena, field: Mapping[str, Schedule], rounds: Sequence[int], purse: Purse) -> Heat:
    """Race schedules of one budget, by name, in rounds of growing numbers of samples.

    A round that the purse cannot pay is left out, with those after it; the first one is always run.
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
        found = {name: arena.shoot(schedule, samples).distance for name, schedule in left.items()}
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
    """Distances and their errors, as the main process of a launch has them, in every process."""
    known = [[name, each.value, each.standard_error] for name, each in found.items() if each is not None]
    return {name: (value, error) for name, value, error in current().share(known)}
