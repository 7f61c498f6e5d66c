"""Words of figures stay inside the picture and off its curves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpstride import compare, schedules_from
from dpstride.report.figures import draw_curves
from dpstride.report.race import draw_distances
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


def test_the_legend_of_a_race_hides_no_curve() -> None:
    """Nine names hid the winner's own distances."""
    race = small_race()
    axes, renderer = drawn(lambda axes: draw_distances(axes, race), (8.2, 4.2))
    legend, inside = axes.get_legend().get_window_extent(renderer), axes.get_window_extent(renderer)
    assert legend.x0 >= inside.x1 - 1.0
    assert legend.x1 <= axes.figure.bbox.x1
