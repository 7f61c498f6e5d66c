"""Shared parts of the cards of all models in the zoo, and writing of card and facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpstride.zoo.models import DESCRIPTION


def made(rows: Mapping[str, str], command: str) -> str:
    """The table of a card, and the command that trained the model."""
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"| | |\n|---|---|\n{table}\n\nTrained with\n\n```\n{command}\n```"


def describe(target: Path, facts: Mapping[str, Any], card: str) -> None:
    """Write dpstride.json and MODEL_CARD.md into the folder of a model."""
    (target / DESCRIPTION).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (target / "MODEL_CARD.md").write_text(card, encoding="utf-8")


def held_out(target: Path) -> str:
    """The held-out score in the folder of a model, as a line for the terminal."""
    return f"{target}: {json.loads((target / DESCRIPTION).read_text(encoding='utf-8'))['held_out']}"
