"""The solver against what it is defined by: every path there is, and the plain recurrence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from all_paths import Array, Table, path_cost
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from dpstride.solver import Costs, Solution, recurrence, solve
from dpstride.solver.paths import StoredPaths


def table_is_enough(table: Table) -> Costs:
    return table  # a type checker reads this


def paths_of(T: int, K: int) -> Iterator[tuple[int, ...]]:
    """All paths of K steps, by first step, then second, …, smallest s first: the order of the tie rule."""
    return ((T, *inner, 0) for inner in sorted(inner[::-1] for inner in itertools.combinations(range(1, T), K - 1)))


def brute_force(L: Array, K: int, pairs: Array | None = None) -> tuple[float, tuple[int, ...]]:
    """The least cost, and the first path that has it."""
    return min(((path_cost(L, path, pairs), path) for path in paths_of(len(L) - 1, K)), key=lambda found: found[0])


def plain_recurrence(L: Array) -> tuple[Array, NDArray[np.int64]]:
    """Algorithm 1 with C[k − 1] where it prints C[k]."""
    T = len(L) - 1
    L = np.where(np.tri(T + 1, k=-1, dtype=bool), L, np.inf)
    C, D = np.full((T + 1, T + 1), np.inf), np.full((T + 1, T + 1), -1)
    C[0, 0] = 0.0
    for k in range(1, T + 1):
        total = C[k - 1][None, :] + L
        C[k], D[k] = total.min(axis=1), total.argmin(axis=1)
    return C, D


def plain_path(D: NDArray[np.int64], K: int) -> list[int]:
    path = [D.shape[1] - 1]
    for k in range(K, 0, -1):
        path.append(int(D[k, path[-1]]))
    return path


def random_table(rng: np.random.Generator, T: int, kind: str) -> Array:
    """Integer costs tie often and add without rounding; forbidden steps are inf; the rest holds what is never read."""
    match kind:
        case "real":
            L = rng.normal(size=(T + 1, T + 1))
        case "ties":
            L = rng.integers(-2, 3, size=(T + 1, T + 1)).astype(float)
        case "constant":
            L = np.ones((T + 1, T + 1))
        case _:
            raise ValueError(kind)
    L[rng.random(L.shape) < rng.choice([0.0, 0.2, 0.5])] = np.inf
    L[np.triu_indices(T + 1)] = rng.choice([0.0, np.inf, -np.inf, np.nan])
    return L


def check_against_brute_force(L: Array, pairs: Array | None = None) -> None:
    T = len(L) - 1
    first = 1 if pairs is None else 2
    expected = {K: brute_force(L, K, pairs) for K in range(first, T + 1)}
    if not any(math.isfinite(cost) for cost, _ in expected.values()):
        with pytest.raises(ValueError, match="has infinite cost"):
            solve(L if pairs is None else Table(L, pairs))
        return
    solution = solve(L if pairs is None else Table(L, pairs))
    for K, (cost, path) in expected.items():
        if math.isfinite(cost):
            found = solution.path(K)
            assert solution.cost(K) == pytest.approx(cost, rel=1e-14, abs=1e-14)
            assert path_cost(L, found, pairs) == solution.cost(K)
            if np.array_equal(L, np.round(L), equal_nan=True):
                assert tuple(found) == path
        else:
            with pytest.raises(ValueError, match=f"Every path of {K} steps has infinite cost"):
                solution.path(K)
    least = min(cost for cost, _ in expected.values())
    assert solution.cost(solution.best_budget) == pytest.approx(least, rel=1e-14, abs=1e-14)


@pytest.mark.parametrize("kind", ["real", "ties", "constant"])
def test_all_paths_of_thousands_of_random_tables(kind: str) -> None:
    rng = np.random.default_rng(5)
    for T in [*range(1, 7)] * 130 + [7, 8, 9] * 90:
        check_against_brute_force(random_table(rng, T, kind))


@pytest.mark.parametrize("kind", ["real", "ties"])
def test_all_paths_with_a_cost_for_the_last_two_steps_together(kind: str) -> None:
    rng = np.random.default_rng(6)
    for T in [*range(2, 7)] * 40 + [7, 8, 9] * 20:
        pairs, L = random_table(rng, T, kind), random_table(rng, T, kind)
        pairs[:, 0] = L[:, 0] = rng.choice([-np.inf, -1000.0, np.nan])
        check_against_brute_force(L, pairs)


cells = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6), st.just(math.inf))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_any_table(data: st.DataObject) -> None:
    T = data.draw(st.integers(1, 6))
    L = np.full((T + 1, T + 1), np.nan)
    for t in range(1, T + 1):
        L[t, :t] = data.draw(st.lists(cells, min_size=t, max_size=t))
    check_against_brute_force(L)


def check_against_plain_recurrence(L: Array, solution: Solution | None = None) -> None:
    C, D = plain_recurrence(L)
    solution = solution or solve(L)
    np.testing.assert_array_equal(solution.costs[1:], C[1 : solution.max_budget + 1, -1])
    for K in np.flatnonzero(np.isfinite(solution.costs)):
        assert solution.path(K) == plain_path(D, K)


@pytest.mark.parametrize("kind", ["real", "ties", "constant"])
def test_plain_recurrence_at_T_300(kind: str) -> None:
    check_against_plain_recurrence(random_table(np.random.default_rng(7), 300, kind))


def edges_of(size: int, *multiples: int) -> list[int]:
    return [m * size + d for m in multiples for d in (-1, 0, 1)]


@pytest.mark.parametrize(
    "T",
    sorted({*range(1, 20), *edges_of(recurrence.TILE, 1, 2, 4), recurrence.PANEL + 65}),
)
def test_plain_recurrence_at_the_edges_of_tiles(T: int) -> None:
    rng = np.random.default_rng(T)
    L = random_table(rng, T, "ties" if T % 2 else "real")
    L[1:, 0] = rng.integers(0, 9, T)
    check_against_plain_recurrence(L)


def test_pairs_at_the_edges_of_tiles() -> None:
    """With pairs[t2, t1] = L[t2, t1] + L[t1, 0] the answers are those of the plain table."""
    for T in (*range(2, 20), *edges_of(recurrence.TILE, 1, 2), 4 * recurrence.TILE + 2):
        L = random_table(np.random.default_rng(T), T, "ties")
        L[1:, 0] = L[T, 0] = L[T, 1] = 1.0
        pairs = L + L[:, 0]
        plain, paired = solve(L), solve(Table(L, pairs))
        np.testing.assert_array_equal(paired.costs[2:], plain.costs[2:])
        for K in np.flatnonzero(np.isfinite(paired.costs)):
            assert paired.path(K) == plain.path(K)


def test_the_number_of_threads_changes_nothing() -> None:
    L = np.abs(random_table(np.random.default_rng(9), 8 * recurrence.TILE + 70, "real"))
    answers = []
    for workers in (1, 2, 5):
        paths = StoredPaths.empty(len(L) - 1, 1, len(L) - 1)
        answers.append((recurrence.solve(L, L[:, 0], len(L) - 1, paths, workers), paths.D))
    for costs, D in answers[1:]:
        np.testing.assert_array_equal(costs, answers[0][0])
        np.testing.assert_array_equal(D, answers[0][1])


def test_fewer_budgets_are_the_same_answers() -> None:
    L = random_table(np.random.default_rng(8), 60, "ties")
    L[60, 0] = 50.0
    full = solve(L)
    for K in (1, 2, 11, 12, 13, 24, 25, 59):
        part = solve(L, max_budget=K)
        assert part.max_budget == K
        np.testing.assert_array_equal(part.costs, full.costs[: K + 1])
        for k in np.flatnonzero(np.isfinite(part.costs)):
            assert part.path(k) == full.path(k)


def test_a_cost_table_gives_bits_per_dim_and_schedules() -> None:
    table = Table(np.where(np.tri(6, k=-1) > 0, 2.0, np.inf))
    solution = solve(table, max_budget=4)
    assert (solution.T, solution.max_budget, solution.best_budget) == (5, 4, 1)
    assert solution.cost(3) == 6.0
    assert (solution.bpd(3), solution.unit) == (12.0, "steps of a walk")
    with pytest.warns(DeprecationWarning, match=r"not nats \(steps of a walk\) will be an error; use cost\(K\)"):
        assert solution.cost_nats(3) == 6.0
    assert solution.path(3) == [5, 2, 1, 0]
    assert solution.schedule(3) == ((5, 2, 1, 0), 6.0)


def test_numbers_of_other_types_are_converted() -> None:
    L = np.arange(36).reshape(6, 6) % 7
    for other in (L.tolist(), L.astype(np.float32), np.asfortranarray(L), L.astype(float)[::1, ::1]):
        assert solve(other).path(3) == solve(L.astype(float)).path(3)


@pytest.mark.parametrize(
    "L, message",
    [
        (np.zeros((3, 4)), r"square table .* shape is \(3, 4\)"),
        (np.zeros(3), r"square table .* shape is \(3,\)"),
        (np.zeros((1, 1)), r"at least one step \(T >= 1\)"),
        (np.zeros((3, 3), complex), "real numbers, but its dtype is complex128"),
        ([[0, 0, 0], [1, 0, 0], [1, math.nan, 0]], r"L\[2, 1\] = nan"),
        ([[0, 0, 0], [-math.inf, 0, 0], [1, 1, 0]], r"L\[1, 0\] = -inf"),
        ([[0, 0, 0], [1, 0, 0], [-1e308, 1, 0]], r"L\[2, 0\] = -1e\+308"),
        (
            [[0, 0, 0], [1, 0, 0], [math.inf, math.inf, 0]],
            "Every path from T = 2 to 0 with at most 2 steps has infinite",
        ),
    ],
)
def test_a_table_that_is_none_is_refused(L: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve(L)


def test_budgets_out_of_range_are_refused() -> None:
    L = np.ones((6, 6))
    for max_budget in (0, -1, 6):
        with pytest.raises(ValueError, match=f"max_budget must lie between 1 and T = 5, but is {max_budget}"):
            solve(L, max_budget=max_budget)
    solution = solve(L)
    for method in (solution.path, solution.cost_nats):
        for K in (0, -1, 6):
            with pytest.raises(ValueError, match=rf"between 1 and 5 \(T = 5\), not {K}"):
                method(K)
    with pytest.raises(ValueError, match=r"solved with max_budget = 3\), not 4\. Solve again with a larger"):
        solve(L, max_budget=3).path(4)


def test_a_budget_without_a_finite_path_names_those_that_have_one() -> None:
    L = np.full((8, 8), np.inf)
    L[7, 0] = L[7, 3] = L[3, 2] = L[2, 1] = L[1, 0] = L[7, 6] = L[6, 5] = L[5, 4] = L[4, 3] = 1.0
    solution = solve(L)
    assert [K for K in range(8) if np.isfinite(solution.costs[K])] == [1, 4, 7]
    with pytest.raises(ValueError, match=r"Every path of 5 steps has infinite cost\. .* finite path: 1, 4, 7\."):
        solution.path(5)
    L[7, 1] = L[7, 2] = 1.0
    with pytest.raises(ValueError, match=r"finite path: 1 to 4, 7\."):
        solve(L).cost_nats(6)


def test_one_step_is_undefined_with_pairs() -> None:
    ones = np.ones((4, 4))
    with pytest.raises(ValueError, match=r"Budget 1 is undefined\. It takes two to walk here\."):
        solve(Table(ones, ones)).cost(1)
    with pytest.raises(ValueError, match=r"T = 3 and max_budget = 1 leave only one step\. It takes two"):
        solve(Table(ones, ones), max_budget=1)
    with pytest.raises(ValueError, match="T = 1 and max_budget = 1 leave only one"):
        solve(Table(np.ones((2, 2)), np.ones((2, 2))))
    with pytest.raises(ValueError, match=r"shape of L, \(4, 4\), but has \(3, 3\)"):
        solve(Table(ones, np.ones((3, 3))))


def test_a_plain_array_has_neither_bits_per_dim_nor_schedules() -> None:
    solution = solve(np.ones((4, 4)))
    with pytest.raises(ValueError, match="bits/dim needs the prior"):
        solution.bpd(2)
    with pytest.raises(ValueError, match="A Schedule needs the grid's times"):
        solution.schedule(2)


def test_the_table_is_neither_changed_nor_needed_afterwards() -> None:
    L = random_table(np.random.default_rng(4), 40, "ties")
    L[40, 0] = 0.0
    before = L.copy()
    solution = solve(L)
    np.testing.assert_array_equal(L, before)
    assert L.flags.writeable
    path = solution.path(1)
    L[:] = np.nan
    assert solution.path(1) == path
    before.setflags(write=False)
    np.testing.assert_array_equal(solve(before).costs, solution.costs)
