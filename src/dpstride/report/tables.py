"""Stage 8. Tables of a study as text, Markdown and LaTeX: one table, three formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..evaluate.comparison import STRIDES
from ..reading.text import printable
from ..runs.writing import write_text
from ..study.results import Distance, StudyResults
from .text import NAMES

LARGE = 1e6  # from here on numbers are written with a power of ten
Cell = str | tuple[float, float] | None  # text, or a number with its standard error


@dataclass(frozen=True)
class Table:
    """A title, column heads (the first above the row names), rows, and the number of decimals."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    digits: int = 3

    def text(self) -> str:
        """The table for a terminal."""
        cells = [[name, *(self._written(cell, " ± ") for cell in row)] for name, row in self.rows]
        grid = [list(self.columns), *cells]
        widths = [max(len(line[i]) for line in grid) for i in range(len(self.columns))]
        lines = [
            line[0].ljust(widths[0])
            + "".join("  " + cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
            for line in grid
        ]
        return "\n".join([self.title, "", *lines]) + "\n"

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = ["| " + " | ".join(self.columns) + " |", "|---|" + "---:|" * (len(self.columns) - 1)]
        for name, row in self.rows:
            lines.append(f"| {name} | " + " | ".join(self._written(cell, " ± ") for cell in row) + " |")
        return f"**{self.title}**\n\n" + "\n".join(lines) + "\n"

    def latex(self) -> str:
        """The table as LaTeX; needs the package booktabs."""
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escape(self.title)}}}",
            r"\begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}",
            r"\toprule",
            " & ".join(map(_escape, self.columns)) + r" \\",
            r"\midrule",
        ]
        for name, row in self.rows:
            written = [_escape(cell) if isinstance(cell, str) else self._written(cell, r" \pm ") for cell in row]
            cells = [
                f"${cell}$" if not isinstance(raw, str) and cell else cell
                for raw, cell in zip(row, written, strict=True)
            ]
            lines.append(" & ".join([_escape(name), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"

    def _written(self, cell: Cell, plus_minus: str) -> str:
        if cell is None or isinstance(cell, str):
            return cell or ""
        value, error = cell
        style = f".{self.digits}f" if max(abs(value), 0.0 if math.isnan(error) else error) < LARGE else ".4g"
        return f"{value:{style}}" + ("" if math.isnan(error) else f"{plus_minus}{error:{style}}")


def study_tables(results: StudyResults) -> list[Table]:
    """Every table of a study."""
    tables = [bits_per_dim_table(results)]
    if results.distances:
        tables += [frechet_table(results), kernel_table(results)]
    if results.ablation is not None and len(results.ablation.sizes) > 1:
        tables.append(ablation_table(results))
    return tables


def bits_per_dim_table(results: StudyResults) -> Table:
    """The paper's table: held-out bits/dim of three strides."""
    comparison = results.comparison
    budgets = comparison.table_budgets
    rows = [(NAMES[stride], tuple(results.curves[stride].get(K) for K in budgets)) for stride in STRIDES]
    samples = comparison.samples
    return Table(
        f"{name_of(results)}: bits/dim of {samples['heldout']:,} held-out samples, paths chosen on "
        f"{samples['chosen']:,} samples ({results.options['variance']} variance, {results.options['decoder']} decoder)",
        ("steps", *(_steps(K, results.T) for K in budgets)),
        tuple(rows),
    )


def frechet_table(results: StudyResults) -> Table:
    """Fréchet distances by stride and budget."""
    values = {each: (each.frechet, math.nan) for each in _measured(results)}
    return _distance_table(results, results.distance_name, values)


def kernel_table(results: StudyResults) -> Table:
    """Kernel distances with standard errors."""
    values = {each: (each.kernel, each.kernel_standard_error) for each in _measured(results)}
    return _distance_table(results, kernel_name(results), values)


def kernel_name(results: StudyResults) -> str:
    """The name of the kernel distance: KID on the features of FID, else with the name of the features."""
    if results.distance_name == "FID":
        return "KID"
    if "Fréchet" in results.distance_name:
        return results.distance_name.replace("Fréchet", "Kernel")
    return f"Kernel distance, {results.features['name'] if results.features else 'features'}"


def _measured(results: StudyResults) -> list[Distance]:
    return [*results.distances, *([results.floor] if results.floor else [])]


def _distance_table(results: StudyResults, name: str, values: dict[Distance, tuple[float, float]]) -> Table:
    budgets = sorted({each.budget for each in results.distances})
    usual = results.usual_samples
    rows = []
    for stride in STRIDES:
        found = [results.distance_at(stride, K) for K in budgets]
        rows.append((NAMES[stride], tuple(None if each is None else values[each] for each in found)))
    columns = []
    for K in budgets:
        fewest = min(each.samples for each in results.distances if each.budget == K)
        columns.append(_steps(K, results.T) + (f" ({fewest:,} samples)" if fewest != usual else ""))
    floor = ""
    if results.floor is not None:
        value, error = values[results.floor]
        written = f"{value:.4g}" + ("" if math.isnan(error) else f" ± {error:.2g}")
        floor = f"; {results.floor.samples:,} held-out real images: {written}"
    images = results.data["reference"]["images"]
    # Two digits of the smallest standard error, or three of the smallest value.
    errors = [error for _, error in values.values() if error > 0.0]
    least = min(errors) * 10.0 if errors else min(abs(value) for value, _ in values.values()) or 1.0
    return Table(
        f"{name_of(results)}: {name}, {usual:,} samples against {images:,} real images ({results.sampling}{floor})",
        ("steps", *columns),
        tuple(rows),
        digits=min(6, max(1, 2 - math.floor(math.log10(least)))),
    )


def ablation_table(results: StudyResults) -> Table:
    """Held-out bits/dim above the schedule of all samples, by number of samples: mean and spread over draws."""
    ablation = results.ablation
    assert ablation is not None
    rows = []
    for size in ablation.sizes[:-1]:
        excess = [ablation.excess(size, K) for K in ablation.budgets]
        cells: list[Cell] = [(sum(each) / len(each), _deviation(each)) for each in excess]
        rows.append((f"{size:,} samples", tuple(cells)))
    title = (
        f"{name_of(results)}: loss in held-out bits/dim of schedules found from fewer than {ablation.sizes[-1]:,} samples "
        f"(mean ± standard deviation over {len(ablation.bpd[0])} draws)"
    )
    return Table(title, ("steps", *map(str, ablation.budgets)), tuple(rows), digits=4)


def name_of(results: StudyResults) -> str:
    """The model's name, safe to show."""
    return printable(str(results.model["name"]), 60)


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _steps(budget: int, T: int) -> str:
    return f"all {T:,}" if budget == T else str(budget)


def _escape(text: str) -> str:
    special = {letter: f"\\{letter}" for letter in "&%_#${}"} | {"±": r"$\pm$", "−": "-"}
    special |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    return "".join(special.get(letter, letter) for letter in text)


def save_tables(results: StudyResults, folder: str | Path) -> list[Path]:
    """Write tables.txt, tables.md and tables.tex, with the notes in the first two; return their paths."""
    tables = study_tables(results)
    remarks = [*([results.sentence] if results.sentence else []), *results.notes]
    written = []
    for suffix, parts in (
        ("txt", [table.text() for table in tables] + [f"{remark}\n" for remark in remarks]),
        ("md", [table.markdown() for table in tables] + [f"- {remark}\n" for remark in remarks]),
        ("tex", [table.latex() for table in tables]),
    ):
        written.append(write_text(Path(folder) / f"tables.{suffix}", "\n".join(parts)))
    return written
