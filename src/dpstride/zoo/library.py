"""The one optional dependency of training and the zoo, with an error that says how to install it."""

from __future__ import annotations

from typing import Any

from dpstride.runs.extras import require


def diffusers() -> Any:
    """The diffusers package, imported when first needed (it takes seconds)."""
    return require("diffusers", "The zoo and training need diffusers", "diffusers", ImportError)
