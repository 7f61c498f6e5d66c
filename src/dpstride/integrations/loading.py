"""MODEL strings of the command line: which way in a text means, decided by what it looks like and nothing else.

A file ending in .pt or .pth is an OpenAI checkpoint; ``package.module:function`` is the user's own code, the one case
that runs any; a folder of tokens is known by its own description (`masked_loading`); everything else is a diffusers folder or
hub id. A folder that `dpstride train` wrote is read by what its dpstride.json says. Zoo names are resolved before this is
asked.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

from ..denoiser import Denoiser
from ..fingerprint import name_of
from ..reading.hints import function_hint, path_hint
from ..statistics.files import import_function
from ..zoo.models import DESCRIPTION, load_folder
from .loaded import LoadedModel, UnsupportedModelError, gaussian_only
from .masked_loading import MaskedSource, masked_folder, source_of

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")  # ./name is a folder


def load_model(text: str | os.PathLike[str], **flags: Any) -> LoadedModel:
    """The model of a diffusers folder or hub id, an OpenAI checkpoint, or ``package.module:function``.

    ``flags`` go to `load_openai` for a checkpoint (preset=, flags=, repository=, …), to `load_diffusers` for a folder or
    hub id (guidance_scale=, variance=, …), and to the function for ``package.module:function``.
    """
    return gaussian_only(load_any(text, **flags))


def load_any(text: str | os.PathLike[str], **flags: Any) -> LoadedModel | MaskedSource:
    """Load the same, or a model of tokens."""
    name = os.fspath(text)
    path = Path(name)
    if path.suffix in (".pt", ".pth"):
        from .openai import load_openai

        return load_openai(path, **flags)
    if not path.exists() and _FUNCTION.fullmatch(name):
        return _from_function(name, flags)
    if path.is_file():
        raise UnsupportedModelError(
            f"{name}: a model file must be an OpenAI checkpoint (.pt, .pth). Give a diffusers folder, or "
            f"package.module:function returning a dpstride.Denoiser.{function_hint(name, Path.cwd())}"
        )
    if not path.is_dir() and not _HUB_ID.fullmatch(name):
        raise UnsupportedModelError(
            f"{name}: there is no such folder, and it is neither a hub id (owner/name) nor package.module:function."
            f"{function_hint(name, Path.cwd()) or path_hint(path)}"
        )
    if (tokens := masked_folder(path)) is not None:
        if flags:
            raise UnsupportedModelError(
                f"{name}: a folder of a model of tokens takes no options, not {', '.join(flags)}."
            )
        return tokens
    if (path / DESCRIPTION).is_file() and not flags:
        return _trained_here(path)
    from .diffusers import load_diffusers

    return load_diffusers(name, **flags)


def _trained_here(folder: Path) -> LoadedModel:
    """The model of a folder that `dpstride train` wrote, which says more of itself than diffusers can."""
    denoiser = load_folder(folder)
    classes = denoiser.network.unet.config.num_class_embeds  # type: ignore[attr-defined]
    return LoadedModel(denoiser, conditioning=f"a class label from 0 to {classes - 1}" if classes else None)


def loaded_from(result: Any) -> LoadedModel | MaskedSource:
    """Take what a user made for the model that it is."""
    if isinstance(result, Denoiser):
        return LoadedModel(result)
    found = result if isinstance(result, LoadedModel) else source_of(result)
    if found is None:
        raise UnsupportedModelError(
            "The model comes first, then the data. It must be a dpstride.Denoiser, a LoadedModel or a dpstride.MaskedDenoiser, "
            f"not {type(result).__name__}."
        )
    return found


def _from_function(name: str, flags: dict[str, Any]) -> LoadedModel | MaskedSource:
    try:
        function = import_function(name)
    except ValueError as error:
        raise UnsupportedModelError(str(error)) from error
    try:
        inspect.signature(function).bind(**flags)
    except TypeError as error:
        asked = f"with {', '.join(flags)}" if flags else "without arguments"
        raise UnsupportedModelError(
            f"{name} cannot be called {asked} ({error}). Give what it needs with -M NAME=VALUE, or name a function that "
            "needs nothing."
        ) from error
    except ValueError:  # a callable that does not tell what it takes
        pass
    result = function(**flags)
    if isinstance(result, Denoiser):
        if result.name == name_of(result.network):  # none was given: what the user typed says more
            result.name = name
        return LoadedModel(result, notes=(f"made by {name}, which ran your code",))
    found = result if isinstance(result, LoadedModel) else source_of(result)
    if found is None:
        raise UnsupportedModelError(
            f"{name} must return a dpstride.Denoiser (or a LoadedModel, or a dpstride.MaskedDenoiser), not "
            f"{type(result).__name__}."
        )
    return found
