"""Candidates: the family's paths are the exact best of their cost, and budgets between those that raced get paths between."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import dpstride
from dpstride import Band, band_costs, solve
from dpstride.objectives.band import DEFAULT, REFERENCE
from dpstride.racing.candidates import Candidate, Field, between
from dpstride.statistics.artefact import Statistics
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

T = 12


@pytest.fixture(scope="module")
def statistics() -> Statistics:
    return dpstride.estimate(mixture_denoiser(T), mixture_data(40, seed=0), progress=False, check=False)


def best_by_enumeration(cost: np.ndarray, K: int) -> tuple[int, ...]:
    inner = itertools.combinations(range(T - 1, 0, -1), K - 1)
    paths = [(T, *middle, 0) for middle in inner]
    return min(paths, key=lambda path: sum(cost[t, s] for t, s in itertools.pairwise(path)))


def plain_table(statistics: Statistics, band: Band) -> np.ndarray:
    """The cost written out from its definition, number by number."""
    process = statistics.process
    deviation = statistics.data["deviation"]
    u = [math.inf] + [(f / g) ** 2 for f, g in zip(process.f[1:], process.g[1:], strict=True)] + [0.0]
    sigma = [0.0] + [1.0 / (math.sqrt(u[t]) * deviation) for t in range(1, T + 1)]

    def weight(s: int) -> float:
        return 0.0 if s == 0 or sigma[s] < band.low else min(sigma[s], band.high) ** band.exponent

    phi = [sum(weight(r) * (u[r] - u[r + 1]) for r in range(max(s, 1), T + 1)) for s in range(T + 1)]
    M = statistics.squared_error.mean(axis=1)
    M = np.minimum(M, band.cap * deviation**2 * statistics.dims)
    cost = np.full((T + 1, T + 1), np.inf)
    for t in range(1, T + 1):
        for s in range(t):
            cost[t, s] = 0.5 * M[t] * (phi[s] - phi[t])
    if band.evenness:
        K = min(REFERENCE, T)
        path = best_by_enumeration(cost, K)
        scale = sum(cost[t, s] for t, s in itertools.pairwise(path))
        for t in range(1, T + 1):
            for s in range(t):
                cost[t, s] = (1 - band.evenness) * cost[t, s] / scale + band.evenness * K * ((t - s) / T) ** 2
    return cost


@pytest.mark.parametrize("K", [1, 3, 5, 9])
@pytest.mark.parametrize(
    "band",
    [
        Band(),
        Band(1.0, 0.2, 6.0, cap=1.0),
        Band(0.5, 0.3, 3.0, cap=1.0, evenness=0.3),
        Band(2.0, 0.0, 20.0, evenness=0.7),
    ],
    ids=lambda band: band.words,
)
def test_paths_of_the_family_are_the_best_of_all(statistics: Statistics, band: Band, K: int) -> None:
    cost = plain_table(statistics, band)
    found = Field(statistics, T).member(band).path(K)
    best = best_by_enumeration(cost, K)
    total = [sum(cost[t, s] for t, s in itertools.pairwise(path)) for path in (found, best)]
    assert total[0] == pytest.approx(total[1], rel=1e-12)


def test_the_first_member_is_the_default_objective_and_full_evenness_gives_even_steps(statistics: Statistics) -> None:
    field = Field(statistics, T)
    solution = solve(band_costs(statistics), T)
    assert all(field.member(Band()).path(K) == tuple(solution.path(K)) for K in range(1, T + 1))
    nearly = field.member(Band(evenness=1.0 - 1e-9))
    assert all(nearly.path(K) == dpstride.even_stride(statistics.process, K).steps for K in (1, 2, 3, 4, 6, 12))


def test_capped_errors_never_count_more_than_the_data_vary(statistics: Statistics) -> None:
    errors = statistics.squared_error.copy()
    errors[T] *= 1e6  # mere clipping next to pure noise, say
    garbage = dataclasses.replace(statistics, squared_error=errors)
    assert Field(garbage, T).member(Band()).path(4)[1] == T - 1  # a step is wasted on leaving it
    capped = Field(garbage, T).member(Band(cap=1.0)).path(4)
    assert capped == best_by_enumeration(plain_table(garbage, Band(cap=1.0)), 4)
    assert capped[1] < T - 1


def test_candidates_have_different_names_and_paths_that_start_at_noise_and_end_at_data(statistics: Statistics) -> None:
    field = Field(statistics, 6)
    assert len({each.name for each in field.candidates}) == len(field.candidates)
    found = field.distinct(6)
    assert len({path for _, path in found}) == len(found) > 5
    for candidate, path in found:
        assert path[-1] == 0
        assert len(path) == 7, candidate.name
    assert field.named("elbo").path(3) == tuple(solve(dpstride.elbo_costs(statistics), 6).path(3))


def test_a_rule_without_room_for_so_many_steps_does_not_race(statistics: Statistics) -> None:
    """The quadratic stride of DDIM ends at 0.8·T, so it has no path of T steps."""
    names = {candidate.name for candidate, _ in Field(statistics, T).distinct(T)}
    assert names == {DEFAULT.words}  # with every step there is one path


def test_between_two_winners_of_the_family_parameters_lie_between(statistics: Statistics) -> None:
    field = Field(statistics, T)
    winners = {
        2: field.member(Band(1.0, 0.1, 10.0)),
        8: field.member(Band(2.0, 0.4, 40.0, evenness=0.4)),
    }
    middle = between(winners, field, 4).band  # half-way in ln K
    assert middle is not None
    assert middle.exponent == pytest.approx(1.5)
    assert (middle.low, middle.high) == pytest.approx((0.2, 20.0))
    assert middle.evenness == pytest.approx(0.2)
    assert between(winners, field, 1) is winners[2]
    assert between(winners, field, 8) is winners[8]
    assert between(winners, field, 12) is winners[8]


def test_between_two_caps_lies_a_cap_and_no_cap_is_far_away(statistics: Statistics) -> None:
    field = Field(statistics, T)
    winners = {2: field.member(Band(cap=1.0)), 8: field.member(Band(cap=2.0))}
    middle = between(winners, field, 4).band
    assert middle is not None
    assert middle.cap == pytest.approx(4.0 / 3.0)
    for first, last in ((1.5, math.inf), (math.inf, 1.5)):
        found = between({2: field.member(Band(cap=first)), 8: field.member(Band(cap=last))}, field, 4).band
        assert found is not None
        assert found.cap == pytest.approx(3.0)
    uncapped = between({2: field.member(Band()), 8: field.member(Band(1.6))}, field, 4).band
    assert uncapped is not None
    assert uncapped.cap == math.inf


def test_between_winners_of_other_kinds_the_nearest_is_taken(statistics: Statistics) -> None:
    field = Field(statistics, T)
    winners: dict[int, Candidate] = {2: field.named("even"), 8: field.member(Band())}
    assert between(winners, field, 3) is winners[2]
    assert between(winners, field, 5) is winners[8]
    open_ended = {2: field.member(Band(1.0, 0.0, math.inf)), 8: field.member(Band(1.0, 0.1, 9.0))}
    inner = between(open_ended, field, 3).band
    assert inner is not None
    assert (inner.low, inner.high) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("wrong", "message"), [({"cap": 0.0}, "cap must be a positive"), ({"evenness": 1.0}, "evenness must be a share")]
)
def test_wrong_caps_and_shares_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Band(**wrong)  # type: ignore[arg-type]


def test_costs_of_another_variance_have_no_errors_to_cap(statistics: Statistics) -> None:
    with pytest.raises(ValueError, match="Only the 'posterior' form has errors to cap"):
        band_costs(statistics, variance="optimal", cap=1.0)
    evened = band_costs(statistics, variance="optimal", evenness=1.0 - 1e-9)
    assert tuple(solve(evened, 4).path(4)) == dpstride.even_stride(statistics.process, 4).steps
