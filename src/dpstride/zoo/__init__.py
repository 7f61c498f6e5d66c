"""Embedded models and the images or text they were trained on, so that the main job runs offline.

Heavy imports are deferred until needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstride.zoo.data import data_names, describe_data, load_data, load_labels
    from dpstride.zoo.models import describe, folder_of, load, load_folder, names
    from dpstride.zoo.texts import (
        describe_masked,
        describe_texts,
        load_masked,
        load_text,
        masked_folder_of,
        masked_names,
        text_names,
    )

__all__ = [
    "data_names",
    "describe",
    "describe_data",
    "describe_masked",
    "describe_texts",
    "folder_of",
    "load",
    "load_data",
    "load_folder",
    "load_labels",
    "load_masked",
    "load_text",
    "masked_folder_of",
    "masked_names",
    "names",
    "text_names",
]

_MODULES = {
    **dict.fromkeys(("data_names", "describe_data", "load_data", "load_labels"), "dpstride.zoo.data"),
    **dict.fromkeys(("describe", "folder_of", "load", "load_folder", "names"), "dpstride.zoo.models"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in __all__:
        return getattr(import_module(_MODULES.get(name, "dpstride.zoo.texts")), name)
    raise AttributeError(f"module 'dpstride.zoo' has no attribute {name!r}")
