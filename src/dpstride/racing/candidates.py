"""Paths that race: a family of objectives for samples, hand-made and published strides, and the ELBO's path.

The family is the objective for samples with different weights of noise levels, caps on errors and shares of even steps (see
`objectives.band`). The cost of every member is a sum over steps, so the solver finds its exact best path for every budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ..evaluate.likelihood import steps_on
from ..objectives.band import DEFAULT, Band, costs_over
from ..objectives.elbo import elbo_costs
from ..options import DEFAULT_OBJECTIVE, KARRAS, RACED_BESIDE, STRIDES
from ..schedule import Schedule
from ..solver import Solution, solve
from ..strides import beside, find, karras_stride

if TYPE_CHECKING:
    from ..process import ForwardProcess
    from ..schedule import ScheduleSet
    from ..statistics.artefact import Statistics

RHOS = {f"{KARRAS}, rho {rho:g}": rho for rho in (3.0, 5.0)}  # of Karras' formula, besides the published 7
Path = tuple[int, ...]


FAMILY = (
    DEFAULT,
    Band(),
    Band(1.0, 0.2, 20.0),
    Band(1.0, 0.4, 12.0),
    Band(1.0, 0.2, 6.0),
    Band(1.3, 0.1, 10.0),
    Band(1.6, 0.1, 20.0),
    Band(2.0, 0.2, 20.0),
    Band(cap=1.0),
    Band(1.0, 0.2, 6.0, cap=1.0),
    Band(1.6, 0.1, 10.0, cap=1.0),
    Band(evenness=0.3),
    Band(2.0, 0.2, 20.0, evenness=0.5),
)
MADE = (*(band.words for band in FAMILY), *RHOS)  # names of candidates made here


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rule that gives a path of any number of steps.

    Attributes:
        name: name of the rule, in tables and files.
        path: function from a number of steps to the path.
        band: setting of a member of the family; None for any other rule.
    """

    name: str
    path: Callable[[int], Path] = field(repr=False)
    band: Band | None = None


class Field:
    """All candidates of a race, from the statistics of one model; paths are computed when first needed.

    ``also`` are the user's own schedules by name: of another objective, or published.
    """

    def __init__(self, statistics: Statistics, most: int, also: Mapping[str, ScheduleSet] | None = None) -> None:
        self.statistics, self.most, self.also = statistics, most, also or {}
        self._solved: dict[Band | None, Solution] = {}

    @property
    def process(self) -> ForwardProcess:
        """The grid."""
        return self.statistics.process

    def member(self, band: Band) -> Candidate:
        """A member of the family as a candidate."""
        return Candidate(band.words, partial(self._path, band), band)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The family, hand-made and published strides, and the ELBO's path."""
        strides = [Candidate(name, partial(self._stride, find(name).make)) for name in STRIDES]
        karras = [Candidate(name, partial(self._stride, partial(karras_stride, rho=rho))) for name, rho in RHOS.items()]
        given = [Candidate(name, partial(self._given, schedules)) for name, schedules in self.also.items()]
        elbo = Candidate(DEFAULT_OBJECTIVE, partial(self._path, None))
        return (*map(self.member, FAMILY), *strides, *karras, elbo, *given)

    def named(self, name: str) -> Candidate:
        """The candidate with this name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def distinct(self, budget: int) -> list[tuple[Candidate, Path]]:
        """Candidates with different paths of ``budget`` steps; of several with the same path, the first."""
        found: dict[Path, Candidate] = {}
        for candidate in self.candidates:
            with suppress(ValueError):  # the grid has too few points for the rule, or none was given for this budget
                found.setdefault(candidate.path(budget), candidate)
        return [(candidate, path) for path, candidate in found.items()]

    def beside(self, base: ScheduleSet, budget: int) -> dict[str, Schedule]:
        """Schedules to compare the winner with, by name: hand-made ones, the ELBO's, and the user's own."""
        found: dict[str, Schedule] = {name: beside(base, name, budget) for name in RACED_BESIDE}
        for name in (DEFAULT_OBJECTIVE, *self.also):
            with suppress(ValueError):  # none was given for this budget
                found[name] = base.adopt(Schedule(self.process, self.named(name).path(budget), name))
        return found

    def _path(self, band: Band | None, budget: int) -> Path:
        """The best path of a band, or of the ELBO when ``band`` is None."""
        if band not in self._solved:
            costs = elbo_costs(self.statistics) if band is None else costs_over(band, self.statistics)
            self._solved[band] = solve(costs, self.most)
        return tuple(map(int, self._solved[band].path(budget)))

    def _stride(self, make: Callable[[ForwardProcess, int], Any], budget: int) -> Path:
        return tuple(make(self.process, budget).steps)

    def _given(self, schedules: ScheduleSet, budget: int) -> Path:
        return steps_on(self.process, schedules[budget])


def between(winners: dict[int, Candidate], field: Field, budget: int) -> Candidate:
    """The candidate for any budget: interpolated between the neighbouring winners, or the nearer of them in ln K.

    If that rule has no path of so many steps, the default objective for samples takes its place.
    """
    below = max((K for K in winners if budget >= K), default=None)
    above = min((K for K in winners if budget <= K), default=None)
    if below is None or above is None:
        found = winners[min(winners) if below is None else max(winners)]
    elif below == above:
        found = winners[budget]
    else:
        share = math.log(budget / below) / math.log(above / below)
        first, last = winners[below].band, winners[above].band
        if first is not None and last is not None:
            return field.member(part_way(first, last, share))
        found = winners[below if share < 0.5 else above]
    with suppress(ValueError):
        found.path(budget)
        return found
    return field.member(DEFAULT)


def part_way(first: Band, last: Band, share: float) -> Band:
    """The band ``share`` of the way to ``last``: geometric in its ends, harmonic in caps, linear in the rest."""

    def between(a: float, b: float) -> float:
        return a + share * (b - a)

    low, high = (
        math.exp(between(math.log(a), math.log(b)))
        if min(a, b) > 0.0 and max(a, b) < math.inf
        else (a if share < 0.5 else b)
        for a, b in ((first.low, last.low), (first.high, last.high))
    )
    exponent, evenness = between(first.exponent, last.exponent), between(first.evenness, last.evenness)
    inverse = between(1.0 / first.cap, 1.0 / last.cap)  # no cap is a cap of ∞
    return Band(exponent, low, high, cap=1.0 / inverse if inverse > 0.0 else math.inf, evenness=evenness)
