"""Stage 3. Data from files: arrays, tensors, folders of images, or a function of the user's own.

Nothing here runs code that a file brings along: arrays are read without pickle, tensors with ``weights_only``. The one
stated exception is ``package.module:function``, which is the user's own code.
"""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
CHANNELS = (1, 3, 4)
DATA_KEYS = ("images", "x", "arr_0")


def read_data(source: str | os.PathLike[str]) -> Any:
    """Data for `estimate`: a tensor, or a pair (tensor, conditioning), from a file, a folder or a function.

    * ``.npy``, ``.npz``, ``.pt``, ``.safetensors``: one array [N, …]; of several, ``images`` (or ``x``, ``arr_0``) is the
      data and every other is conditioning under its own name.
    * a folder: all images below it, in order of their paths, of one size; grey ones have 1 channel, others 3.
    * ``package.module:function``: whatever the function returns.

    Arrays of images with channels last (last axis 1, 3 or 4, second axis not) are turned to channels first.
    """
    text = os.fspath(source)
    path = Path(text)
    if path.is_dir():
        return _read_folder(path)
    if path.is_file():
        match path.suffix.lower():
            case ".npy" | ".npz":
                return _pick(_load_numpy(path), path)
            case ".pt" | ".pth":
                return _read_torch(path)
            case ".safetensors":
                from safetensors import SafetensorError
                from safetensors.torch import load_file

                try:
                    return _pick(load_file(path), path)
                except SafetensorError as error:
                    raise ValueError(f"{path}: not a whole safetensors file ({error}).") from error
            case suffix:
                raise ValueError(
                    f"{path}: data with the ending {suffix!r} cannot be read. Use .npy, .npz, .pt, .safetensors, a folder "
                    "of images, or package.module:function."
                )
    if ":" in text:
        return import_function(text)()
    raise ValueError(
        f"DATA {text!r} is neither a file nor a folder. Use .npy, .npz, .pt, .safetensors, a folder of images, a zoo name "
        "or package.module:function."
    )


def import_function(text: str) -> Callable[..., Any]:
    """The function named by ``package.module:function``; modules in the working folder are found too."""
    module_name, _, function_name = text.partition(":")
    if not module_name or not function_name:
        raise ValueError(f"{text!r} must be package.module:function.")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"{text!r}: the module {module_name!r} cannot be imported ({error}). Run from its folder, or install it."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"{text!r}: the module {module_name!r} has no function {function_name!r}.")
    return function  # type: ignore[no-any-return]


def _load_numpy(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return (
                {"images": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
            )
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: not a readable numpy file ({error}). Pickled objects are refused; save plain arrays."
        ) from error


def _read_torch(path: Path) -> Any:
    import pickle

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ValueError(
            f"{path}: not a plain tensor file ({str(error).splitlines()[0]}). Save tensors only."
        ) from error
    if isinstance(loaded, Tensor):
        return _channels_first(loaded)
    if isinstance(loaded, dict) and all(isinstance(value, Tensor) for value in loaded.values()):
        return _pick(loaded, path)
    raise ValueError(f"{path}: holds {type(loaded).__name__}, not a tensor or a dict of tensors.")


def _pick(arrays: dict[str, Any], path: Path) -> Any:
    """The data among named arrays; the others are its conditioning."""
    if len(arrays) == 1:
        return _channels_first(next(iter(arrays.values())))
    for key in DATA_KEYS:
        if key in arrays:
            conditioning = {name: value for name, value in arrays.items() if name != key}
            return _channels_first(arrays[key]), conditioning
    raise ValueError(
        f"{path}: holds {', '.join(sorted(arrays)) or 'no array'}, and none is named {', '.join(DATA_KEYS)}. Name the data "
        "'images'; other arrays are passed to the network as conditioning under their own names."
    )


def _channels_first(array: npt.NDArray[Any] | Tensor) -> npt.NDArray[Any] | Tensor:
    if array.ndim == 3 and array.dtype in (np.uint8, torch.uint8):
        return array[:, None]  # grey images without a channel axis
    if array.ndim == 4 and array.shape[-1] in CHANNELS and array.shape[1] not in CHANNELS:
        return array.permute(0, 3, 1, 2) if isinstance(array, Tensor) else np.moveaxis(array, -1, 1)
    return array


def _read_folder(folder: Path) -> Tensor:
    from PIL import Image, UnidentifiedImageError

    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if not paths:
        raise ValueError(f"{folder}: no image found below it ({', '.join(sorted(IMAGE_SUFFIXES))}).")
    images, grey = [], True
    for path in paths:
        try:
            with Image.open(path) as image:
                images.append(image.copy())
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise ValueError(f"{path}: not a readable image ({error}). Remove or repair it.") from error
        grey = grey and images[-1].mode in ("L", "1")
        if images[-1].size != images[0].size:
            raise ValueError(
                f"All images must have one size, but {paths[0].name} is {images[0].size} and {path.name} is "
                f"{images[-1].size}. Resize them first; the model sees one size."
            )
    mode = "L" if grey else "RGB"
    array = np.stack([np.asarray(image.convert(mode)) for image in images])
    return torch.from_numpy(array[:, None] if grey else np.ascontiguousarray(np.moveaxis(array, -1, 1)))
