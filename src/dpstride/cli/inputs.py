"""Stage 9. MODEL as typed, run as --compile and --autocast say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .options import running

if TYPE_CHECKING:
    from ..integrations.loaded import LoadedModel


def load_model(text: str, options: tuple[tuple[str, Any], ...] = ()) -> LoadedModel:
    """Load MODEL, with the options of its loader."""
    from ..finding.inputs import load_model as load

    return _as_asked(load(text, dict(options)))


def _as_asked(loaded: LoadedModel) -> LoadedModel:
    """Run as --compile and --autocast say."""
    from dataclasses import replace

    import torch

    asked = running()
    if not asked:
        return loaded
    precision = asked.get("autocast")
    return replace(
        loaded,
        denoiser=loaded.denoiser.faster(
            compile=asked.get("compile", False), autocast=None if precision is None else getattr(torch, precision)
        ),
    )
