"""What the fuzz tests of this session tried, for the table at its end."""

from __future__ import annotations

from typing import Any

TALLY: list[dict[str, Any]] = []


def table() -> str:
    rows = [(line["reader"], line["tried"], line["accepted"], line["tried"] - line["accepted"]) for line in TALLY]
    rows.append(("all", *(sum(row[i] for row in rows) for i in (1, 2, 3))))  # type: ignore[misc]
    lines = [f"{'reader':28}{'files':>8}{'accepted':>10}{'refused':>9}"]
    return "\n".join(
        lines + [f"{name:28}{tried:8,}{accepted:10,}{refused:9,}" for name, tried, accepted, refused in rows]
    )
