"""The solver against what it is defined by: every path there is, and the plain recurrence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstride.solver import Costs, Lines, Solution, recurrence, solve, solve_lines
from dpstride.solver.paths import StoredPaths

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """As much of StepCosts as the solver uses: its Protocol, and nothing of diffusion."""

    L: Array
    pairs: Array | None = None
    triples: Array | None = None
    lines: Lines | None = None
    pairs_rule: str = "It takes two to walk here."
    unit: str = "steps of a walk"
    scored: bool = True

    def path_bpd(self, path: Sequence[int], cost: float | None = None) -> float:
        assert len(path) >= 2
        assert cost is not None
        return 2.0 * cost

    def schedule(self, path: Sequence[int], cost: float | None = None, stride: str = "") -> object:
        assert stride == "dp"
        return tuple(path), cost


def table_is_enough(table: Table) -> Costs:
    return table  # a type checker reads this


def paths_of(T: int, K: int) -> Iterator[tuple[int, ...]]:
    """All paths of K steps, by first step, then second, …, smallest s first: the order of the tie rule."""
    return ((T, *inner, 0) for inner in sorted(inner[::-1] for inner in itertools.combinations(range(1, T), K - 1)))


def path_cost(L: Array, path: tuple[int, ...] | list[int], pairs: Array | None = None) -> float:
    """The sum in the recurrence's own order, from 0 up, so that equal sums are equal floats."""
    if pairs is not None:
        return sum((L[t, s] for s, t in itertools.pairwise(path[-3::-1])), pairs[path[-3], path[-2]])
    return sum((L[t, s] for s, t in itertools.pairwise(path[::-1])), 0.0)


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
            with pytest.raises(ValueError, match=rf"between 1 and 5 \(T = 5\), but {K} was asked for"):
                method(K)
    with pytest.raises(ValueError, match=r"max_budget = 3 was solved for\), but 4 .* Solve again with a larger"):
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


def lines_like_a_model(rng: np.random.Generator, T: int, noise: float) -> tuple[Array, Array, Array]:
    """snr from 1e7 down, E Σ e² that rises with t but for the noise, and a decoder that gets worse with t."""
    snr = np.concatenate(([np.inf], np.geomspace(1e7, 1e-4, T)))
    M = 60 / (1 + 0.05 * snr) * np.exp(noise * rng.normal(size=T + 1))
    return snr, M, 3000 + 1500 * np.log1p(100 * M)


def table_of_lines(snr: Array, M: Array, decoder: Array) -> Array:
    L = np.full((len(snr), len(snr)), np.inf)
    for t in range(1, len(snr)):
        L[t, 1:t] = 0.5 * (snr[1:t] - snr[t]) * M[t]
    L[1:, 0] = decoder[1:]
    return L


@pytest.mark.parametrize("noise", [0.0, 1e-9, 0.01, 0.5, 3.0])
@pytest.mark.parametrize("T", [1, 2, 3, 17, 400])
def test_lines_have_the_costs_of_their_table(T: int, noise: float) -> None:
    lines = lines_like_a_model(np.random.default_rng(T), T, noise)
    L = table_of_lines(*lines)
    solution, expected = solve(Lines(*lines), T), solve(L)
    np.testing.assert_allclose(solution.costs[1:], expected.costs[1:], rtol=1e-12)
    for K in range(1, T + 1):
        assert path_cost(L, solution.path(K)) == pytest.approx(solution.cost(K), rel=1e-13)


def test_lines_break_ties_as_the_table_does() -> None:
    """In small integers every sum is exact, so ties are true ties: equal slopes, concurrent lines, M = 0 and all."""
    rng = np.random.default_rng(12)
    for _ in range(300):
        T = int(rng.integers(1, 40))
        snr = np.sort(rng.integers(0, rng.choice([3, 50]), T + 1).astype(float))[::-1].copy()
        M = 2.0 * rng.integers(0, rng.choice([2, 20]), T + 1)
        decoder = rng.integers(0, 30, T + 1).astype(float)
        decoder[rng.random(T + 1) < 0.3] = np.inf
        decoder[T] = 10.0
        solution, expected = solve(Lines(snr, M, decoder), T), solve(table_of_lines(snr, M, decoder))
        np.testing.assert_array_equal(solution.costs, expected.costs)
        for K in np.flatnonzero(np.isfinite(expected.costs)):
            assert solution.path(K) == expected.path(K)


