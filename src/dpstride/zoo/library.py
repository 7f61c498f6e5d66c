"""The one optional dependency of training and the zoo, with an error that says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def diffusers() -> Any:
    """The diffusers package, imported when first needed (it takes seconds)."""
    try:
        return import_module("diffusers")
    except ImportError as error:
        raise ImportError("The zoo and training need diffusers: pip install 'dpstride[diffusers]'.") from error
