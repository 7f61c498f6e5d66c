"""Compare our tables with the paper's (Watson, Ho, Norouzi and Chan 2021, Tables 1 and 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpstride.evaluate.comparison import STRIDES
from dpstride.reading.text import printable
from dpstride.report.text import NAMES
from dpstride.study.results import StudyResults

BUDGETS = (8, 16, 32, 64, 128, 256)
NEGLIGIBLE = 0.02  # bits/dim, the rounding of two printed numbers


@dataclass(frozen=True)
class Published:
    """Bits/dim of a model in the paper: one row per stride at 8 … 256 steps, and all ``T`` steps."""

    name: str
    T: int
    rows: Mapping[str, tuple[float, ...]]
    all_steps: float


PAPER = {
    "simple": Published(
        "CIFAR-10, L_simple",
        1000,
        {
            "even": (6.95, 6.15, 5.46, 4.91, 4.47, 4.14),
            "quadratic": (5.39, 4.86, 4.52, 3.84, 3.74, 3.73),
            "dp": (4.59, 3.99, 3.79, 3.74, 3.73, 3.72),
        },
        3.73,
    ),
    "vlb": Published(
        "CIFAR-10, L_vlb",
        4000,
        {
            "even": (6.20, 5.48, 4.89, 4.42, 4.03, 3.73),
            "quadratic": (4.89, 4.09, 3.58, 3.23, 3.09, 3.05),
            "dp": (4.20, 3.41, 3.17, 3.08, 3.05, 3.04),
        },
        2.94,
    ),
    "hybrid": Published(
        "CIFAR-10, L_hybrid",
        4000,
        {
            "even": (6.14, 5.39, 4.77, 4.29, 3.92, 3.66),
            "quadratic": (4.91, 4.15, 3.71, 3.42, 3.30, 3.26),
            "dp": (4.33, 3.62, 3.39, 3.30, 3.27, 3.26),
        },
        3.17,
    ),
    "hybrid-imagenet": Published(
        "ImageNet 64×64, L_hybrid",
        4000,
        {
            "even": (6.07, 5.38, 4.82, 4.39, 4.08, 3.87),
            "quadratic": (4.83, 4.14, 3.82, 3.65, 3.58, 3.56),
            "dp": (4.29, 3.80, 3.65, 3.59, 3.56, 3.56),
        },
        3.55,
    ),
}


def of_results(results: StudyResults) -> Published:
    """Our table in the paper's form."""
    curves = results.curves
    rows = {stride: tuple(curves[stride][K][0] for K in BUDGETS if K in curves[stride]) for stride in STRIDES}
    largest = max(curves["dp"])
    return Published(printable(results.model["name"], 60), results.T, rows, curves["dp"][largest][0])


def beside(results: StudyResults, objective: str | None) -> str:
    """Return a Markdown table of our model and the paper's with the same objective, as bits/dim above all steps, with findings.

    Absolute values cannot be compared between data sets; the loss of a path relative to all steps can.
    """
    ours = of_results(results)
    tables = [ours, *([PAPER[objective]] if objective in PAPER else [])]
    if objective == "hybrid":
        tables.append(PAPER["hybrid-imagenet"])
    columns = BUDGETS[: len(ours.rows["dp"])]
    lines = [
        "| bits/dim above all steps | all steps | " + " | ".join(map(str, columns)) + " |",
        "|---|---:|" + "---:|" * len(columns),
    ]
    for table in tables:
        who = table.name if table is ours else f"{table.name} (paper)"
        for stride in STRIDES:
            gaps = [f"{value - table.all_steps:+.2f}" for value in table.rows[stride][: len(columns)]]
            first = f"{table.all_steps:.2f} (T = {table.T:,})" if stride == STRIDES[0] else ""
            lines.append(f"| {who}, {NAMES[stride]} | {first} | " + " | ".join(gaps) + " |")
    sentences = [pattern(ours), *(pattern(table, paper=True) for table in tables[1:])]
    return "\n".join([*lines, "", *sentences]) + "\n"


def pattern(table: Published, paper: bool = False) -> str:
    """Describe a table in words, by the same rules for ours and the paper's."""
    who = f"{table.name} in the paper" if paper else table.name
    columns = BUDGETS[: len(table.rows["dp"])]
    even, quadratic, dp = (table.rows[stride] for stride in STRIDES)
    # How far two strides are from the paper's order; 0 or less where they follow it.
    turned = {K: max(d - q, q - e) for K, e, q, d in zip(columns, even, quadratic, dp, strict=True)}
    ordered = [K for K, most in turned.items() if most <= NEGLIGIBLE]
    where = f"at {', '.join(map(str, ordered))} steps" if ordered else "at no budget"
    order = "at every budget" if len(ordered) == len(columns) else where
    if close := [K for K in ordered if turned[K] > 0.0]:
        order += f" (at {', '.join(map(str, close))} two of them are swapped by {max(turned[K] for K in close):.3f})"
    best = min(*dp, table.all_steps)
    enough = next((K for K, value in zip(columns, dp, strict=True) if value <= best + 0.1), None)
    few = f"{enough} DP steps are" if enough else "no table budget is"
    worse = [K for K, value in zip(columns, dp, strict=True) if value < table.all_steps - NEGLIGIBLE]
    hurt = f"; DP at {', '.join(map(str, worse))} steps is better than all steps" if worse else ""
    return f"- {who}: DP is best, then quadratic, then even, {order}; {few} within 0.1 bits/dim of the best in the row{hurt}."
