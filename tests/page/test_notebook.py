"""Results in a notebook: what figures show and tables say is what the objects hold."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import HOSTILE, T, formula_statistics
from matplotlib.figure import Figure
from PIL import Image

from dpstride import Denoiser, ForwardProcess, ScheduleSet, elbo_costs, even_stride, schedules_from, solve
from dpstride.evaluate.comparison import Comparison


@pytest.fixture(scope="module")
def schedules() -> ScheduleSet:
    return schedules_from(formula_statistics(ForwardProcess.linear(40), 0), decoder="optimal")


@pytest.fixture(scope="module")
def comparison(demo: Path) -> Comparison:
    return Comparison.load(demo / "comparison.json")


def rows_of(markup: str) -> list[list[str]]:
    """Cells of a table, read as strict markup; whatever is not escaped breaks it or adds an element."""
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    assert {element.tag for element in root.iter()} <= {
        "div",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "p",
    }
    return [[cell.text or "" for cell in row] for row in root.iter("tr")]


def shown(figure: Any) -> Figure:
    """The figure, after a notebook has drawn it."""
    assert isinstance(figure, Figure)
    with Image.open(io.BytesIO(figure._repr_png_())) as image:  # type: ignore[attr-defined]
        assert min(image.size) > 150
    return figure


def test_figures_need_no_pyplot_and_are_not_kept(schedules: ScheduleSet) -> None:
    import matplotlib.pyplot as plt

    schedules.plot()
    assert plt.get_fignums() == []


def test_a_set_plots_its_predictions_and_paths(schedules: ScheduleSet) -> None:
    left, right = shown(schedules.plot()).axes
    (line,) = left.lines
    assert line.get_xdata() == pytest.approx(schedules.budgets)
    assert line.get_ydata() == pytest.approx([schedules[K].bpd for K in schedules.budgets])
    assert [tuple(row.get_xdata()) for row in right.lines] == [schedules[K].times for K in (2, 4, 8, 16, 32)]
    unscored = ScheduleSet.of([even_stride(schedules.process, 5)])
    left, right = shown(unscored.plot()).axes
    assert left.texts[0].get_text() == "These schedules were not scored."
    assert tuple(right.lines[0].get_xdata()) == unscored[5].times


def test_a_schedule_plots_its_steps(schedules: ScheduleSet) -> None:
    above, below = shown(schedules[7].plot()).axes
    index, snr = ([segment[0][0] for segment in axes.collections[0].get_segments()] for axes in (above, below))
    assert index == list(schedules[7].steps)
    assert snr == pytest.approx(schedules.process.log_snr[list(schedules[7].steps[:-1])])
    assert below.xaxis_inverted()  # clean data left in both
    assert not above.xaxis_inverted()


def test_a_solution_plots_costs_with_or_without_a_table() -> None:
    costs = elbo_costs(formula_statistics(ForwardProcess.linear(12), 0), decoder="respaced")
    scored, plain = solve(costs), solve(np.tril(np.arange(169.0).reshape(13, 13), -1))
    for solution, values in (
        (scored, {K: scored.bpd(K) for K in range(2, 13)}),  # one step is undefined with this decoder
        (plain, {K: plain.cost_nats(K) for K in range(1, 13)}),
    ):
        left, right = shown(solution.plot()).axes
        assert dict(zip(left.lines[0].get_xdata(), left.lines[0].get_ydata(), strict=True)) == pytest.approx(values)
        assert [list(row.get_xdata()) for row in right.lines] == [solution.path(K) for K in (2, 4, 8)]
        rows = rows_of(solution._repr_html_())
        budgets = [K for K in (1, 2, 4, 8, 12) if K in values]
        assert [int(steps) for steps, _ in rows[1:]] == budgets
        assert [float(cost) for _, cost in rows[1:]] == pytest.approx([values[K] for K in budgets], rel=1e-3)
        assert f"Best: {solution.best_budget} step" in solution._repr_html_()


def test_a_comparison_plots_every_stride_and_tables_its_numbers(comparison: Comparison) -> None:
    (axes,) = shown(comparison.plot()).axes
    for line, (_, curve) in zip(axes.lines, comparison.curves.items(), strict=False):
        assert line.get_ydata() == pytest.approx([curve[K][0] for K in sorted(curve)])
    head, *rows = rows_of(comparison._repr_html_())
    assert head == ["steps", "8", "16", "32", f"all {T}"]
    for (name, *cells), (stride, curve) in zip(rows, comparison.curves.items(), strict=True):
        assert name.lower().startswith(stride)
        assert cells == [f"{curve[K][0]:.3f} ± {curve[K][1]:.3f}" for K in (8, 16, 32, T)]
    assert comparison.sentence() in comparison._repr_html_()
    assert "need not give the best samples" in comparison._repr_html_()


def test_tables_of_schedules(schedules: ScheduleSet) -> None:
    rows = dict(rows_of(schedules[32]._repr_html_()))
    assert rows["steps"] == "32"
    assert rows["bits/dim"] == f"{schedules[32].bpd:.3f} ± {schedules[32].standard_error:.3f}"
    assert [int(step) for step in rows["path"].removesuffix(", …, 0").split(", ")] == list(schedules[32].steps[:24])
    head, *entries = rows_of(schedules._repr_html_())
    assert head == ["steps", "bits/dim, predicted"]
    assert [int(K) for K, _ in entries] == [1, 2, 4, 8, 16, 32, 40]
    assert dict(rows_of(even_stride(schedules.process, 3)._repr_html_()))["bits/dim"] == "–"


def test_text_of_others_is_escaped(schedules: ScheduleSet, comparison: Comparison) -> None:
    hostile = replace(comparison, model={**comparison.model, "name": HOSTILE}, warnings=(HOSTILE,))
    for markup in (
        hostile._repr_html_(),
        replace(schedules, stride=HOSTILE)._repr_html_(),
        replace(schedules[4], stride=HOSTILE)._repr_html_(),
    ):
        rows_of(markup)
        assert "&lt;/script&gt;" in markup
        assert "<script" not in markup
    shown(hostile.plot())
    shown(replace(schedules[4], stride=HOSTILE + "$\\frac").plot())


# --- in a line ------------------------------------------------------------------------------------------------------------


def test_objects_say_in_a_line_what_they_are() -> None:
    process = ForwardProcess.linear(40)
    statistics = formula_statistics(process, 0)
    assert repr(process) == "<ForwardProcess linear, discrete, T = 40>"
    told = f"{statistics.samples} samples of {statistics.dims} dims, evaluated at all 40 steps, seed {statistics.seed}"
    assert repr(statistics) == f"<Statistics of {statistics.model['name']} on {told}>"
    some = replace(statistics, evaluated=np.arange(41) % 4 == 1)
    assert "evaluated at 10 of 40 steps" in repr(some)
    table = repr(elbo_costs(statistics, "posterior", "upper"))
    told = f"T = 40, {statistics.dims} dims, nats, without the prior: variance posterior, decoder upper"
    assert table.startswith(f"<StepCosts of linear, {told}")
    network = Denoiser(lambda x, time: 0 * x, process, predicts="x0", name="mine\n\x1b[31m")
    line = repr(network)
    assert line.startswith("<Denoiser mine")
    assert line.endswith(": predicts x0, posterior variance, linear, T = 40>")
    assert line.isprintable()
