"""The final measurement: winners, hand-made schedules and many steps measured again, on held-out noise and real data.

A race is optimistic about its winner, since among many candidates a lucky one wins. Here nothing is chosen. The answer is the
fewest steps whose samples are as close to real data as those of many steps: the upper end of the 95% interval of the paired
difference lies below a margin. Every number of steps in the answer is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..options import EVEN
from ..paths import check_path
from ..reading.types import check_types
from ..runs.workers import current

if TYPE_CHECKING:
    from ..schedule import Schedule
    from .arena import Arena, Score

INTERVAL = 1.96  # standard errors on either side of a 95% interval
MARGIN = 0.1  # default margin, in units of the reference's distance or its standard error, but at least
LEAST_MARGIN = 0.01  # of the distance of even steps at the least budget
OURS, REFERENCE = "raced", "reference"


@dataclass(frozen=True)
class Entry:
    """A measured path.

    Attributes:
        name: name of its rule.
        steps: grid indices.
        distance: distance from the held-out real data.
        standard_error: standard error of the distance.
        frechet: Fréchet distance of the same features; None without features.
        ahead: its distance minus that of the raced schedule of as many steps, and the standard error of this paired
            difference; None for the raced schedule itself.
        beyond: its distance minus that of the reference, and the standard error of this paired difference.
    """

    name: str
    steps: tuple[int, ...]
    distance: float
    standard_error: float
    frechet: float | None = None
    ahead: tuple[float, float] | None = None
    beyond: tuple[float, float] | None = None

    @property
    def budget(self) -> int:
        """Number of steps."""
        return len(self.steps) - 1

    def within(self, margin: float) -> bool:
        """Return whether it is as close as the reference, up to a margin, with 95% confidence."""
        return self.beyond is not None and self.beyond[0] + INTERVAL * self.beyond[1] < margin

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON values."""
        return {"name": self.name, "budget": self.budget, **asdict(self)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], T: int) -> Entry:
        """Read what `to_dict` made, on a grid of T steps."""
        values = dict(document)
        budget, steps = values.pop("budget"), check_path(values.pop("steps"), T)
        if budget != len(steps) - 1:
            raise ValueError(f"the path of {budget!r:.80} steps has {len(steps) - 1}")
        values |= {name: None if values[name] is None else tuple(values[name]) for name in ("ahead", "beyond")}
        entry = cls(steps=steps, **values)
        check_types(entry)
        return entry


@dataclass(frozen=True)
class Finish:
    """The final measurement.

    Attributes:
        samples: samples per path.
        reference: the path of many steps that all are compared with.
        margin: difference from the reference that counts as none.
        entries: measured paths by (name, budget).
        enough: the fewest steps that are as close as the reference, by name ("raced", "even"); None if none of those tried
            was.
        evaluations: network evaluations of all samples, including resumed ones.
        images: the first few samples of every path, uint8 [m, C, H, W], if they are images.
    """

    samples: int
    reference: Entry
    margin: float
    entries: Mapping[tuple[str, int], Entry]
    enough: Mapping[str, int | None]
    evaluations: int
    images: Mapping[tuple[str, int], Any]


def margin_of(reference: Entry, even: Entry) -> float:
    """Return a tenth of the reference's distance, or of its standard error if that is larger, since an unbiased distance
    near 0 may be negative; at least a hundredth of the distance of even steps at the least budget.
    """
    return max(MARGIN * reference.distance, MARGIN * reference.standard_error, LEAST_MARGIN * even.distance)