def test_lines_with_many_points() -> None:
    T = 70_000  # argmins no longer fit in 16 bits
    lines = lines_like_a_model(np.random.default_rng(2), T, noise=0.1)
    snr, M, decoder = lines
    solution = solve(Table(np.empty(0), lines=Lines(*lines)), 12)
    for K in (1, 2, 12):
        path = solution.path(K)
        steps = list(itertools.pairwise(path[:-1]))
        cost = decoder[path[-2]] + sum(0.5 * (snr[s] - snr[t]) * M[t] for t, s in steps)
        assert cost == pytest.approx(solution.cost(K), rel=1e-13)
    assert max(solution.path(12)[1:]) < T
    assert solution.schedule(2) == (tuple(solution.path(2)), solution.cost(2))
    # The two-step optimum by trying every point.
    tried = decoder[1:T] + 0.5 * (snr[1:T] - snr[T]) * M[T]
    assert solution.cost(2) == pytest.approx(tried.min(), rel=1e-14)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"levels": [[9, 3, 1]]}, r"levels must be one row .* shape is \(1, 3\)"),
        ({"weights": [1.0]}, r"weights must be one row \[T\+1\] with T >= 1"),
        ({"weights": [0, 1, 1, 1]}, r"one grid, but have lengths \{'levels': 3, 'weights': 4, 'last': 3\}"),
        ({"levels": [9, 1, 3]}, r"levels must not rise with t; .* levels\[1\] = 1\.0"),
        ({"levels": [9, math.inf, 3]}, r"levels must be finite and not negative, but levels\[1\] = inf"),
        ({"levels": [math.inf, math.inf, math.inf]}, r"levels must be finite and not negative, but levels\[1\] = inf"),
        ({"levels": [9, 3, -1]}, r"levels must be finite and not negative, but levels\[2\] = -1\.0"),
        ({"weights": [0, 1, -1]}, r"weights must be finite and not negative, but weights\[2\] = -1\.0"),
        ({"weights": [0, math.nan, 1]}, r"weights\[1\] = nan"),
        ({"last": [0, math.nan, 1]}, r"last must be finite, or inf .* last\[1\] = nan"),
        ({"last": [0, 1, -math.inf]}, r"last\[2\] = -inf"),
        ({"last": [0, math.inf, math.inf]}, "Every path from T = 2 to 0 with at most 2 steps has infinite cost"),
        ({"max_budget": 3}, "max_budget must lie between 1 and T = 2, but is 3"),
    ],
)
def test_lines_that_are_none_are_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "levels": [math.inf, 3, 1],
        "weights": [0, 1, 1],
        "last": [0, 1, 1],
        "max_budget": 2,
    }
    assert solve_of(arguments).path(2) == [2, 1, 0]
    with pytest.raises(ValueError, match=message):
        solve_of({**arguments, **change})


def solve_of(arguments: dict[str, Any]) -> Solution:
    return solve(Lines(*(arguments[name] for name in ("levels", "weights", "last"))), arguments["max_budget"])


def test_the_old_name_of_lines_works_and_warns() -> None:
    lines = lines_like_a_model(np.random.default_rng(5), 30, 0.1)
    with pytest.warns(DeprecationWarning, match="solve_lines is deprecated"):
        old = solve_lines(*lines, 9)
    np.testing.assert_array_equal(old.costs, solve(Lines(*lines), 9).costs)


def test_lines_are_their_table() -> None:
    lines = Lines(*lines_like_a_model(np.random.default_rng(6), 30, 0.1))
    expected = table_of_lines(lines.levels, lines.weights, lines.last)  # type: ignore[arg-type]
    np.testing.assert_array_equal(lines.table(), expected)
    t, s = np.array([30, 12, 5]), np.array([12, 5, 0])
    np.testing.assert_array_equal(lines.costs(t, s), expected[t, s])


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
