"""Stage 8. Tables for the terminal."""

from __future__ import annotations

from ..evaluate.comparison import Comparison

NAMES = {"even": "even stride", "quadratic": "quadratic stride", "dp": "DP stride"}


def comparison_table(comparison: Comparison, budgets: list[int] | None = None) -> str:
    """Held-out bits/dim by budget, one line per stride with its standard errors below."""
    columns = budgets or comparison.table_budgets
    names = [str(budget) for budget in columns]
    if columns[-1] == comparison.T:
        names[-1] = f"all {comparison.T}"
    width = max(8, *(len(name) + 1 for name in names))
    lines = ["bits/dim, held-out".ljust(20) + "".join(name.rjust(width) for name in names)]
    for stride, curve in comparison.curves.items():
        lines.append(NAMES[stride].ljust(20) + "".join(f"{curve[budget][0]:.3f}".rjust(width) for budget in columns))
        lines.append("".ljust(20) + "".join(f"±{curve[budget][1]:.3f}".rjust(width) for budget in columns))
    return "\n".join(lines)
