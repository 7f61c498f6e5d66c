"""A diffusers folder, read before diffusers reads it: everything in it that could run code or take memory without bound.

diffusers and transformers import what a model_index.json names, follow file names in index files, and build a network
as large as its config says. Here only known pipelines of known libraries pass, code beside weights is refused, file names
stay inside their folder, weights are checked without unpickling, and sizes are compared with the weights that are there.
``trust_remote_code`` is never set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..reading.checkpoints import check_checkpoint
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from .loaded import UnsupportedModelError
from .scheduler_config import steps_of

# Where the parts of known pipelines come from: [library, class] in model_index.json.
LIBRARIES = ("diffusers", "transformers")
OWN = ("dpstride.integrations.openai_unet", "OpenAIUNet2DModel")  # what `save_as_diffusers` writes
SAFETY_CHECKER = ("stable_diffusion", "StableDiffusionSafetyChecker")
CODE = ("auto_map", "custom_pipelines", "_auto_class", "trust_remote_code", "_custom_pipeline")
WEIGHTS = ("diffusion_pytorch_model", "pytorch_model", "model")
MOST_POSITIONS = 2**27  # numbers in a table of positions, which a transformer computes whatever its weights are


def check_pipeline_folder(folder: Path, pipelines: tuple[str, ...]) -> None:
    """Raise `UnsupportedModelError` unless the folder holds one of ``pipelines`` and nothing but data."""
    try:
        index = read_json_object(folder / "model_index.json")
        check_index(index, pipelines, str(folder / "model_index.json"))
        for name, part in index.items():
            if isinstance(part, list) and part[0] is not None:
                check_part_folder(folder / name if (folder / name).is_dir() else folder)
    except UnreadableFileError as error:
        raise UnsupportedModelError(str(error)) from error


def check_index(index: Mapping[str, Any], pipelines: tuple[str, ...], path: str) -> None:
    """Raise unless model_index.json names a known pipeline made of parts of known libraries."""
    if (found := index.get("_class_name")) not in pipelines:
        raise UnsupportedModelError(
            f"{path}: {found!r:.80} is not a pipeline that dpstride knows; it knows {', '.join(pipelines)}. If its network "
            "estimates clean data from (x, time), wrap it: dpstride.Denoiser(lambda x, time: …, process)."
        )
    _check_no_code(index, path)
    for name, part in index.items():
        if name.startswith("_") or not isinstance(part, list):
            if isinstance(part, dict):
                raise UnsupportedModelError(f"{path}: the part {name!r:.80} is an object, not [library, class].")
            continue
        if not name.isidentifier():
            raise UnsupportedModelError(f"{path}: {name!r:.80} is not the name of a part, which is also its folder.")
        known = len(part) == 2 and (
            part == [None, None]
            or tuple(part) in (OWN, SAFETY_CHECKER)
            or (part[0] in LIBRARIES and isinstance(part[1], str) and part[1].isidentifier())
        )
        if not known:
            raise UnsupportedModelError(
                f"{path}: the part {name!r} is {part!r:.120}. Parts come from {', '.join(LIBRARIES)}; code that a folder "
                "brings along is not run. If you trust it, write package.module:function that returns a dpstride.Denoiser."
            )


def check_part_folder(folder: Path) -> None:
    """Raise unless the folder of one network, scheduler or tokenizer holds data only, of plausible size."""
    if code := sorted(path.name for path in folder.iterdir() if path.suffix == ".py"):
        raise UnsupportedModelError(
            f"{folder / code[0]}: code beside a model's files is not run. Remove it to load the rest."
        )
    if (folder / "adapter_config.json").exists():
        raise UnsupportedModelError(
            f"{folder / 'adapter_config.json'}: adapters are loaded from elsewhere. Merge them first."
        )
    tensors = sum(_check_weights(path) for path in _weight_files(folder))
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith(".index.json"):
            _check_shards(path)
        elif path.name == "config.json" or path.name.endswith("_config.json"):
            config = read_json_object(path)
            _check_no_code(config, str(path))
            _check_sizes(config, tensors, path)


def _weight_files(folder: Path) -> list[Path]:
    """Files that would be loaded: safetensors, or where there are none, torch's own."""
    named = [path for path in sorted(folder.iterdir()) if path.name.startswith(WEIGHTS)]
    return [path for path in named if path.suffix == ".safetensors"] or [p for p in named if p.suffix == ".bin"]


def _check_weights(path: Path) -> int:
    """The number of tensors in a file of weights."""
    if path.suffix == ".bin":
        return check_checkpoint(path)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return len(list(file.keys()))
    except (SafetensorError, OSError, ValueError) as error:
        raise UnsupportedModelError(f"{path}: not a whole safetensors file ({error!s:.300}).") from error


def _check_shards(path: Path) -> None:
    shards = read_json_object(path).get("weight_map")
    names = set(map(str, shards.values())) if isinstance(shards, dict) else {"no weight_map"}
    for name in sorted(names):
        if os.path.basename(name) != name or name in ("", ".", "..") or not (path.parent / name).is_file():
            raise UnsupportedModelError(f"{path}: {name!r:.80} is not the name of a file beside it.")


def _check_no_code(config: Mapping[str, Any], path: str) -> None:
    if named := [name for name in CODE if config.get(name)]:
        raise UnsupportedModelError(
            f"{path}: {named[0]!r} names code that comes with the model, which is not run. If you trust it, write "
            "package.module:function that returns a dpstride.Denoiser."
        )


def _check_sizes(config: Mapping[str, Any], tensors: int, path: Path) -> None:
    """Raise where the config asks for more than its weights can fill; everything else is compared when they are loaded."""
    if config.get("num_train_timesteps") is not None:
        try:
            steps_of(config)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{path}: {error}") from error
    for name, value in config.items():
        if "layers" in name or "num_blocks" in name:
            for number in _numbers(value):
                if number > max(tensors, 64):
                    raise UnsupportedModelError(
                        f"{path}: {name} = {number}, but its weights have only {tensors} tensors. The config is damaged."
                    )
    if "patch_size" in config:
        patch = max(_numbers(config["patch_size"]), default=1)
        side = max((n for key in ("sample_size", "pos_embed_max_size") for n in _numbers(config.get(key))), default=1)
        width = max(_numbers(config.get("num_attention_heads")), default=1) * max(
            _numbers(config.get("attention_head_dim")), default=1
        )
        if patch < 1 or (side // patch) ** 2 * width > MOST_POSITIONS:
            raise UnsupportedModelError(
                f"{path}: sample_size {side} in patches of {patch} is a table of too many positions."
            )


def _numbers(value: Any) -> list[Any]:
    """Numbers in a value, in a list, or in lists of lists."""
    level, found = [value], []
    while level:
        item = level.pop()
        if isinstance(item, list):
            level.extend(item)
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            found.append(item)
    return found
