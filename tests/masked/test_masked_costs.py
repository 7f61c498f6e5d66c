"""The costs of rounds against distributions whose every conditional is known."""

from __future__ import annotations

import itertools
import math

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, strategies as st
from joints import JOINTS, Joint, independent, markov

import dpstride
from dpstride import MaskedProcess, MaskedStatistics


def statistics_of(
    nats: np.ndarray, sizes: np.ndarray | None = None, counts: list[int] | None = None
) -> MaskedStatistics:
    """Statistics with these numbers [T + 1, N]."""
    N = nats.shape[1]
    process = MaskedProcess(len(nats) - 1 if counts is None else max(counts), counts)
    sizes = np.full(N, process.length) if sizes is None else sizes
    return MaskedStatistics(process, nats, sizes, np.arange(N))


def exact_statistics(joint: Joint) -> MaskedStatistics:
    return statistics_of(joint.c()[:, None])


def paths_of(n: int, K: int) -> list[tuple[int, ...]]:
    return [(n, *inner[::-1], 0) for inner in itertools.combinations(range(1, n), K - 1)]


@pytest.mark.parametrize("name", JOINTS)
def test_all_rounds_give_the_entropy_and_one_the_product_of_marginals(name: str) -> None:
    joint = JOINTS[name]()
    solution = dpstride.solve(dpstride.masked_costs(exact_statistics(joint)))
    assert solution.cost(joint.n) == pytest.approx(joint.entropy, rel=1e-10)
    marginals = sum(joint.marginal_entropy((place,)) for place in range(joint.n))
    assert solution.cost(1) == pytest.approx(marginals, rel=1e-10)


def test_independent_tokens_make_every_schedule_equal() -> None:
    joint = independent()
    L = dpstride.masked_costs(exact_statistics(joint)).L
    for K in range(1, joint.n + 1):
        costs = [sum(L[t, s] for t, s in itertools.pairwise(path)) for path in paths_of(joint.n, K)]
        assert costs == pytest.approx([joint.entropy] * len(costs), rel=1e-10)


@pytest.mark.parametrize("name", JOINTS)
def test_the_gap_is_the_total_correlation_of_what_is_revealed_together(name: str) -> None:
    """Of a round: the mean over known sets and revealed sets of Σ H(x_l given known) − H(revealed given known)."""
    joint = JOINTS[name](5)
    n, L, c = joint.n, dpstride.masked_costs(exact_statistics(joint)).L, joint.c()
    for t, s in itertools.combinations(range(n, -1, -1), 2):
        terms = []
        for masked in itertools.combinations(range(n), t):
            known = tuple(place for place in range(n) if place not in masked)
            base = joint.marginal_entropy(known)
            for revealed in itertools.combinations(masked, t - s):
                single = sum(joint.marginal_entropy((*known, place)) - base for place in revealed)
                terms.append(single - (joint.marginal_entropy((*known, *revealed)) - base))
        assert L[t, s] - c[s + 1 : t + 1].sum() == pytest.approx(np.mean(terms), abs=1e-12)


@given(arrays.arrays(np.float64, (8, 3), elements=st.floats(0.0, 9.0)), st.integers(1, 7))
def test_the_solver_finds_the_least_of_all_schedules(nats: np.ndarray, K: int) -> None:
    nats[0] = 0.0
    costs = dpstride.masked_costs(statistics_of(nats))
    schedule = dpstride.solve(costs).schedule(K)
    c, n = nats.mean(axis=1), 7
    best = min(sum((t - s) * c[t] for t, s in itertools.pairwise(path)) for path in paths_of(n, K))
    assert schedule.bits * n * math.log(2.0) == pytest.approx(best, rel=1e-10, abs=1e-12)
    assert sum((t - s) * c[t] for t, s in itertools.pairwise(schedule.counts)) == pytest.approx(
        best, rel=1e-10, abs=1e-12
    )


@given(arrays.arrays(np.float64, (7, 4), elements=st.floats(0.0, 9.0)), st.integers(1, 6), st.data())
def test_samples_of_different_lengths_are_added_up_one_by_one(nats: np.ndarray, K: int, data: st.DataObject) -> None:
    nats[0] = 0.0
    sizes = np.array(data.draw(st.lists(st.integers(1, 6), min_size=4, max_size=4)))
    statistics = statistics_of(nats, sizes)
    costs = dpstride.masked_costs(statistics)

    def total(path: tuple[int, ...]) -> float:
        """Half up by fractions of whole numbers: the rounding that is stated."""
        masked = [[math.floor(t * size / 6 + 0.5 + 1e-12) for t in path] for size in sizes]
        return sum((m[k] - m[k + 1]) * nats[path[k], i] for i, m in enumerate(masked) for k in range(len(path) - 1))

    best = min(total(path) for path in paths_of(6, K))
    schedule = dpstride.solve(costs).schedule(K)
    assert schedule.bits * sizes.sum() * math.log(2.0) == pytest.approx(best, rel=1e-10, abs=1e-12)
    assert total(schedule.counts) == pytest.approx(best, rel=1e-10, abs=1e-12)


