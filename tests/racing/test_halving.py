"""Successive halving: who goes on, what is spent, and what is said when it does not tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dpstride import ForwardProcess, Schedule
from dpstride.evaluate.discrepancy import Discrepancy
from dpstride.racing.arena import Score
from dpstride.racing.finish import Entry, fewest, margin_of
from dpstride.racing.halving import Purse, counts, expected, race, survivors

PROCESS = ForwardProcess.linear(40)
FIELD = {f"path {i}": Schedule(PROCESS, (40, 20 + i, 10, 0)) for i in range(9)}


@dataclass
class KnownDistances:
    """An arena whose distances are known: that of path i is i, with noise of the same size in all of them."""

    noise: float = 0.0
    drawn: dict[str, int] = field(default_factory=dict)
    evaluated: int = 0

    def evaluations(self, schedule: Schedule, n: int) -> int:
        return n * schedule.budget

    def score(self, schedule: Schedule, n: int, **options: Any) -> Score:
        i = schedule.steps[1] - 20
        self.evaluated += (n - self.drawn.get(str(i), 0)) * schedule.budget
        self.drawn[str(i)] = n
        own = np.random.default_rng(i).standard_normal(n) * self.noise * n  # jackknife values scatter as 1/n
        return Score(Discrepancy(float(i), float(i) + own / n, float(i) + np.zeros(5)))


def test_the_best_wins_and_the_better_half_goes_on() -> None:
    arena = KnownDistances()
    heat = race(arena, FIELD, [8, 16, 32], Purse())  # type: ignore[arg-type]
    assert heat.winner == "path 0"
    assert heat.budget == 3
    assert [sorted(each.distances) for each in heat.rounds] == [
        sorted(FIELD), [f"path {i}" for i in range(5)], [f"path {i}" for i in range(3)],
    ]  # fmt: skip
    assert arena.drawn == {**{str(i): 32 for i in range(3)}, "3": 16, "4": 16, **{str(i): 8 for i in range(5, 9)}}
    assert heat.lead == (1.0, 0.0)
    assert heat.conclusive
    assert not heat.stopped


def test_what_is_spent_is_what_was_drawn_and_what_was_expected() -> None:
    arena, purse = KnownDistances(), Purse()
    race(arena, FIELD, counts(8, 50), purse)  # type: ignore[arg-type]
    assert counts(8, 50) == [8, 16, 32, 50]
    assert purse.spent == arena.evaluated == expected(len(FIELD), counts(8, 50)) * 3


def test_a_purse_that_is_used_up_ends_the_race_but_never_before_its_first_round() -> None:
    first, second = 9 * 8 * 3, 5 * 8 * 3
    purse = Purse(first + second + 1)
    heat = race(KnownDistances(), FIELD, [8, 16, 32], purse)  # type: ignore[arg-type]
    assert heat.stopped
    assert [each.samples for each in heat.rounds] == [8, 16]
    assert (purse.spent, purse.left) == (first + second, 1)
    heat = race(KnownDistances(), FIELD, [8, 16], purse)  # type: ignore[arg-type]
    assert [each.samples for each in heat.rounds] == [8]
    assert heat.stopped


def test_candidates_that_noise_hides_are_not_told_apart_and_more_samples_are_named() -> None:
    heat = race(KnownDistances(noise=0.5), FIELD, [64], Purse())  # type: ignore[arg-type]
    assert heat.lead is not None
    difference, error = heat.lead
    assert difference == 1.0
    assert heat.conclusive is (error < 0.5)
    assert heat.samples_to_tell == math.ceil(64 * (2 * error) ** 2)
    assert not heat.conclusive
    assert heat.samples_to_tell > 64


def test_one_candidate_wins_at_once() -> None:
    heat = race(KnownDistances(), {"only": FIELD["path 3"]}, [8, 16], Purse())  # type: ignore[arg-type]
    assert (heat.winner, heat.lead, len(heat.rounds)) == ("only", None, 1)
    assert heat.conclusive
    assert [survivors(n) for n in (1, 2, 3, 4, 5, 21)] == [1, 2, 2, 2, 3, 11]


@pytest.mark.parametrize("least", range(4, 35))
def test_bisection_finds_the_fewest_steps_and_tests_few(least: int) -> None:
    tested = []

    def test(K: int) -> bool:
        tested.append(K)
        return least <= K

    budgets = range(4, 33)
    assert fewest(test, budgets) == next((K for K in budgets if least <= K), None)
    assert len(tested) <= 1 + math.ceil(math.log2(len(budgets)))


@pytest.mark.parametrize(
    ("reference", "even", "margin"),
    [((50.0, 5.0), 80.0, 5.0), ((-0.588, 2.0), -0.484, 0.2), ((0.1, 0.05), 30.0, 0.3)],
)
def test_the_margin_is_never_negative(reference: tuple[float, float], even: float, margin: float) -> None:
    """Distances about 0 are estimated below it now and then: nothing could be as close as less than -0.0048 asked for."""
    entries = Entry("reference", (4, 2, 0), *reference), Entry("even", (4, 0), even, 1.0)
    assert margin_of(*entries) == pytest.approx(margin)


def test_as_close_means_that_the_whole_interval_lies_below_the_margin() -> None:
    entry = Entry("even", (4, 2, 0), 1.0, 0.1, beyond=(0.2, 0.1))
    assert entry.within(0.4)
    assert not entry.within(0.39)
    assert not Entry("reference", (4, 2, 0), 1.0, 0.1).within(10.0)
