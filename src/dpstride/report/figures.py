"""Stage 8. Figures as in the paper: bits/dim against budget, and the discovered steps of each budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import strides
from ..evaluate.comparison import Comparison
from ..options import BEST, COMPARED_STRIDES, GIVEN
from ..reading.text import printable
from ..runs.writing import atomic
from ..schedule import ScheduleSet
from .text import NAMES

# Okabe and Ito's palette, distinguishable with any colour vision; line styles differ too.
STYLES = {
    name: {"color": strides.find(name).colour, "linestyle": strides.find(name).line, "label": strides.find(name).words}
    for name in COMPARED_STRIDES
} | {BEST: {"color": "#009E73", "linestyle": "-", "label": NAMES[BEST]}}
# Height of the bits/dim axis in units of the loss at 8 steps, and the least such unit, bits/dim.
HEIGHTS, LEAST_HEIGHT = 20.0, 0.5
PATH_BUDGETS = (2, 4, 8, 16, 32, 64, 128, 256)


def save_figures(comparison: Comparison, schedules: ScheduleSet, folder: str | Path) -> list[Path]:
    """Write bits_per_dim and timesteps, each as .svg and .png, into ``folder``; return their paths."""
    size, target = (6.4, 4.0), Path(folder)
    return [
        *save_figure(target / "bits_per_dim", size, lambda figure: draw_curves(figure.add_subplot(), comparison)),
        *save_figure(target / "timesteps", size, lambda figure: draw_paths(figure.add_subplot(), schedules)),
    ]


def save_figure(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> list[Path]:
    """Save a figure drawn by ``draw`` as ``path``.svg and .png; the same figure gives the same files."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    files = [path.with_suffix(suffix) for suffix in (".svg", ".png")]
    with rc_context({"svg.hashsalt": path.name}):
        for target in files:
            with atomic(target) as file:
                kind = target.suffix[1:]
                figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return files


def draw_curves(axes: Any, comparison: Comparison) -> None:
    """Draw held-out bits/dim of every stride against budget."""
    for stride, curve in comparison.curves.items():
        budgets = sorted(curve)
        values = [curve[budget][0] for budget in budgets]
        errors = [curve[budget][1] for budget in budgets]
        axes.plot(budgets, values, linewidth=1.8, **STYLES[stride])
        axes.fill_between(
            budgets,
            [value - 2 * error for value, error in zip(values, errors, strict=True)],
            [value + 2 * error for value, error in zip(values, errors, strict=True)],
            color=STYLES[stride]["color"],
            alpha=0.15,
            linewidth=0,
        )
    most = comparison.budgets[-1]
    last = comparison.curves[BEST][most][0]
    best = min(value for value, _ in comparison.curves[BEST].values())
    first = next((budget for budget in comparison.budgets if budget >= 2), comparison.budgets[0])
    shown = [value for stride in comparison.curves if math.isfinite(value := comparison.curves[stride][first][0])]
    label = f"{'all ' if most == comparison.T else ''}{most:,} steps"
    axes.axhline(last, color="0.6", linewidth=0.8, zorder=0, label=label)
    axes.set_xscale("log", base=2)
    ticks = [K for K in (2**i for i in range(16)) if comparison.budgets[0] <= K < 0.75 * most]
    axes.set_xticks([*ticks, most], [*map(str, ticks), f"{most:,}"])
    axes.xaxis.minorticks_off()
    cut = ""
    if shown and math.isfinite(best) and max(shown) > best:
        height, most_shown = max(shown) - best, HEIGHTS * max(_few_steps(comparison) - best, LEAST_HEIGHT)
        if height > most_shown:  # a stride that is far off would flatten all curves to one line
            height, cut = most_shown, f"\n(cut at {best + most_shown:.3g})"
        axes.set_ylim(best - 0.05 * height, best + 1.05 * height)
    axes.set_xlabel("refinement steps K")
    axes.set_ylabel(f"bits/dim, held-out (band: ± 2 standard errors){cut}")
    # A model's name is foreign text: shown literally, neither as TeX ($…$) nor as control characters.
    title = f"{printable(comparison.model['name'], 60)}, {printable(comparison.options['variance'], 20)} variance"
    axes.set_title(title, fontsize=10, parse_math=False, usetex=False)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _few_steps(comparison: Comparison) -> float:
    """Bits/dim of the DP stride at 8 steps, or at the nearest budget."""
    curve = comparison.curves[BEST]
    return curve[min(comparison.budgets, key=lambda K: abs(K - 8))][0]


def draw_paths(axes: Any, schedules: ScheduleSet) -> None:
    """Draw the steps of some budgets, a row for each."""
    budgets = [budget for budget in PATH_BUDGETS if budget in schedules] or schedules.budgets[-1:]
    for row, budget in enumerate(budgets):
        times = schedules[budget].times
        axes.plot(times, [row] * len(times), "|", markersize=9, color=STYLES[BEST]["color"])
    axes.set_yticks(range(len(budgets)), [str(budget) for budget in budgets])
    axes.set_xlabel("time of the grid (0 is clean data)")
    axes.set_ylabel("refinement steps K")
    axes.set_title(f"Steps of the {stride_name(schedules.stride)}", fontsize=10, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)


def stride_name(stride: str) -> str:
    """A stride in words."""
    if stride == GIVEN:
        return "path made by hand"
    return STYLES[stride]["label"] if stride in STYLES else f"{printable(stride, 40)} stride"
