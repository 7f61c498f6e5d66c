"""MODEL and DATA, as typed or as objects → a loaded model and samples; bad requests are refused before long work."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from ..reading.hints import function_hint, hint, path_hint
from .conditions import LABEL_NAMES, LABELS, PROMPTS, Kind, conditioned

if TYPE_CHECKING:
    from ..integrations.loaded import LoadedModel
    from ..integrations.masked_loading import MaskedSource
    from ..statistics.data import Samples

DEFAULT_SAMPLES = 128


def load_model(model: Any, options: Mapping[str, Any] | None = None) -> LoadedModel | MaskedSource:
    """Load MODEL: a zoo name, anything that `integrations` can load, or an object that is a model."""
    from .. import zoo
    from ..integrations import loading
    from ..integrations.loaded import LoadedModel
    from ..integrations.masked_loading import characters_source
    from ..zoo.models import DESCRIPTION

    if not isinstance(model, (str, os.PathLike)):
        return loading.loaded_from(model)
    text = os.fspath(model)
    if text in zoo.names():
        return _placed(LoadedModel(zoo.load(text)))
    if text in zoo.masked_names():
        return characters_source(zoo.masked_folder_of(text))
    if text in (*zoo.data_names(), *zoo.text_names()):
        raise ValueError(f"MODEL {text!r} is an embedded data set. Give MODEL first, then DATA.")
    if any(
        (Path(text) / "model" / name).exists() and not (Path(text) / name).exists() for name in ("unet", DESCRIPTION)
    ):
        raise ValueError(f"MODEL {text!r} is the folder of a training run. Give its model, {Path(text) / 'model'}.")
    if text == "mixture" and not Path(text).exists():
        raise ValueError("MODEL mixture is a closed form for `dpstride demo` only. Give another model.")
    embedded = (*zoo.names(), *zoo.masked_names())
    no_path = not os.path.exists(text) and not {":", "/"} & set(text)
    suggestion = function_hint(text, Path.cwd()) if no_path else ""
    # Otherwise the hub would be asked for a plain name, and answer after half a minute that it does not exist.
    if suggestion or _is_plain_name(text):
        suggestion = suggestion or hint(text, embedded) or path_hint(Path(text))
        raise ValueError(
            f"MODEL {text!r} is neither an embedded model nor a folder here.{suggestion} Embedded models are "
            f"{', '.join(embedded)}; a hub id is owner/name, your own function package.module:function."
        )
    try:
        loaded = loading.load_any(text, **(options or {}))
    except TypeError as error:
        if not options:
            raise
        raise ValueError(f"MODEL {text!r} did not take the options given with --model-option ({error}).") from error
    # A user who writes a function or names a device has chosen the device.
    chosen = ":" in text or "device" in (options or {})
    return _placed(loaded) if isinstance(loaded, LoadedModel) and not chosen else loaded


def load_gaussian(model: Any, options: Mapping[str, Any] | None = None) -> LoadedModel:
    """Load MODEL for work that is not possible with models of tokens."""
    from ..integrations.loaded import gaussian_only

    return gaussian_only(load_model(model, options))


def _is_plain_name(text: str) -> bool:
    """Return whether ``text`` can only be an embedded name: not a path, an existing file or a function."""
    return re.fullmatch(r"[\w-]+", text) is not None and not os.path.exists(text)


def _placed(loaded: LoadedModel) -> LoadedModel:
    """Return the model on this process's GPU, if it has one."""
    from dataclasses import replace

    import torch

    from ..runs.workers import current

    device = current().device if current().size > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    if torch.device(device).type == loaded.denoiser.device.type:
        return loaded
    return replace(loaded, denoiser=loaded.denoiser.to(device))


def read_samples(
    data: Any, model: LoadedModel, samples: int | None = None, data_range: Any = None, conditioning: str | None = None
) -> Samples:
    """Read DATA as the model takes it: encoded if it works on latents, with the value range that it implies.

    ``conditioning`` names prompts or labels that are not stored with the samples.
    """
    from ..reading.hub_source import first_of
    from ..statistics.data import Samples

    if isinstance(data, str) and samples is not None and conditioning is None:
        data = first_of(data, samples)
    if isinstance(data, (str, os.PathLike)):
        data = conditioned(os.fspath(data), condition_of(model), conditioning)
    elif isinstance(data, Samples):
        return Samples.read(data, samples, data.data_range, model.denoiser.given)
    if model.encode is not None:
        data = model.encode(*data) if isinstance(data, tuple) else model.encode(data)
    return Samples.read(data, samples, model.data_range if data_range is None else data_range, model.denoiser.given)


