"""Stage 3. Data from files: arrays, tensors, folders of images, or a function of the user's own.

Nothing here runs code that comes with a file: files are read by `dpstride.reading`, which unpickles nothing. The one
exception is ``package.module:function``, which is the user's own code.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..reading.arrays import read_npy, read_npz
from ..reading.checkpoints import read_checkpoint
from ..reading.cifar import cifar_files, is_batch, read_cifar
from ..reading.hints import hint, module_hint, path_hint
from ..reading.hub import read_hub
from ..reading.hub_source import FORM, is_hub
from ..reading.images import OTHER_SUFFIXES, SUFFIXES, measure_image, read_image, stack_images
from ..reading.limits import UnreadableFileError, check_unpacked
from .axes import has_channels_last, warn_about_channels, warn_about_one_image

DATA_KEYS = ("images", "x", "arr_0")
WAYS = (
    "Use .npy, .npz, .pt, .safetensors, CIFAR's own files, a folder of them or of images, a zoo name, hub:OWNER/NAME or "
    "package.module:function."
)


def read_data(source: str | os.PathLike[str], *, labels: bool = False) -> Any:
    """`dpstride.read_data` of everything but the names of embedded data sets."""
    text = os.fspath(source)
    path = Path(text)
    if os.path.isdir(path) or (os.path.isfile(path) and (path.suffix.lower() == ".bin" or is_batch(path))):
        images, classes = _read_labelled(path)
        if labels and classes is None:
            raise ValueError(
                f"{path}: these images have no labels. Put each class into a folder of its own, or name a file of labels with "
                "--conditioning."
            )
        return (images, classes) if labels else images
    if os.path.isfile(path):
        data = _read_file(path)
        if labels and not isinstance(data, tuple):
            raise ValueError(
                f"{path}: holds no labels. Save them beside the images: np.savez(file, images=…, labels=…), or name a file of "
                "labels with --conditioning."
            )
        return data
    if is_hub(text):
        return _read_hub(text, labels)
    if ":" in text:
        return import_function(text)()
    suggestion = path_hint(path)
    if not suggestion and re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        suggestion = f" If it is a data set of the Hugging Face hub, use hub:{text}."
    raise ValueError(f"DATA {text!r:.200} is neither a file nor a folder.{suggestion} {WAYS}")


def _read_hub(text: str, labels: bool) -> Any:
    found = read_hub(text, labels=labels)
    x = _channels_first(torch.from_numpy(found.values))
    classes = None if found.labels is None else torch.from_numpy(found.labels)
    if found.prompts is not None:
        return x, {"prompts": found.prompts, **({"labels": classes} if labels else {})}
    return (x, classes) if labels else x


def _read_file(path: Path) -> Any:
    match path.suffix.lower():
        case ".npy":
            return _channels_first(read_npy(path))
        case ".npz":
            return _pick(read_npz(path), path)
        case ".pt" | ".pth":
            return _read_torch(path)
        case ".safetensors":
            return _pick(_read_safetensors(path), path)
        case ".gz" | ".tgz" | ".tar" | ".zip" | ".xz":
            raise ValueError(
                f"{path}: archives are not read. Unpack it (tar xf {path.name:.80}) and give its contents."
            )
        case ".csv" | ".tsv" as suffix:
            comma = "," if suffix == ".csv" else r"\t"
            raise ValueError(
                f"{path}: text tables are not read. Save the numbers as an array; with one header line, by "
                f"np.save('{path.stem:.80}.npy', np.loadtxt('{path.name:.80}', delimiter='{comma}', skiprows=1))."
            )
        case suffix:
            raise ValueError(f"{path}: data with the ending {suffix!r:.40} cannot be read. {WAYS}")


def import_function(text: str) -> Callable[..., Any]:
    """The function named by ``package.module:function``; modules in the working folder are found too."""
    module_name, _, function_name = text.partition(":")
    if module_name.endswith(".py"):
        raise ValueError(
            f"{text!r:.200}: name the module without .py: {module_name.removesuffix('.py')}:{function_name}."
        )
    if not all(part.isidentifier() for part in (*module_name.split("."), function_name)):
        raise ValueError(f"{text!r:.200} must be package.module:function.")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a file there must not stand in for an installed package
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        suggestion = module_hint(text, Path.cwd()) if error.name == module_name else ""
        raise ValueError(
            f"{text!r}: the module {module_name!r} cannot be imported ({error})."
            f"{suggestion or (f' {FORM}' if module_name == 'hub' else ' Run from its folder, or install it.')}"
        ) from error
    if not hasattr(module, function_name):
        suggestion = hint(text, (f"{module_name}:{name}" for name in vars(module) if not name.startswith("_")))
        raise ValueError(f"{text!r}: the module {module_name!r} has no function {function_name!r}.{suggestion}")
    function = getattr(module, function_name)
    if not callable(function):
        raise ValueError(
            f"{text!r}: {function_name!r} is a {type(function).__name__}, not a function. Name a function that returns it."
        )
    return function  # type: ignore[no-any-return]


def _read_torch(path: Path) -> Any:
    loaded = read_checkpoint(path)
    if isinstance(loaded, Tensor):
        return _channels_first(loaded)
    if isinstance(loaded, dict) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in loaded.items()):
        return _pick(loaded, path)
    raise UnreadableFileError(f"{path}: holds a {type(loaded).__name__}, not a tensor or a dict of named tensors.")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise UnreadableFileError(f"{path}: not a whole safetensors file ({error!s:.300}).") from error


def _pick(arrays: dict[str, Any], path: Path) -> Any:
    """The data among named arrays; the others are its conditioning."""
    if len(arrays) == 1:
        return _channels_first(next(iter(arrays.values())))
    for key in DATA_KEYS:
        if key in arrays:
            conditioning = {name: value for name, value in arrays.items() if name != key}
            return _channels_first(arrays[key]), conditioning
    held = ", ".join(map(repr, sorted(arrays)))[:200] or "no array"
    raise UnreadableFileError(
        f"{path}: holds {held}, and none is named {', '.join(DATA_KEYS)}. Name the data 'images', or 'x' "
        "if they are not images; other arrays are passed to the network as conditioning under their own names."
    )


def _channels_first(array: npt.NDArray[Any] | Tensor) -> npt.NDArray[Any] | Tensor:
    if array.ndim == 3 and array.dtype in (np.uint8, torch.uint8):
        warn_about_one_image(tuple(array.shape), discretised=True)
        return array[:, None]  # grey images without a channel axis
    if array.ndim == 4:
        warn_about_channels(tuple(array.shape))
    if array.ndim == 4 and has_channels_last(tuple(array.shape)):
        return array.permute(0, 3, 1, 2) if isinstance(array, Tensor) else np.moveaxis(array, -1, 1)
    return array


def describe_source(source: str | os.PathLike[str]) -> str:
    """``source`` as typed, with the half that is read if it is a folder of CIFAR."""
    text = os.fspath(source)
    files, half = cifar_files(Path(text)) if Path(text).is_dir() else ([], "")
    return f"{text}, its {half} half" if files else text


def _read_labelled(path: Path) -> tuple[Tensor, Tensor | None]:
    """Images of CIFAR's files or of a folder, and their labels where they have any."""
    files = cifar_files(path)[0] if path.is_dir() else [path]
    if not files:
        return _read_folder(path)
    parts = [read_cifar(file) for file in files]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return torch.from_numpy(images), torch.from_numpy(labels)


