"""Paths that race: a family of objectives for samples, hand-made and published strides, and the ELBO's path.

The family is the objective for samples with other weights of noise levels, with errors beyond the data's own variance
counted as that (what an eps network makes of pure noise may be mere clipping, which later steps repair or do not), and
mixed with evenness:

    (1 − share) L_w(t, s) / C  +  share · K₀ ((t − s)/T)²

where C is what the best path of K₀ = 8 steps costs, and 1/K₀ what even steps cost. Equal increments minimise a sum of
squares, so a share of 1 gives even steps; both parts fall about as 1/K, so one share serves neighbouring budgets. Every
member is a sum over steps: the exact best path of every budget comes from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluate.likelihood import steps_on
from ..objectives.band import Band, band_levels, data_deviation
from ..objectives.elbo import elbo_costs
from ..options import DEFAULT_OBJECTIVE, KARRAS, STRIDES
from ..solver import Lines, Solution, solve
from ..strides import find, karras_stride

if TYPE_CHECKING:
    from ..process import ForwardProcess
    from ..schedule import ScheduleSet
    from ..statistics.artefact import Statistics

REFERENCE = 8  # steps at which a path's cost and evenness are put on one scale
RHOS = (3.0, 5.0)  # of Karras' formula, beside the published 7
Path = tuple[int, ...]


@dataclass(frozen=True)
class Weights:
    """A member of the family: the band of noise levels, and how far errors and evenness count.

    Attributes:
        band: weight of noise levels.
        capped: errors beyond the data's own variance count as that.
        evenness: share of evenness in the cost, from 0 to less than 1.
    """

    band: Band = field(default_factory=Band)
    capped: bool = False
    evenness: float = 0.0

    @property
    def words(self) -> str:
        """The member in a table."""
        band = f"band {self.band.exponent:.3g}, {self.band.low:.3g}–{self.band.high:.3g}"
        return band + (", capped" if self.capped else "") + (f", {self.evenness:.0%} even" if self.evenness else "")

    def to_dict(self) -> dict[str, Any]:
        """The member as JSON values."""
        band = self.band
        return {
            "exponent": band.exponent, "low": band.low, "high": band.high,
            "capped": self.capped, "evenness": self.evenness,
        }  # fmt: skip

    def solution(self, statistics: Statistics, most: int) -> Solution:
        """Solve for every budget up to ``most``."""
        deviation = data_deviation(statistics)
        levels = band_levels(statistics.process, self.band, deviation)
        errors = statistics.squared_error.mean(axis=1)
        if self.capped:
            errors = np.minimum(errors, deviation**2 * statistics.dims)
        lines = Lines(levels, errors, 0.5 * errors * (levels[1] - levels))
        T = statistics.process.T
        if not self.evenness:
            return solve(lines, most)
        K = min(REFERENCE, T)
        scale = (1.0 - self.evenness) / solve(lines, K).cost(K)
        share = np.subtract.outer(np.arange(T + 1.0), np.arange(T + 1.0)) / T
        return solve(scale * lines.table() + self.evenness * K * share**2, most)

    def towards(self, other: Weights, share: float) -> Weights:
        """The member that lies ``share`` of the way to ``other``, band ends in proportion, the rest in difference."""

        def between(a: float, b: float) -> float:
            return a + share * (b - a)

        low, high = (
            math.exp(between(math.log(a), math.log(b)))
            if min(a, b) > 0.0 and max(a, b) < math.inf
            else (a if share < 0.5 else b)
            for a, b in ((self.band.low, other.band.low), (self.band.high, other.band.high))
        )
        band = Band(between(self.band.exponent, other.band.exponent), low, high)
        return Weights(band, self.capped, between(self.evenness, other.evenness))


FAMILY = (
    Weights(),
    Weights(Band(1.0, 0.2, 20.0)),
    Weights(Band(1.0, 0.4, 12.0)),
    Weights(Band(1.0, 0.2, 6.0)),
    Weights(Band(1.3, 0.1, 10.0)),
    Weights(Band(1.6, 0.1, 20.0)),
    Weights(Band(2.0, 0.2, 20.0)),
    Weights(capped=True),
    Weights(Band(1.0, 0.2, 6.0), capped=True),
    Weights(Band(1.6, 0.1, 10.0), capped=True),
    Weights(evenness=0.5),
    Weights(Band(1.0, 0.2, 6.0), capped=True, evenness=0.5),
    Weights(Band(2.0, 0.2, 20.0), evenness=0.5),
)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rule that gives a path of any number of steps.

    Attributes:
        name: of the rule, in tables and files.
        path: the path of so many steps.
        weights: its place in the family; None for any other rule.
    """

    name: str
    path: Callable[[int], Path] = field(repr=False)
    weights: Weights | None = None


