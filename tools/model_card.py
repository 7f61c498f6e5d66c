"""Shared parts of the zoo's model cards, and writing cards and facts to a model's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpstride.zoo.models import DESCRIPTION


def made(rows: Mapping[str, str], command: str) -> str:
    """Return the table of a card, and the command that trained the model."""
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"| | |\n|---|---|\n{table}\n\nTraining command:\n\n```\n{command}\n```"


def describe(target: Path, facts: Mapping[str, Any], card: str) -> None:
    """Write dpstride.json and MODEL_CARD.md into the folder of a model."""
    (target / DESCRIPTION).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (target / "MODEL_CARD.md").write_text(card, encoding="utf-8")


def held_out(target: Path) -> str:
    """Return the held-out score stored in a model's folder, as a line for the terminal."""
    return f"{target}: {json.loads((target / DESCRIPTION).read_text(encoding='utf-8'))['held_out']}"
