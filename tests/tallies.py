"""Tables printed at the end of a test run, as in docs/reliability.md: attacks by kind, files fed to readers, kills survived.

Every test records in its report what it tried, so the tables are the same for one process or several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Fed:
    """Damaged files that a reader was fed."""

    reader: str
    tried: int
    accepted: int


@dataclass
class Killed:
    """Kills of a job, and what they cost."""

    job: str
    processes: str
    kills: int = 0
    runs: int = 0
    finished: int = 0
    needed: int = 0
    repeated: int = 0


TRIED: list[Fed | Killed] = []  # by the test that runs


def told() -> list[tuple[str, dict[str, Any]]]:
    """What the test that ends has tried, as properties of its report."""
    properties = [(type(each).__name__, asdict(each)) for each in TRIED]
    TRIED.clear()
    return properties


def tables(stats: Mapping[str, list[Any]]) -> Iterator[tuple[str, str]]:
    """Title and text of each table that the reports of a run make."""
    fed = [Fed(**each) for each in _told_in(stats, Fed)]
    killed = [Killed(**each) for each in _told_in(stats, Killed)]
    if fed:
        rows = [(each.reader, each.tried, each.accepted, each.tried - each.accepted) for each in fed]
        total = ("all", *(sum(row[i] for row in rows) for i in (1, 2, 3)))
        yield "files fed to readers", _table(("reader", "files", "accepted", "refused"), [*sorted(rows), total])
    if killed:
        head = ("job", "processes", "kills", "runs", "results compared", "evaluations repeated per kill")
        total_kills = sum(each.kills for each in killed)
        yield (
            "kills",
            (
                _table(head, [_row_of(each) for each in sorted(killed, key=lambda each: (each.processes, each.job))])
                + f"\n\n{total_kills} kills survived; every result was bit for bit that of an uninterrupted run"
            ),
        )
    if attacks := _attacks(stats):
        yield "attacks", _table(("attacks", "tried", "held"), attacks)


def _told_in(stats: Mapping[str, list[Any]], kind: type) -> Iterator[dict[str, Any]]:
    """What reports of tests that have ended hold of a kind; each test ends once."""
    for report in (report for reports in stats.values() for report in reports):
        if getattr(report, "when", None) == "teardown":
            yield from (value for key, value in report.user_properties if key == kind.__name__)


def _attacks(stats: Mapping[str, list[Any]]) -> list[tuple[str, int, int]]:
    tried: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in stats.get(outcome, []):
            kind = dict(getattr(report, "user_properties", ())).get("attack")
            if kind is not None:
                tried[kind] += 1
                held[kind] += outcome == "passed"
    if not tried:
        return []
    return [*((kind, tried[kind], held[kind]) for kind in sorted(tried)), ("all", tried.total(), held.total())]


def _row_of(each: Killed) -> tuple[Any, ...]:
    share = f"{each.repeated / each.kills:,.0f} of {each.needed:,}" if each.needed and each.kills else "not counted"
    return each.job, each.processes, each.kills, each.runs, each.finished, share


def _table(head: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> str:
    cells = [list(head), *([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])
