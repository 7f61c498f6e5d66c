"""Lines against the table that they stand for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from all_paths import Array, Table, path_cost

from dpstride.solver import Lines, Solution, solve, solve_lines


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