def image_paths(folder: Path) -> list[Path]:
    """The images below a folder, in the order in which they are read; broken links are included, and refused when read."""
    named = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES | OTHER_SUFFIXES)
    return sorted(path for path in named if path.is_file() or path.is_symlink())


def _read_folder(folder: Path) -> tuple[Tensor, Tensor | None]:
    paths = image_paths(folder)
    if not paths:
        inside = [each.name for each in sorted(folder.glob("cifar-*")) if each.is_dir()]
        suggestion = f" It holds {inside[0]!r:.80}: give that folder." if inside else ""
        raise UnreadableFileError(f"{folder}: no image found below it ({', '.join(sorted(SUFFIXES))}).{suggestion}")
    return _stack(folder, paths), _labels_of(folder, paths)


def _labels_of(folder: Path, paths: list[Path]) -> Tensor | None:
    """Class labels: the number of each image's folder among those below ``folder``; None if images lie in ``folder``."""
    classes = [path.relative_to(folder).parts[0] for path in paths]
    if any(path.parent == folder for path in paths):
        return None
    numbers = {name: number for number, name in enumerate(sorted(set(classes)))}
    return torch.tensor([numbers[name] for name in classes])


def _stack(folder: Path, paths: list[Path]) -> Tensor:
    sizes = [measure_image(path) for path in paths]
    for path, (height, width, _) in zip(paths, sizes, strict=True):
        if (height, width) != sizes[0][:2]:
            raise UnreadableFileError(
                f"All images must have one size, but {paths[0]} is {sizes[0][1]} × {sizes[0][0]} and {path} is {width} × "
                f"{height}. Resize them first; the model sees one size."
            )
    packed = sum(path.stat().st_size for path in paths)
    check_unpacked(folder, sum(map(math.prod, sizes)), packed, "Save the images as one .npy file.")
    return torch.from_numpy(stack_images([read_image(path) for path in paths]))
