"""Stage 8. Several runs of `find` side by side, from their saved results: a table, a figure and a page.

Bits/dim of different models, options and numbers of samples can be compared if they were measured on the same held-out data
in the same data range. Folders of other results are refused with the reason.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from ..evaluate.comparison import TABLE_BUDGETS, Comparison
from ..evaluate.purpose import caveat
from ..masked.schedule import FORMAT as MASKED
from ..options import BEST, COMPARED_STRIDES, SAMPLES
from ..racing.finish import OURS as RACED
from ..reading.documents import read_json_object
from ..reading.text import printable
from ..runs.writing import write_text
from .figures import STYLES, save_figure
from .front import COLOURS
from .page.saved import Saved
from .page.write import NAME, part, whole

LINES = ("-", "--", "-.", ":")
TOLERANCE = 0.1  # bits/dim within which steps are enough, as in the answer of a run
TEXT = 60  # characters of a name


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """One run: its name in tables, its folder, and its scores."""

    name: str
    folder: Path
    comparison: Comparison
    heldout: str  # fingerprint

    @property
    def curve(self) -> dict[int, tuple[float, float]]:
        """Held-out bits/dim and standard errors of its best paths."""
        return self.comparison.curves[BEST]


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Runs on the same held-out data, in the order in which they were named."""

    runs: tuple[ComparedRun, ...]

    @property
    def budgets(self) -> list[int]:
        """Numbers of steps for which every run has a score: the usual ones, or all if there are none of them."""
        common = set.intersection(*(set(run.curve) for run in self.runs))
        return sorted(common & set(TABLE_BUDGETS)) or sorted(common)

    @property
    def sentence(self) -> str:
        """The run with the fewest bits/dim at each number of steps of the table."""
        best: dict[ComparedRun, list[int]] = {}
        for K in self.budgets:
            best.setdefault(min(self.runs, key=lambda run: run.curve[K][0]), []).append(K)
        parts = [f"{run.name} at {', '.join(map(str, budgets))}" for run, budgets in best.items()]
        return f"Fewest held-out bits/dim: {'; '.join(parts)} steps."

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a reader of the numbers alone."""
        found = []
        if len({run.comparison.seeds["heldout"] for run in self.runs}) == 1:
            found.append(
                "All runs were scored on the same held-out samples and noise, so their differences are more certain than the "
                "standard errors suggest."
            )
        if len(choosing := {run.comparison.samples["chosen"] for run in self.runs}) > 1:
            found.append(f"Paths were chosen on {min(choosing):,} to {max(choosing):,} samples.")
        for run in self.runs:
            found += [f"{run.name}: {warning}" for warning in run.comparison.warnings]
        found += dict.fromkeys(caveat(run.comparison.options) for run in self.runs)
        return tuple(found)

    def rows(self) -> list[tuple[str, list[str]]]:
        """The table's rows, its head first: scores at the usual numbers of steps, and the fewest that are enough."""
        names = [str(K) for K in self.budgets]
        rows = [("bits/dim, held-out", [*names, "least", "at", f"within {TOLERANCE:g}"])]
        for run in self.runs:
            best = run.comparison.best_budget
            shown = [*self.budgets, best]
            words = [f"{run.curve[K][0]:.3f}" for K in shown]
            rows.append((run.name, [*words, f"{best:,}", f"{run.comparison.enough(TOLERANCE):,}"]))
            rows.append(("", [*(f"±{run.curve[K][1]:.3f}" for K in shown), "", ""]))
        return rows

    def table(self) -> str:
        """The table as text for a terminal."""
        rows = self.rows()
        first = max(len(label) for label, _ in rows) + 2
        width = max(8, *(len(cell) + 2 for _, cells in rows for cell in cells))
        return "\n".join(label.ljust(first) + "".join(cell.rjust(width) for cell in cells) for label, cells in rows)

    def to_dict(self) -> dict[str, Any]:
        """Every budget of every run, as JSON values."""
        runs = [
            {
                "name": run.name,
                "folder": str(run.folder),
                "model": run.comparison.model["name"],
                "options": dict(run.comparison.options),
                "samples": run.comparison.samples,
                "best_budget": run.comparison.best_budget,
                "enough": run.comparison.enough(TOLERANCE),
                "bits_per_dim": {
                    stride: {K: {"bpd": bpd, "standard_error": error} for K, (bpd, error) in curve.items()}
                    for stride, curve in run.comparison.curves.items()
                },
            }
            for run in self.runs
        ]
        return {"answer": self.sentence, "heldout": self.runs[0].heldout, "runs": runs, "notes": list(self.notes)}

    def save(self, folder: str | Path) -> list[Path]:
        """Write report.html, table.txt and the figure into ``folder``; return their paths, the page first."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        files = save_figure(target / "bits_per_dim", (6.8, 4.2), lambda figure: draw_runs(figure.add_subplot(), self))
        page = write_text(target / NAME, self._page(files[0].read_bytes()))
        return [page, write_text(target / "table.txt", self.table() + "\n"), *files]

    def _page(self, figure: bytes) -> str:
        """The whole page. It has no script, and all foreign text in it is escaped."""
        head, *rows = self.rows()
        body = [(label, cells, errors) for (label, cells), (_, errors) in zip(rows[::2], rows[1::2], strict=True)]
        lines = [
            f'<tr><th scope="row">{html.escape(label)}</th>'
            + "".join(f"<td>{cell}<small>{error}</small></td>" for cell, error in zip(cells, errors, strict=True))
            + "</tr>"
            for label, cells, errors in body
        ]
        main = Template(part("compare.html")).substitute(
            sentence=html.escape(self.sentence),
            head="".join(f'<th scope="col">{cell}</th>' for cell in ["run", *head[1]]),
            rows="\n".join(lines),
            figure=base64.b64encode(figure).decode("ascii"),
            models="\n".join(map(_facts, self.runs)),
            notes="\n".join(f"<li>{_prose(note)}</li>" for note in self.notes),
        )
        return whole("Runs side by side", main, ("page.css", "compare.css"))


def compare_runs(folders: Sequence[str | Path]) -> RunComparison:
    """Compare the held-out bits/dim of two or more folders that `dpstride find`, `demo` or `study` wrote.

    Runs may differ in model, options and choosing data; runs with different held-out data raise `ValueError`.
    """
    homes = [Path(folder) for folder in folders]
    if len({home.resolve() for home in homes}) < max(2, len(homes)):
        raise ValueError(
            f"A comparison needs at least two different folders, not {', '.join(map(str, homes)) or 'none'}."
        )
    names = [home.resolve().name for home in homes]
    if len(set(names)) < len(names):
        names = [str(home) for home in homes]
    runs = [_read(home, printable(name, TEXT)) for home, name in zip(homes, names, strict=True)]
    first = runs[0]
    for other in runs[1:]:
        if other.heldout != first.heldout or other.comparison.raw != first.comparison.raw:
            what = "other held-out data" if other.heldout != first.heldout else "data in another range (--data-range)"
            raise ValueError(
                f"{other.folder} was scored on {what} than {first.folder}, so their bits/dim cannot be compared. Run `dpstride "
                "find` again with the same --heldout and --data-range for both."
            )
    if not set.intersection(*(set(run.curve) for run in runs)):
        raise ValueError(
            f"{', '.join(map(str, homes))}: no number of steps has a schedule in all of them. Run `dpstride find` again with a "
            "larger --max-budget."
        )
    return RunComparison(tuple(runs))


def _read(home: Path, name: str) -> ComparedRun:
    schedules = home / "schedules.json"
    kind = read_json_object(schedules) if schedules.is_file() else {}
    if kind.get("format") == MASKED:
        raise ValueError(
            f"{home}: has bits/token of a masked diffusion model, which cannot be compared here. See its report.html."
        )
    options = kind.get("options")
    if kind.get("stride") == RACED or (isinstance(options, dict) and options.get("objective") == SAMPLES):
        raise ValueError(
            f"{home}: its schedules are for samples, whose quality bits/dim do not measure. Race them on measured samples: "
            f"`dpstride tune MODEL DATA --also {schedules}`."
        )
    saved = Saved.read(home)
    recorded = {} if saved.run is None else saved.run.identity.get("heldout", {})
    heldout = saved.heldout.get("fingerprint") or recorded.get("fingerprint")
    if not isinstance(heldout, str):
        raise ValueError(
            f"{home}: does not say which held-out data it was scored on, so it cannot be compared. Add its "
            "heldout.safetensors or run.json, or run `dpstride find` again."
        )
    return ComparedRun(name, home, saved.comparison, heldout)


def draw_runs(axes: Any, compared: RunComparison) -> None:
    """Draw held-out bits/dim of every run's best paths against steps, and of its first hand-made stride as a thin line."""
    made = COMPARED_STRIDES[0]
    for place, run in enumerate(compared.runs):
        colour, line = COLOURS[place % len(COLOURS)], LINES[place // len(COLOURS) % len(LINES)]
        for stride, width, label in ((BEST, 1.8, run.name), (made, 0.7, None)):
            curve = run.comparison.curves[stride]
            budgets = sorted(curve)
            style = line if stride == BEST else ":"
            shown = [curve[K][0] for K in budgets]
            axes.plot(budgets, shown, color=colour, linestyle=style, linewidth=width, label=label)
    first = min(compared.budgets[0], 8)
    values = [run.curve[K][0] for run in compared.runs for K in run.curve if first <= K]
    least, most = min(values), max(values)
    room = 0.05 * (most - least) or 0.05
    axes.set_ylim(least - room, most + 4 * room)
    axes.set_xscale("log", base=2)
    largest = max(max(run.curve) for run in compared.runs)
    ticks = [2**i for i in range(16) if 2**i <= largest]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.set_xlabel("refinement steps K")
    axes.set_ylabel("bits/dim, held-out")
    axes.set_title(f"Best paths; thin dots: {STYLES[made]['label']} of each run", fontsize=10, parse_math=False)
    legend = axes.legend(frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a folder may be called $x$
    axes.spines[["top", "right"]].set_visible(False)


def _prose(note: str) -> str:
    """A note as HTML, with text in backquotes as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(printable(note, 600)))


def _facts(run: ComparedRun) -> str:
    """A run's model and options, as a row."""
    comparison = run.comparison
    options = ", ".join(f"{key} {value}" for key, value in comparison.options.items() if key != "cdf")
    samples = f"{comparison.samples['chosen']:,}, {comparison.samples['heldout']:,}"
    cells = [printable(comparison.model["name"], TEXT), f"{comparison.T:,}", printable(options, 2 * TEXT), samples]
    return (
        f'<tr><th scope="row">{html.escape(run.name)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
    )
