"""Stage 9. How long network evaluations will take, in words."""

from __future__ import annotations

from .console import duration
from .options import running


def in_words(seconds: float) -> str:
    """Expected time; a network is compiled only once it has been called often, so the timed calls are slower ones."""
    return f"about {duration(seconds)}" + (", less once it is compiled" if running().get("compile") else "")