class Judge:
    """Measures every path once, and compares it."""

    def __init__(self, arena: Arena, samples: int, reference: Schedule) -> None:
        self.arena, self.samples = arena, samples
        self._scores: dict[tuple[int, ...], Score] = {}
        self.evaluations = 0
        self.images: dict[tuple[str, int], Any] = {}
        self.reference = self.entry(REFERENCE, reference)
        self._reference = self._scores[reference.steps]

    def score(self, schedule: Schedule) -> Score:
        """Draw and measure samples along a path, once."""
        if schedule.steps not in self._scores:
            self.evaluations += self.arena.evaluations(schedule, self.samples)
            self._scores[schedule.steps] = self.arena.score(schedule, self.samples, frechet=True)
        return self._scores[schedule.steps]

    def entry(self, name: str, schedule: Schedule, ours: Schedule | None = None) -> Entry:
        """Measure a path, and compare it with the raced one of as many steps and with the reference."""
        score = self.score(schedule)
        self.images[name, schedule.budget] = () if score.images is None else score.images
        ahead = None if ours is None or ours.steps == schedule.steps else difference(score, self.score(ours))
        beyond = None if name == REFERENCE else difference(score, self._reference)
        own = None if score.distance is None else (score.distance.value, score.distance.standard_error, score.frechet)
        value, error, frechet = current().share(own)
        return Entry(name, schedule.steps, value, error, frechet=frechet, ahead=ahead, beyond=beyond)


def difference(one: Score, other: Score) -> tuple[float, float]:
    """Paired difference of two distances and its standard error, in every process of a launch."""
    found = None if one.distance is None or other.distance is None else one.distance.minus(other.distance)
    value, error = current().share(found)
    return value, error


def fewest(test: Callable[[int], bool], budgets: Sequence[int]) -> int | None:
    """The fewest steps that pass a test, by bisection over ascending ``budgets``; None if the last of them fails.

    If K steps pass, more are assumed to pass. The result has passed, and the largest tested number below it has failed.
    """
    low, high = 0, len(budgets) - 1
    if not test(budgets[high]):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(budgets[middle]) else (middle + 1, high)
    return budgets[high]


def finish(
    arena: Arena,
    samples: int,
    *,
    ours: Mapping[int, Schedule],
    others: Callable[[int], Mapping[str, Schedule]],
    reference: Schedule,
    budgets: Sequence[int],
    margin: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Finish:
    """Measure raced and other schedules of ``budgets``, and find the fewest steps that are as close as the reference.

    Args:
        arena: arena with noise and real data that were not used for choosing.
        samples: samples per path.
        ours: raced schedules of every number of steps up to the largest budget.
        others: function from a budget to the schedules to compare with, by name, with even steps among them.
        reference: schedule of many steps.
        budgets: numbers of steps at which every schedule is measured.
        margin: difference from the reference that counts as none; `margin_of` when None.
        say: called with a line of text for every stage.
    """
    judge = Judge(arena, samples, reference)
    say(f"{reference.budget:,} even steps, as reference: {samples:,} samples")
    entries: dict[tuple[str, int], Entry] = {}
    for K in budgets:
        own = ours[K]
        entries[OURS, K] = judge.entry(OURS, own)
        for name, schedule in others(K).items():
            entries[name, K] = judge.entry(name, schedule, own)
        say(f"{K} steps: {samples:,} samples of each schedule")
    if margin is None:
        margin = margin_of(judge.reference, entries[EVEN, min(budgets)])

    def passes(name: str, K: int) -> bool:
        if (name, K) not in entries:
            entries[name, K] = judge.entry(name, ours[K] if name == OURS else others(K)[name], ours[K])
        return entries[name, K].within(margin)

    tried = range(min(budgets), max(budgets) + 1)
    enough = {name: fewest(lambda K, name=name: passes(name, K), tried) for name in (OURS, EVEN)}  # type: ignore[misc]
    return Finish(
        samples, judge.reference, margin, entries, enough=enough, evaluations=judge.evaluations, images=judge.images
    )


def expected(samples: int, budgets: Sequence[int], others: int, reference: int) -> int:
    """Approximate samples times steps of the final measurement, with the budgets that bisection adds."""
    bisected = 2 * math.ceil(math.log2(max(budgets) - min(budgets) + 1)) * max(budgets) // 2
    return samples * (sum(budgets) * (1 + others) + reference + bisected)
