"""Stage 9. MODEL as typed, with --compile and --autocast applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .options import running

if TYPE_CHECKING:
    from ..integrations.loaded import LoadedModel
    from ..integrations.masked_loading import MaskedSource


def load_model(text: str, options: tuple[tuple[str, Any], ...] = ()) -> LoadedModel:
    """Load MODEL with the options of its loader; a model of tokens is refused."""
    from ..finding.inputs import load_gaussian

    return _accelerated(load_gaussian(text, dict(options)))


def load_any(text: str, options: tuple[tuple[str, Any], ...] = ()) -> LoadedModel | MaskedSource:
    """Load MODEL of any kind."""
    from ..finding.inputs import load_model as load
    from ..integrations.loaded import gaussian_only

    loaded = load(text, dict(options))
    return _accelerated(gaussian_only(loaded)) if running() else loaded


def _accelerated(loaded: LoadedModel) -> LoadedModel:
    """Return the model with --compile and --autocast applied."""
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
