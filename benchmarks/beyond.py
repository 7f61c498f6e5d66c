"""Shared parts of the benchmarks of docs/beyond: folders, stored results, and writing a section of a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page import write

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "beyond" / "results"
RUNS = ROOT / "runs" / "beyond"


def save(topic: str, model: str, result: dict[str, Any]) -> None:
    """Store the numbers of a model, from which the page is written."""
    path = KEPT / topic / f"{model}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def results(topic: str) -> dict[str, dict[str, Any]]:
    """All stored results, by model."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((KEPT / topic).glob("*.json"))}


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(map(str, head)) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def write_page(topic: str, parts: Sequence[str], section: str | None = None) -> None:
    """Write the parts between the markers of a section of docs/beyond/TOPIC.md; the section is TOPIC by default."""
    write(section or topic, "".join(part.strip() + "\n\n" for part in parts), ROOT / "docs" / "beyond" / f"{topic}.md")