def test_a_coarse_grid_is_a_subset_of_the_whole_one() -> None:
    rng = np.random.default_rng(0)
    nats = np.append(np.zeros((1, 5)), rng.random((9, 5)), axis=0)
    whole, counts = dpstride.masked_costs(statistics_of(nats)), [0, 2, 3, 7, 9]
    coarse = dpstride.masked_costs(statistics_of(nats[counts], counts=counts))
    np.testing.assert_allclose(coarse.L, whole.L[np.ix_(counts, counts)], rtol=1e-12)
    assert set(dpstride.solve(coarse).schedule(3).counts) <= set(counts)


@pytest.mark.parametrize("name", JOINTS)
def test_a_chain_by_times_costs_what_its_binomial_numbers_cost(name: str) -> None:
    """Every mask is listed with its probability, and every way to reveal some of it."""
    joint = JOINTS[name](4)
    times = (1.0, 0.7, 0.25, 0.0)
    n, expected = joint.n, 0.0
    for tau, sigma in itertools.pairwise(times):
        for bits in itertools.product([False, True], repeat=n):
            masked = [place for place in range(n) if bits[place]]
            known = tuple(place for place in range(n) if not bits[place])
            chance = tau ** len(masked) * (1.0 - tau) ** len(known)
            base = joint.marginal_entropy(known)
            nats = sum(joint.marginal_entropy((*known, place)) - base for place in masked)
            expected += chance * (tau - sigma) / tau * nats
    bits, _ = dpstride.score_masked(exact_statistics(joint), dpstride.BinomialSchedule(times))
    assert bits * n * math.log(2.0) == pytest.approx(expected, rel=1e-10)


def test_fixed_numbers_are_better_than_binomial_ones_of_the_same_mean() -> None:
    """Not a law, but so for these letters; a chain by times must not be given the score of the other."""
    statistics = exact_statistics(markov())
    by_times = dpstride.score_masked(statistics, dpstride.linear_times(3))[0]
    assert dpstride.score_masked(statistics, dpstride.even_unmasking(6, 3))[0] < by_times


def test_the_best_times_are_found_among_many() -> None:
    statistics = exact_statistics(markov())
    grid = np.linspace(0.0, 1.0, 21)
    solution = dpstride.solve(dpstride.binomial_costs(statistics, grid), 3)
    best = min(
        dpstride.score_masked(statistics, dpstride.BinomialSchedule((1.0, *grid[list(inner)][::-1], 0.0)))[0]
        for inner in itertools.combinations(range(1, 20), 2)
    )
    assert dpstride.score_masked(statistics, solution.schedule(3))[0] == pytest.approx(best, rel=1e-10)


def test_standard_errors_are_those_of_sequences() -> None:
    """Blocks of one sequence are not independent: two copies of every sample tell no more than one."""
    rng = np.random.default_rng(1)
    nats = np.append(np.zeros((1, 6)), rng.random((4, 6)), axis=0)
    single = dpstride.masked_costs(statistics_of(nats)).bits_per_token([4, 1, 0])
    totals = 3 * nats[4] + nats[1]
    assert single[0] == pytest.approx(totals.mean() / 4 / math.log(2.0))
    assert single[1] == pytest.approx(totals.std(ddof=1) / math.sqrt(6) / 4 / math.log(2.0))
    twice = MaskedStatistics(MaskedProcess(4), np.repeat(nats, 2, axis=1), np.full(12, 4), np.repeat(np.arange(6), 2))
    assert dpstride.masked_costs(twice).bits_per_token([4, 1, 0]) == pytest.approx(single)


def test_what_cannot_be_scored_is_refused() -> None:
    statistics = statistics_of(np.ones((3, 2)), counts=[0, 2, 6])
    with pytest.raises(ValueError, match="3 masked tokens are not on this grid"):
        dpstride.score_masked(statistics, dpstride.even_unmasking(6, 2))
    with pytest.raises(ValueError, match="for 8 tokens, the statistics for 6"):
        dpstride.score_masked(statistics, dpstride.even_unmasking(8, 2))
    with pytest.raises(ValueError, match="2 of 6 counts"):
        dpstride.score_masked(statistics, dpstride.linear_times(2))
    with pytest.raises(ValueError, match="times must rise strictly from 0 to 1"):
        dpstride.binomial_costs(statistics, [0.0, 0.5])
