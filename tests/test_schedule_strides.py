"""Even and quadratic strides against their definitions in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dpstride import (
    ForwardProcess,
    Schedule,
    even_stride,
    quadratic_ddim_stride,
    quadratic_stride,
)

# --- strides ----------------------------------------------------------------------------------------------------------


def half_up(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def strictly_increasing(steps: list[int]) -> list[int]:
    """The least strictly increasing whole numbers from 1 on that are nowhere below ``steps``.

    Number i is at least every earlier wish plus one for each place in between, and at least i; the largest of these does.
    """
    wishes = [0, *steps]
    return [max(wishes[j] + i - j for j in range(i + 1)) for i in range(1, len(wishes))]


def quadratic_by_definition(T: int, K: int, reach: Fraction) -> list[int]:
    return strictly_increasing([half_up(Fraction(i, K) ** 2 * reach * T) for i in range(1, K + 1)])


# 18, 50, 72 and 98 have budgets at which (i/K)²·T is exactly half-way, where floats round the wrong way.
@pytest.mark.parametrize("T", [1, 2, 3, 7, 10, 18, 50, 72, 98])
def test_strides_of_every_budget_are_their_definitions(T: int) -> None:
    process = ForwardProcess.linear(T)
    for K in range(1, T + 1):
        even = [half_up(Fraction(i * T, K)) for i in range(1, K + 1)]
        assert even_stride(process, K).steps == (*reversed(even), 0)
        quadratic = quadratic_by_definition(T, K, Fraction(1))
        assert quadratic_stride(process, K).steps == (*reversed(quadratic), 0)
        ddim = quadratic_by_definition(T, K, Fraction(4, 5))
        if ddim[-1] <= T:
            assert quadratic_ddim_stride(process, K).steps == (*reversed(ddim), 0)
        else:
            with pytest.raises(ValueError, match=f"no room for {K} different steps on a grid of {T}.*fewer steps"):
                quadratic_ddim_stride(process, K)


@given(T=st.integers(1, 4000), data=st.data())
def test_strides_have_their_budget_and_end_where_they_should(T: int, data: st.DataObject) -> None:
    K = data.draw(st.integers(1, T))
    process = ForwardProcess.rectified_flow(T)
    for stride in (even_stride(process, K), quadratic_stride(process, K)):
        assert stride.budget == K
        assert (stride.steps[0], stride.steps[-1]) == (T, 0)
    if (
        math.isqrt(T) // 2 >= K
    ):  # then even the first steps, (i/K)²·0.8·T, are more than 1 apart, and nothing is pushed up
        assert quadratic_ddim_stride(process, K).steps[0] == half_up(Fraction(4 * T, 5))


def test_all_steps_are_one_stride_under_either_name() -> None:
    process = ForwardProcess.cosine(40)
    everything = tuple(range(40, -1, -1))
    assert even_stride(process, 40).steps == quadratic_stride(process, 40).steps == everything


@pytest.mark.parametrize("make", [even_stride, quadratic_stride, quadratic_ddim_stride])
@pytest.mark.parametrize("budget", [0, -1, 11, 10**30, 2.0, True, "3", None])
def test_budgets_outside_the_grid_are_refused(make: Callable[..., Schedule], budget: Any) -> None:
    with pytest.raises(ValueError, match="budget must be a whole number of steps from 1 to T = 10, not"):
        make(ForwardProcess.linear(10), budget)


def test_a_numpy_budget_is_a_budget() -> None:
    assert quadratic_stride(ForwardProcess.linear(2000), np.int32(1999)).budget == 1999  # i²·T leaves 32 bits
