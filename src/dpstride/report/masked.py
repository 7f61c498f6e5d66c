"""Stage 8. Figures of masked diffusion: bits/token against rounds, and the share of masked tokens before each round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..masked.comparison import WORDS, MaskedComparison
from ..masked.schedule import MaskedScheduleSet
from ..masked.strides import RULES
from ..options import BEST
from .figures import PATH_BUDGETS, save_figure

GREEN = "#009E73"


def save_masked_figures(comparison: MaskedComparison, schedules: MaskedScheduleSet, folder: Path) -> list[Path]:
    """Write bits_per_token and rounds, each as .svg and .png, into ``folder``; return their paths."""
    return [
        *save_figure(
            folder / "bits_per_token", (6.4, 4.0), lambda figure: _draw_curves(figure.add_subplot(), comparison)
        ),
        *save_figure(folder / "rounds", (6.4, 4.0), lambda figure: _draw_rounds(figure.add_subplot(), schedules)),
    ]


def _draw_curves(axes: Any, comparison: MaskedComparison) -> None:
    for rule, curve in comparison.curves.items():
        colour, line = (GREEN, "-") if rule == BEST else (RULES[rule].colour, RULES[rule].line)
        budgets = sorted(curve)
        values, errors = zip(*(curve[budget] for budget in budgets), strict=True)
        axes.plot(budgets, values, color=colour, linestyle=line, linewidth=1.8, label=WORDS[rule])
        if rule == BEST:
            low, high = ([v + side * e for v, e in zip(values, errors, strict=True)] for side in (-2.0, 2.0))
            axes.fill_between(budgets, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set(xlabel="rounds K", ylabel="bits/token, held-out (band: ± 2 standard errors)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def _draw_rounds(axes: Any, schedules: MaskedScheduleSet) -> None:
    shown = [budget for budget in PATH_BUDGETS if budget in schedules] or schedules.budgets[-1:]
    for row, budget in enumerate(shown):
        shares = schedules[budget].times
        axes.plot(shares, [row] * len(shares), "|", markersize=9, color=GREEN)
    axes.set_yticks(range(len(shown)), [str(budget) for budget in shown])
    axes.set(xlabel="share of masked tokens when a round begins (0 is data)", ylabel="rounds K", xlim=(-0.02, 1.02))
    axes.spines[["top", "right"]].set_visible(False)
