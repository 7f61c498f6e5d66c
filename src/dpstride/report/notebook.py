"""Stage 8. Results in a notebook: a figure from ``.plot()``, a small table if an object is the last line of a cell.

The methods of `Schedule`, `ScheduleSet`, `Solution` and `Comparison` only call these functions. Figures are made without
pyplot, so nothing is drawn twice or kept open; they display themselves. All text is escaped, since names of models are
foreign text.
"""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from ..evaluate.comparison import in_steps
from ..options import BEST
from ..reading.text import printable
from .figures import PATH_BUDGETS, STYLES, draw_curves, draw_paths, stride_name

if TYPE_CHECKING:
    from ..evaluate.comparison import Comparison
    from ..schedule import Schedule, ScheduleSet
    from ..solver import Solution

SHOWN_BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SHOWN_STEPS = 24


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows even if pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=120)
        return file.getvalue()


def _figure(width: float, height: float) -> ShownFigure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = ShownFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


# --- figures ----------------------------------------------------------------------------------------------------------


def plot_schedule(schedule: Schedule) -> ShownFigure:
    """Plot the path on the noise axis: grid index above, log-SNR below, clean data on the left in both."""
    figure = _figure(7.2, 2.4)
    colour = STYLES.get(schedule.stride, STYLES[BEST])["color"]
    log_snr = schedule.process.log_snr
    for axes, values, label in zip(
        figure.subplots(2, 1),
        (list(schedule.steps), [log_snr[step] for step in schedule.steps if math.isfinite(log_snr[step])]),
        ("grid index", "log-SNR (clean data, at infinity, left out)"),
        strict=True,
    ):
        axes.vlines(values, 0.0, 1.0, colors=colour, linewidth=1.4)
        axes.set_ylim(0.0, 1.0)
        axes.set_yticks([])
        axes.set_xlabel(label, fontsize=9)
        axes.spines[["top", "left", "right"]].set_visible(False)
        if label != "grid index":
            axes.invert_xaxis()
    figure.suptitle(f"{in_steps(schedule.budget)}, {stride_name(schedule.stride)}", fontsize=10, parse_math=False)
    return figure


def plot_schedules(schedules: ScheduleSet) -> ShownFigure:
    """Plot bits/dim predicted by the choosing data against budget, and the steps of some budgets."""
    figure = _figure(9.6, 3.8)
    left, right = figure.subplots(1, 2)
    known = [(K, *schedules.entries[K][1:]) for K in schedules.budgets if schedules.entries[K][1] is not None]
    if known:
        budgets, values, errors = zip(*known, strict=True)
        _draw_costs(left, budgets, values, errors=errors, label="bits/dim, predicted (band: ± 2 standard errors)")
    else:
        left.set_axis_off()
        left.text(0.5, 0.5, "These schedules were not scored.", ha="center", va="center")
    draw_paths(right, schedules)
    return figure


def plot_solution(solution: Solution) -> ShownFigure:
    """Plot the cost of the best path against budget, and the steps of some budgets."""
    figure = _figure(9.6, 3.8)
    left, right = figure.subplots(1, 2)
    budgets = _solved(solution)
    values, unit = _costs_of(solution, budgets)
    _draw_costs(left, budgets, values, label=unit)
    shown = [K for K in PATH_BUDGETS if K in budgets] or budgets[-1:]
    for row, K in enumerate(shown):
        path = solution.path(K)
        right.plot(path, [row] * len(path), "|", markersize=9, color=STYLES[BEST]["color"])
    right.set_yticks(range(len(shown)), [str(K) for K in shown])
    right.set_xlabel("grid index (0 is clean data)")
    right.set_ylabel("refinement steps K")
    right.spines[["top", "right"]].set_visible(False)
    return figure


def plot_comparison(comparison: Comparison) -> ShownFigure:
    """Plot held-out bits/dim of three strides against budget."""
    figure = _figure(6.4, 4.0)
    draw_curves(figure.add_subplot(), comparison)
    return figure


