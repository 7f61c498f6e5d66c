"""Schedules and sets of them: paths, options, fitted numbers, and how they show themselves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstride import (
    ForwardProcess,
    Schedule,
    ScheduleSet,
    elbo_costs,
    even_stride,
    quadratic_stride,
    schedules_from,
    solve,
)
from dpstride.fitted import Fitted
from gaussian import ideal_statistics
from schedule_sets import set_of

# --- one schedule -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [(), (0,), (5,), (5, 0, 0), (5, 3, 3, 0), (0, 5), (5, 1), (6, 0), (3, 5, 0), (5, -1), (5, 2.5, 0)],
)
def test_a_path_must_fall_to_0(steps: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="steps must"):
        Schedule(ForwardProcess.linear(5), steps)


def test_fitted_numbers_belong_to_one_grid() -> None:
    with pytest.raises(ValueError, match=r"fitted.decoder_variance must have one number per grid index, 6 of them"):
        Schedule(ForwardProcess.linear(5), (5, 0), fitted=Fitted(np.ones(6), np.ones(5)))


def test_times_are_those_of_the_grid() -> None:
    flow = ForwardProcess.rectified_flow(times=[0.0, 0.1, 0.4, 1.0])
    assert Schedule(flow, (3, 1, 0)).times == (1.0, 0.1, 0.0)
    thinned = ForwardProcess.linear(100).subset([20, 50, 100])
    assert Schedule(thinned, (3, 1, 0)).times == (100.0, 20.0, 0.0)  # training steps, not indices of the thinned grid


def test_best_budget_is_the_least_one_of_least_cost() -> None:
    assert set_of({1: 5.0, 2: 3.0, 3: 2.0, 4: 2.0, 5: 2.5}).best_budget == 3
    assert set_of({4: 1.0, 2: 4.0, 8: 0.5}).best_budget == 8
    assert set_of({1: None, 2: 4.0}).best_budget == 2


def test_within_is_the_fewest_steps_near_the_best_budget() -> None:
    schedules = set_of({1: 5.0, 2: 3.0, 4: 2.1, 8: 2.0})
    assert [schedules.within(tolerance) for tolerance in (0.0, 0.05, 0.11, 1.0, 3.0)] == [8, 8, 4, 2, 1]
    assert [set_of({1: 5.0, 2: 1.05, 4: 1.0, 8: 2.0}).within(tolerance) for tolerance in (0.0, 0.1)] == [4, 2]
    with pytest.raises(ValueError, match=r"tolerance must be 0 or more bits/dim, not -0.1"):
        schedules.within(-0.1)


def test_a_missing_budget_is_named_with_those_there_are() -> None:
    schedules = set_of({1: None, 2: None, 3: None, 7: None, 9: None, 10: None})
    assert schedules.budgets == [1, 2, 3, 7, 9, 10]
    assert 7 in schedules
    assert [schedule.budget for schedule in schedules] == schedules.budgets
    with pytest.raises(
        ValueError,
        match=r"no schedule of 4 steps here; budgets are 1 to 3, 7, 9 to 10\..*\(max_budget=, --max-budget\)",
    ):
        schedules[4]
    with pytest.raises(ValueError, match=r"no schedule of 11 steps here.*; no path has more than T = 10\."):
        schedules[11]


def test_schedules_of_different_kinds_make_no_set() -> None:
    process = ForwardProcess.linear(10)
    even = even_stride(process, 3)
    for other in (
        quadratic_stride(process, 4),
        even_stride(ForwardProcess.cosine(10), 4),
        dataclasses.replace(even_stride(process, 4), options={"variance": "upper"}),
        dataclasses.replace(even_stride(process, 4), fitted=Fitted(np.ones(11))),
    ):
        with pytest.raises(ValueError, match="must share process, stride, options and fitted numbers"):
            ScheduleSet.of([even, other])
    with pytest.raises(ValueError, match="different budgets"):
        ScheduleSet.of([even, even])
    with pytest.raises(ValueError, match="at least one schedule"):
        ScheduleSet.of([])


def test_adopt_gives_a_stride_the_options_of_the_set() -> None:
    process = ForwardProcess.linear(10)
    schedules = schedules_from(ideal_statistics(process, [0.0, 0.1], [1.0, 0.5]), "optimal", "optimal")
    adopted = schedules.adopt(even_stride(process, 4))
    assert adopted.steps == even_stride(process, 4).steps
    assert adopted.stride == "even"
    assert adopted.options == {"variance": "optimal", "decoder": "optimal", "cdf": "exact"}
    assert adopted.fitted is schedules.fitted
    with pytest.raises(ValueError, match="to another process than this set"):
        schedules.adopt(even_stride(ForwardProcess.cosine(10), 4))


def test_a_path_made_by_hand_says_so_wherever_it_is_shown_or_saved(tmp_path: Path) -> None:
    process = ForwardProcess.linear(10)
    costs = elbo_costs(ideal_statistics(process, [0.0, 0.1], [1.0, 0.5]))
    hand = Schedule(process, (10, 4, 0))
    hand.save(tmp_path / "hand.json")
    assert json.loads((tmp_path / "hand.json").read_text())["stride"] == "given"
    sets = (ScheduleSet.of([hand]), ScheduleSet(process, {2: ((10, 4, 0), None, None)}))
    for each in (hand, *sets, sets[0][2], Schedule.load(tmp_path / "hand.json"), costs.schedule((10, 4, 0))):
        assert each.stride == "given"
        assert "path made by hand" in each._repr_html_()
    assert hand.plot().get_suptitle() == "2 steps, path made by hand"
    # What was solved is not.
    for solved in (solve(costs).schedule(2), schedules_from(ideal_statistics(process, [0.0], [1.0]))):
        assert solved.stride == "dp"
        assert "DP stride" in solved._repr_html_()


def test_files_of_version_0_1_keep_the_stride_that_they_name(tmp_path: Path) -> None:
    Schedule(ForwardProcess.linear(10), (10, 4, 0), stride="dp").save(tmp_path / "old.json")
    assert Schedule.load(tmp_path / "old.json").stride == "dp"


def test_they_show_themselves_in_a_line() -> None:
    schedules = set_of({1: 5.0, 2: 3.0, 3: 2.0, 8: 1.0})
    assert repr(schedules).endswith("4 schedules, of 1 to 3, 8 steps>")
    assert "3 steps" in repr(schedules[3])
    assert "2.0000 bits/dim predicted" in repr(schedules[3])
    assert "…, 0" in repr(schedules[8])
    assert max(map(len, (repr(schedules), repr(schedules[8])))) < 120
