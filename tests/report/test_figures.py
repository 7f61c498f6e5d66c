"""Words of figures stay inside the picture and off its curves."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpstride import compare, schedules_from
from dpstride.report.figures import draw_curves
from dpstride.report.race import draw_distances
from dpstride.report.study_figures import _draw_samples, _grid_size
from dpstride.study.results import StudyResults
from small_network import run
from small_race import small_race


def drawn(draw: Any, size: tuple[float, float]) -> tuple[Any, Any]:
    """The axes of a figure as `save_figure` lays it out, and what measures texts."""
    figure = Figure(figsize=size, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw(axes)
    canvas.draw()
    return axes, canvas.get_renderer()


def test_the_label_of_an_axis_that_is_cut_fits_into_the_figure() -> None:
    """It was cut itself: "cut at 28." at the upper edge."""
    comparison = compare(schedules_from(run()), run(seed=5))
    even = dict.fromkeys(comparison.curves["even"], (19_362.0, 3.0))
    far = replace(comparison, curves={**comparison.curves, "even": even})
    axes, renderer = drawn(lambda axes: draw_curves(axes, far), (6.4, 4.0))
    assert "cut at" in axes.get_ylabel()
    extent, figure = axes.yaxis.label.get_window_extent(renderer), axes.figure.bbox
    assert figure.x0 <= extent.x0
    assert figure.y0 <= extent.y0
    assert extent.y1 <= figure.y1


def test_an_axis_that_one_stride_would_ruin_is_cut() -> None:
    """Even strides of 19,362 bits/dim flattened all other curves to one line; within reason nothing is cut."""
    comparison = compare(schedules_from(run()), run(seed=5))
    values = [value for curve in comparison.curves.values() for value, _ in curve.values()]
    for worst in (19_362.0, math.inf):
        even = dict.fromkeys(comparison.curves["even"], (worst, 3.0))
        far = replace(comparison, curves={**comparison.curves, "even": even})
        axes, _ = drawn(partial(draw_curves, comparison=far), (6.4, 4.0))
        low, high = axes.get_ylim()
        best = [value for value, _ in comparison.curves["dp"].values()]
        assert low < min(best)
        assert high < min(best) + 10 * (max(values) - min(values))
        assert high - low < 10 * (max(best) - min(best))  # what is left can be read
    axes, _ = drawn(lambda axes: draw_curves(axes, comparison), (6.4, 4.0))
    assert "cut" not in axes.get_ylabel()


def test_the_legend_of_a_race_hides_no_curve() -> None:
    """Nine names hid the winner's own distances."""
    race = small_race()
    axes, renderer = drawn(lambda axes: draw_distances(axes, race), (8.2, 4.2))
    legend, inside = axes.get_legend().get_window_extent(renderer), axes.get_window_extent(renderer)
    assert legend.x0 >= inside.x1 - 1.0
    assert legend.x1 <= axes.figure.bbox.x1


def test_the_title_above_samples_fits_into_the_figure() -> None:
    """A name as long as "my_package.my_model:denoiser" cut it at the edge."""
    results = StudyResults.load(Path(__file__).parents[2] / "docs" / "study" / "fashion-simple" / "results.json")
    named = replace(results, model={**results.model, "name": "my_package.my_model:denoiser"})
    rows = [
        ("real images", np.zeros((10, 1, 4, 4), np.uint8)),
        ("32 steps, quadratic", np.zeros((10, 1, 4, 4), np.uint8)),
    ]
    figure = Figure(figsize=_grid_size(rows), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    _draw_samples(figure, rows, named)
    canvas.draw()
    extent = figure.axes[0].title.get_window_extent(canvas.get_renderer())
    assert figure.bbox.x0 <= extent.x0
    assert extent.x1 <= figure.bbox.x1
