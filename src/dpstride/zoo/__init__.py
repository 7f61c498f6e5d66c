"""Embedded models and the images they were trained on, so that the main job runs offline.

Imports nothing heavy until asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstride.zoo.data import data_names, describe_data, load_data, load_labels
    from dpstride.zoo.models import describe, folder_of, load, load_folder, names

__all__ = [
    "data_names",
    "describe",
    "describe_data",
    "folder_of",
    "load",
    "load_data",
    "load_folder",
    "load_labels",
    "names",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("data_names", "describe_data", "load_data", "load_labels"):
        return getattr(import_module("dpstride.zoo.data"), name)
    if name in __all__:
        return getattr(import_module("dpstride.zoo.models"), name)
    raise AttributeError(f"module 'dpstride.zoo' has no attribute {name!r}")
