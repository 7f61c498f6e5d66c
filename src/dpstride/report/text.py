"""Stage 8. Tables for the terminal."""

from __future__ import annotations

from .. import strides
from ..evaluate.comparison import Comparison
from ..options import BEST, COMPARED_STRIDES

NAMES = {name: strides.find(name).words for name in COMPARED_STRIDES} | {BEST: "DP stride"}


def comparison_table(comparison: Comparison, budgets: list[int] | None = None) -> str:
    """Held-out bits/dim by budget: a line per stride, its standard errors below, and the share due to interpolation."""
    columns = budgets or comparison.table_budgets
    names = [str(budget) for budget in columns]
    if columns[-1] == comparison.T:
        names[-1] = f"all {comparison.T}"
    rows = [("bits/dim, held-out", names)]
    for stride, curve in comparison.curves.items():
        rows.append((NAMES[stride], [f"{curve[budget][0]:.3f}" for budget in columns]))
        rows.append(("", [f"±{curve[budget][1]:.3f}" for budget in columns]))
        if comparison.interpolation:
            errors = comparison.interpolation[stride]
            rows.append(("  of it interpolation", [f"±{errors[budget]:.3f}" for budget in columns]))
    width = max(8, *(len(cell) + 1 for _, cells in rows for cell in cells))
    return "\n".join(
        label.ljust(22 if comparison.interpolation else 20) + "".join(cell.rjust(width) for cell in cells)
        for label, cells in rows
    )