def _draw_costs(
    axes: Any,
    budgets: Sequence[int],
    values: Sequence[float],
    *,
    label: str,
    errors: Sequence[float | None] | None = None,
) -> None:
    colour = STYLES[BEST]["color"]
    axes.plot(budgets, values, color=colour, linewidth=1.8)
    if errors is not None:
        spread = [0.0 if error is None else 2.0 * error for error in errors]
        low, high = ([v + sign * s for v, s in zip(values, spread, strict=True)] for sign in (-1.0, 1.0))
        axes.fill_between(budgets, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("refinement steps K")
    axes.set_ylabel(label, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


# --- tables -----------------------------------------------------------------------------------------------------------


def schedule_html(schedule: Schedule) -> str:
    """HTML of a schedule: its properties, and its first steps."""
    steps = ", ".join(map(str, schedule.steps[:SHOWN_STEPS])) + (", …, 0" if len(schedule.steps) > SHOWN_STEPS else "")
    rows = [
        ("steps", str(schedule.budget)),
        ("bits/dim", _plus_minus(schedule.bpd, schedule.standard_error)),
        ("process", f"{schedule.process.name}, T = {schedule.process.T:,}"),
        ("path", steps),
    ]
    return _table(f"Schedule, {stride_name(schedule.stride)}", (), rows)


def schedules_html(schedules: ScheduleSet) -> str:
    """HTML of schedules: bits/dim of some budgets, and the best one."""
    shown = _some(schedules.budgets)
    rows = [(str(K), _plus_minus(*schedules.entries[K][1:])) for K in shown]
    process = f"{schedules.process.name}, T = {schedules.process.T:,}"
    title = f"{len(schedules):,} schedules, {stride_name(schedules.stride)}, {process}"
    return _table(title, ("steps", "bits/dim, predicted"), rows, f"Best: {in_steps(schedules.best_budget)}.")


def solution_html(solution: Solution) -> str:
    """HTML of a solution: cost of some budgets, and the best one."""
    budgets = _some(_solved(solution))
    values, unit = _costs_of(solution, budgets)
    form = ".3f" if solution.scored else ".6g"
    rows = [(str(K), f"{value:{form}}") for K, value in zip(budgets, values, strict=True)]
    title = f"Best paths of up to {in_steps(solution.max_budget)}, T = {solution.T:,}"
    return _table(title, ("steps", unit), rows, f"Best: {in_steps(solution.best_budget)}.")


def comparison_html(comparison: Comparison) -> str:
    """HTML of a comparison: the held-out table and the answer."""
    from ..evaluate.purpose import caveat
    from .text import NAMES

    columns = comparison.table_budgets
    rows = [(NAMES[stride], *(_plus_minus(*curve[K]) for K in columns)) for stride, curve in comparison.curves.items()]
    names = [f"all {K:,}" if K == comparison.T else f"{K:,}" for K in columns]
    title = f"{comparison.model['name']}: bits/dim, held-out"
    return _table(
        title,
        ("steps", *names),
        rows,
        " ".join([comparison.sentence(), caveat(comparison.options), *comparison.warnings]),
    )


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], below: str = "") -> str:
    """An HTML table, with all text escaped."""

    def line(texts: Sequence[str], tag: str, scope: str) -> str:
        first, *others = (html.escape(printable(text)) for text in texts)
        cells = "".join(f"<{tag} style='text-align:right'>{text}</{tag}>" for text in others)
        return f"<tr><th scope='{scope}' style='text-align:left'>{first}</th>{cells}</tr>"

    caption = f"<caption style='text-align:left'>{html.escape(printable(title))}</caption>"
    header = f"<thead>{line(head, 'th', 'col')}</thead>" if head else ""
    body = "".join(line(row, "td", "row") for row in rows)
    words = f"<p>{html.escape(printable(below, 2000))}</p>" if below else ""
    return f"<table>{caption}{header}<tbody>{body}</tbody></table>{words}"


def _plus_minus(value: float | None, error: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.3f}" + ("" if error is None or math.isnan(error) else f" ± {error:.3f}")


def _some(budgets: Sequence[int]) -> list[int]:
    return [K for K in SHOWN_BUDGETS if K in budgets and budgets[-1] > K] + [budgets[-1]]


def _solved(solution: Solution) -> list[int]:
    return [K for K in range(1, solution.max_budget + 1) if math.isfinite(solution.costs[K])]


def _costs_of(solution: Solution, budgets: Sequence[int]) -> tuple[list[float], str]:
    """Bits/dim if paths have them, else costs, and the unit in words."""
    if solution.scored:
        return [solution.bpd(K) for K in budgets], "bits/dim"
    return [solution.cost(K) for K in budgets], solution.unit
