"""MODEL strings of the command line: the loader is chosen by the form of the text alone.

A file ending in .pt or .pth is an OpenAI checkpoint; ``package.module:function`` is the user's own code, the only case
that runs code; a folder of a model of tokens is recognised by its description (`masked_loading`); everything else is a
diffusers folder or hub id. A folder written by `dpstride train` is read by its dpstride.json. Zoo names are resolved before.
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
    """Load the model of a diffusers folder or hub id, an OpenAI checkpoint, or ``package.module:function``.

    ``flags`` go to `load_openai` for a checkpoint (preset=, flags=, repository=, …), to `load_diffusers` for a folder or
    hub id (guidance_scale=, variance=, …), and to the function for ``package.module:function``.
    """
    return gaussian_only(load_any(text, **flags))


def load_any(text: str | os.PathLike[str], **flags: Any) -> LoadedModel | MaskedSource:
    """Load the same as `load_model`, or a model of tokens."""
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
                f"{name}: a model of tokens takes no options, but {', '.join(flags)} were given. Leave them out."
            )
        return tokens
    if (path / DESCRIPTION).is_file() and not flags:
        return _trained_here(path)
    from .diffusers import load_diffusers

    return load_diffusers(name, **flags)


def _trained_here(folder: Path) -> LoadedModel:
    """Load a folder written by `dpstride train`, whose description says more than a diffusers config."""
    denoiser = load_folder(folder)
    classes = denoiser.network.unet.config.num_class_embeds  # type: ignore[attr-defined]
    return LoadedModel(denoiser, conditioning=f"a class label from 0 to {classes - 1}" if classes else None)


def loaded_from(result: Any) -> LoadedModel | MaskedSource:
    """Return an object made by the user as a loaded model."""
    if isinstance(result, Denoiser):
        return LoadedModel(result)
    found = result if isinstance(result, LoadedModel) else source_of(result)
    if found is None:
        raise UnsupportedModelError(
            "The model must be a dpstride.Denoiser, a LoadedModel or a dpstride.MaskedDenoiser, "
            f"not {type(result).__name__}. Give the model first, then the data."
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
            f"{name} cannot be called {asked} ({error}). Give its arguments with -M NAME=VALUE, or name a function without "
            "required arguments."
        ) from error
    except ValueError:  # a callable without a signature
        pass
    result = function(**flags)
    if isinstance(result, Denoiser):
        if result.name == name_of(result.network):  # no name was given, and the typed one says more
            result.name = name
        return LoadedModel(result, notes=(f"made by {name}, which ran your code",))
    found = result if isinstance(result, LoadedModel) else source_of(result)
    if found is None:
        raise UnsupportedModelError(
            f"{name} must return a dpstride.Denoiser (or a LoadedModel, or a dpstride.MaskedDenoiser), not "
            f"{type(result).__name__}."
        )
    return found
