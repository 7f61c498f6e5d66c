"""Parts of a study against their definitions: plan, agreement, tables, and numbers beside the paper."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpstride import (
    ForwardProcess,
)
from dpstride.report.tables import Table
from dpstride.study.agreement import Agreement, agree
from dpstride.study.plan import ALL, Point, choosing_steps, make_plan
from paper_tables import PAPER, pattern

# --- plan ------------------------------------------------------------------------------------------------------------


def test_the_default_plan_is_what_two_hours_allow() -> None:
    plan = make_plan(ForwardProcess.linear(1000))
    scored = [point for point in plan.points if point.scored]
    assert {(point.budget, point.samples) for point in scored} == {(K, 1000) for K in (8, 16, 32, 64, 128, 1000)}
    assert sum(point.evaluations for point in scored) == 1000 * (3 * (8 + 16 + 32 + 64 + 128) + 1000)
    assert {point.name for point in plan.points} >= {"even-256", "quadratic-256", "dp-256", "all-1000"}
    assert 220 <= plan.choosing_times <= 258
    # 390 evaluations a second on two cores
    assert (plan.sampling_evaluations + plan.statistics_evaluations) / 390 < 2 * 3600
    # 4,000 steps: a quarter of the samples, unless more are asked for
    long = make_plan(ForwardProcess.cosine(4000))
    assert Point(ALL, 4000, 250, 250) in long.points
    assert Point(ALL, 4000, 7, 7) not in long.points
    assert Point(ALL, 4000, 70, 70) in make_plan(ForwardProcess.cosine(4000), all_samples=70).points
    assert 220 <= long.choosing_times <= 258


def test_short_grids_have_the_budgets_that_they_can() -> None:
    plan = make_plan(ForwardProcess.linear(10), samples=5, budgets=[8, 10])
    assert {point.name for point in plan.points} == {"even-8", "quadratic-8", "dp-8", "all-10"}
    # Ten of all steps are drawn to be looked at, and as many measured as of the strides.
    assert Point(ALL, 10, 10, 5) in plan.points
    shortest = make_plan(ForwardProcess.linear(8)).points
    assert {point.name for point in shortest if point.scored} >= {"dp-2", "dp-4", "all-8"}
    with pytest.raises(ValueError, match="No path has more than T = 20 steps, so none has 64"):
        make_plan(ForwardProcess.linear(20), budgets=[8, 20, 64])
    with pytest.raises(ValueError, match=r"All steps cannot have more samples \(40\) than the strides \(20\)"):
        make_plan(ForwardProcess.linear(20), samples=20, all_samples=40)
    assert make_plan(ForwardProcess.linear(20), drawn=False).points == ()
    assert not any(point.scored for point in make_plan(ForwardProcess.linear(50), scored=False).points)
    with pytest.raises(ValueError, match="Budgets must be at least 1 step, not 0"):
        make_plan(ForwardProcess.linear(20), budgets=[0])
    with pytest.raises(ValueError, match="at least 2 samples, not 1"):
        make_plan(ForwardProcess.linear(20), samples=1)


@pytest.mark.parametrize("process", [ForwardProcess.cosine(4000), ForwardProcess.rectified_flow(3000)])
def test_times_that_choose_cover_the_grid(process: ForwardProcess) -> None:
    steps = choosing_steps(process, 200)
    assert (steps[0], steps[-1]) == (1, process.T)
    assert 150 <= len(steps) <= 202
    logsnr = np.log(np.maximum((process.f[steps] / process.g[steps]) ** 2, 1e-8))
    whole = np.log((process.f[1] / process.g[1]) ** 2) - np.log(1e-8)
    # No gap in log-SNR is wider than an even division of its range, unless the grid itself has that gap.
    own = np.diff(np.log(np.maximum((process.f[1:] / process.g[1:]) ** 2, 1e-8)))
    assert np.abs(np.diff(logsnr)).max() <= max(2.5 * whole / 200, np.abs(own).max() * 1.001)


# --- agreement -------------------------------------------------------------------------------------------------------


def test_rank_correlation_is_by_its_definition() -> None:
    points = [(8, 6.0, 30.0), (8, 5.0, 31.0), (16, 4.0, 20.0), (16, 4.5, 10.0), (32, 3.9, 10.0)]
    found = agree(points)
    # Ranks of bits/dim 5 4 2 3 1, of distances 4 5 3 1.5 1.5 (a tie): Pearson's correlation of the two.
    a, b = np.array([5, 4, 2, 3, 1.0]), np.array([4, 5, 3, 1.5, 1.5])
    expected = ((a - 3) * (b - 3)).sum() / math.sqrt(((a - 3) ** 2).sum() * ((b - 3) ** 2).sum())
    assert found.correlation == pytest.approx(expected)
    assert (found.points, found.pairs, found.same_order) == (5, 2, 0)
    rising = [(K, 1.0 + 1.0 / K, 3.0 + 1.0 / K) for K in (1, 2, 4)]
    assert agree(rising).correlation == pytest.approx(1.0)
    assert math.isnan(agree(rising[:2]).correlation)
    assert math.isnan(agree([(1, 2.0, 3.0)] * 4).correlation)


@pytest.mark.parametrize(
    ("agreement", "verdict"),
    [
        (Agreement(0.95, 16, 14, 15), "For this model the two agree."),
        (Agreement(0.95, 16, 9, 15), "For this model the two agree in part."),
        (Agreement(0.95, 16, 5, 15), "For this model the two do not agree."),
        (Agreement(0.1, 16, 14, 15), "For this model the two do not agree."),
        (Agreement(-0.8, 4, 0, 0), "For this model the two do not agree."),
        (Agreement(math.nan, 2, 0, 0), "too few points"),
    ],
)
def test_the_sentence_says_whether_they_agree(agreement: Agreement, verdict: str) -> None:
    sentence = agreement.sentence("the FID")
    assert verdict in sentence
    assert "the FID" in sentence
    if agreement.pairs:
        assert f"{agreement.same_order} of {agreement.pairs} pairs" in sentence


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_is_the_same_in_three_ways() -> None:
    table = Table(
        "a & b_c", ("steps", "8", "all 10"), (("DP", ((1.23456, 0.01), None)), ("x%", ("text", (2.0, math.nan))))
    )
    assert table.text().splitlines() == [
        "a & b_c",
        "",
        "steps              8  all 10",
        "DP     1.235 ± 0.010        ",
        "x%              text   2.000",
    ]
    assert table.markdown().splitlines() == [
        "**a & b_c**",
        "",
        "| steps | 8 | all 10 |",
        "|---|---:|---:|",
        "| DP | 1.235 ± 0.010 |  |",
        "| x% | text | 2.000 |",
    ]
    latex = table.latex()
    assert r"\caption{a \& b\_c}" in latex
    assert r"DP & $1.235 \pm 0.010$ &  \\" in latex
    assert r"x\% & text & $2.000$ \\" in latex
    assert latex.count("{") == latex.count("}")


# --- beside the paper ------------------------------------------------------------------------------------------------


def test_the_papers_numbers_are_those_of_the_method_page() -> None:
    """Typed twice, from the paper, by different hands."""
    page = (Path(__file__).parents[2] / "docs" / "method.md").read_text(encoding="utf-8")
    printed = [
        [float(cell) for cell in re.findall(r"\d\.\d\d", line)]
        for line in page.splitlines()
        if re.match(r"\|.*\| (even|quadratic|DP) \|", line)
    ]
    ours = [
        [*PAPER[key].rows[stride], *([PAPER[key].all_steps] if stride == "even" else [])]
        for key in ("simple", "vlb", "hybrid", "hybrid-imagenet")
        for stride in ("even", "quadratic", "dp")
    ]
    assert printed == ours


def test_a_pattern_that_differs_is_named() -> None:
    table = PAPER["simple"]
    assert "at every budget; 32 DP steps are within 0.1" in pattern(table, paper=True)
    swapped = replace(table, rows={**table.rows, "quadratic": (4.0, *table.rows["quadratic"][1:])})
    assert "at 16, 32, 64, 128, 256 steps" in pattern(swapped)
    close = replace(table, rows={**table.rows, "quadratic": (*table.rows["quadratic"][:-1], 3.716)})
    assert "at every budget (at 256 two of them are swapped by 0.004); 32 DP" in pattern(close)
    hurting = replace(table, all_steps=3.9)
    assert "DP at 32, 64, 128, 256 steps is better than all steps" in pattern(hurting)


def test_no_point_is_named_twice() -> None:
    points = make_plan(ForwardProcess.linear(1000)).points
    assert all(a.name != b.name for a, b in itertools.combinations(points, 2))