def read_data(source: str | os.PathLike[str], *, labels: bool = False) -> Any:
    """Data for `estimate`: a tensor, or a pair (tensor, conditioning), from a file, a folder, a name or a function.

    * ``.npy``, ``.npz``, ``.pt``, ``.safetensors``: one array [N, …]; of several, ``images`` (or ``x``, ``arr_0``) is the
      data and each of the others is conditioning under its own name.
    * a folder: all images below it, in order of their paths, of one size; grey images have 1 channel, others 3.
    * CIFAR-10 or CIFAR-100 as published: a binary file (``.bin``), a Python batch, or a folder of either, for the training
      set; the test set is the file ``test_batch`` (CIFAR-100: ``test``) in it.
    * ``hub:OWNER/NAME,split=test,column=image,first=1000``: a dataset on the Hugging Face hub, or ``hub:./FOLDER``, a local
      copy (extra ``datasets``); its split as stored, or its first examples. ``labels=`` names the column of class labels if
      it is not a ClassLabel, and ``prompts=`` a column of texts, which become the conditioning "prompts".
    * the name of an embedded data set, such as ``fashion-train`` (`dpstride models` lists them).
    * ``package.module:function``: whatever the function returns.

    ``labels`` asks for a pair (images, class labels int64 [N]) from data with labels: CIFAR, embedded data, datasets on the
    hub, and a folder with one folder of images per class, numbered in order of their names. Labels are left out by default,
    since an unconditional network would be fed them.

    Arrays of images with channels last (last axis 1, 3 or 4, second axis not) are converted to channels first.
    """
    from .. import zoo
    from ..statistics import files

    text = os.fspath(source)
    if text in zoo.data_names():
        return (zoo.load_data(text), zoo.load_labels(text).long()) if labels else zoo.load_data(text)
    if text in zoo.text_names() and _is_plain_name(text):
        raise ValueError(
            f"DATA {text!r} is text, for models of tokens. Embedded images are {', '.join(zoo.data_names())}."
        )
    if text in (*zoo.names(), *zoo.masked_names()) and _is_plain_name(text):
        raise ValueError(f"DATA {text!r} is an embedded model. Give MODEL first, then DATA.")
    if _is_plain_name(text) and (suggestion := hint(text, zoo.data_names())):
        raise ValueError(f"DATA {text!r} is neither an embedded data set nor a file or folder here.{suggestion}")
    return files.read_data(text, labels=labels)


def condition_of(model: LoadedModel) -> Kind | None:
    """Return the kind of condition that the model takes, if it is prompts or class labels."""
    if model.conditioning is not None and model.conditioning.startswith(PROMPTS.words):
        return PROMPTS
    return LABELS if _takes_labels(model) else None


def _takes_labels(model: LoadedModel) -> bool:
    """Return whether the model is declared class-conditional, or its network cannot be called without labels."""
    if model.conditioning is not None:
        return model.conditioning.startswith("a class label")
    network = model.denoiser.network
    try:
        arguments = list(inspect.signature(getattr(network, "forward", network)).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    third = arguments[2] if len(arguments) > 2 else None
    return third is not None and third.default is third.empty and third.name in LABEL_NAMES


def shared_note(choosing: Samples, scoring: Samples) -> tuple[str, ...]:
    """Return a warning if samples both choose the path and score it."""
    chosen = {sample.numpy().tobytes() for sample in choosing.values}
    shared = sum(sample.numpy().tobytes() in chosen for sample in scoring.values)
    if not shared:
        return ()
    return (
        f"{shared:,} of the {len(scoring):,} samples that score the paths were also used to choose them, so the scores are "
        "optimistic. Give other data to --heldout, or leave it out to score on a disjoint part of DATA.",
    )


class Asked(NamedTuple):
    """The data to choose on and to score on, as named by a caller, and the number of samples of each."""

    data: Any
    heldout: Any = None
    samples: int | None = None
    heldout_samples: int | None = None
    data_range: Any = None
    defaults: tuple[int, int] = (DEFAULT_SAMPLES, DEFAULT_SAMPLES)
    conditioning: str | None = None  # of ``data``, if it is not stored with the samples


class Part(Protocol):
    """Data of any kind that samples can be taken from."""

    def __len__(self) -> int: ...

    def take(self, indices: Iterable[int]) -> Self:
        """Return the samples at ``indices``."""


P = TypeVar("P", bound=Part)


def split(asked: Asked, model: LoadedModel, seed: int) -> tuple[Samples, Samples]:
    """Return samples to choose paths on and to score on, shuffled: of two data sets, or disjoint parts of one."""

    def read(data: Any) -> Samples:
        return read_samples(
            data, model, data_range=asked.data_range, conditioning=asked.conditioning if data is asked.data else None
        )

    return parts_of(asked, read, seed)


def parts_of(asked: Asked, read: Callable[[Any], P], seed: int) -> tuple[P, P]:
    """Do the same as `split` for data of any kind, read by ``read``."""
    import numpy as np

    samples, heldout_samples, defaults = asked.samples, asked.heldout_samples, asked.defaults
    gathered = read(asked.data)
    order = np.random.default_rng(seed).permutation(len(gathered)).tolist()
    if asked.heldout is not None:
        other = read(asked.heldout)
        other_order = np.random.default_rng(seed + 1).permutation(len(other)).tolist()
        wanted = min(defaults[0], len(gathered)) if samples is None else samples
        other_wanted = min(defaults[1], len(other)) if heldout_samples is None else heldout_samples
        _check_enough(wanted, len(gathered), "DATA")
        _check_enough(other_wanted, len(other), "--heldout")
        return gathered.take(order[:wanted]), other.take(other_order[:other_wanted])
    if len(gathered) < 2:
        raise ValueError(
            "DATA holds one sample, which cannot both choose the path and score it. Give more samples, or --heldout."
        )
    wanted = min(defaults[0], len(gathered) // 2) if samples is None else samples
    other_wanted = min(defaults[1], len(gathered) - wanted) if heldout_samples is None else heldout_samples
    _check_enough(wanted + max(other_wanted, 1), len(gathered), "DATA (to choose and to score)")
    return gathered.take(order[:wanted]), gathered.take(order[wanted : wanted + other_wanted])


def job_of(loaded: LoadedModel | MaskedSource, asked: Asked, request: Any, output: Path, **how: Any) -> Any:
    """Prepare the job of a model of any kind; the model names the module that does it."""
    return import_module(loaded.FINDING).prepare_asked(loaded, asked, request, output, **how)


def _check_enough(wanted: int, available: int, name: str) -> None:
    if wanted > available:
        raise ValueError(
            f"{name} must have {wanted} samples, as asked for, but has {available}. Lower --samples or --heldout-samples, or "
            "give more data."
        )