class Field:
    """All candidates of one model, from its statistics; paths are solved for when they are first asked for.

    ``also`` are schedules of the user's own, by name: of another objective, or published.
    """

    def __init__(self, statistics: Statistics, most: int, also: Mapping[str, ScheduleSet] | None = None) -> None:
        self.statistics, self.most, self.also = statistics, most, also or {}
        self._solved: dict[Weights, Solution] = {}

    @property
    def process(self) -> ForwardProcess:
        """The grid."""
        return self.statistics.process

    def member(self, weights: Weights) -> Candidate:
        """A member of the family as a candidate."""
        return Candidate(weights.words, partial(self._path, weights), weights)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The family, hand-made and published strides, and the ELBO's path."""
        strides = [Candidate(name, partial(self._stride, find(name).make)) for name in STRIDES]
        karras = [
            Candidate(f"{KARRAS}, rho {rho:g}", partial(self._stride, partial(karras_stride, rho=rho))) for rho in RHOS
        ]
        given = [Candidate(name, partial(self._given, schedules)) for name, schedules in self.also.items()]
        return (*map(self.member, FAMILY), *strides, *karras, Candidate(DEFAULT_OBJECTIVE, self._elbo), *given)

    def named(self, name: str) -> Candidate:
        """The candidate of that name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def distinct(self, budget: int) -> list[tuple[Candidate, Path]]:
        """Candidates with different paths of ``budget`` steps; of several with one path the first."""
        found: dict[Path, Candidate] = {}
        for candidate in self.candidates:
            with suppress(ValueError):  # no room for so many different steps on this grid, or none given of as many
                found.setdefault(candidate.path(budget), candidate)
        return [(candidate, path) for path, candidate in found.items()]

    def _path(self, weights: Weights, budget: int) -> Path:
        if weights not in self._solved:
            self._solved[weights] = weights.solution(self.statistics, self.most)
        return tuple(map(int, self._solved[weights].path(budget)))

    def _stride(self, make: Callable[[ForwardProcess, int], Any], budget: int) -> Path:
        return tuple(make(self.process, budget).steps)

    def _given(self, schedules: ScheduleSet, budget: int) -> Path:
        return steps_on(self.process, schedules[budget])

    def _elbo(self, budget: int) -> Path:
        return tuple(map(int, self._elbo_solution.path(budget)))

    @cached_property
    def _elbo_solution(self) -> Solution:
        return solve(elbo_costs(self.statistics), self.most)


def between(winners: dict[int, Candidate], field: Field, budget: int) -> Candidate:
    """The candidate for a budget that did not race: between the winners beside it, or the nearest of them in ln K.

    Where that has no path of so many steps it is the objective for samples as it is.
    """
    below = max((K for K in winners if budget >= K), default=None)
    above = min((K for K in winners if budget <= K), default=None)
    if below is None or above is None:
        found = winners[min(winners) if below is None else max(winners)]
    elif below == above:
        found = winners[budget]
    else:
        share = math.log(budget / below) / math.log(above / below)
        first, last = winners[below].weights, winners[above].weights
        if first is not None and last is not None and first.capped == last.capped:
            return field.member(first.towards(last, share))
        found = winners[below if share < 0.5 else above]
    with suppress(ValueError):
        found.path(budget)
        return found
    return field.member(Weights())
