"""One part of a diffusers folder: the files that its class opens, by name, each checked, and a copy of only these.

A network is a config and weights, a scheduler a config, a tokenizer a config and vocabularies. Weights are taken in the
order in which the library itself looks for them; pickled ones are read by our own reader and copied as safetensors.
Files must be inside the pipeline's folder, links included; code next to them is refused; sizes in a config are compared
with the actual weights.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..reading.checkpoints import check_checkpoint, read_checkpoint
from ..reading.documents import read_json_object
from ..reading.hub_source import lies_in
from ..runs.writing import write_json
from .loaded import UnsupportedModelError
from .part_sizes import check_sizes, entries

Kind = Literal["network", "tokenizer", "scheduler", "unused"]
Library = Literal["diffusers", "transformers"]
CONFIGS: dict[Kind, str] = {
    "network": "config.json",
    "unused": "config.json",
    "scheduler": "scheduler_config.json",
    "tokenizer": "tokenizer_config.json",
}
VOCABULARIES = (
    *("tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "special_tokens_map.json", "added_tokens.json"),
    *("spiece.model", "tokenizer.model", "sentencepiece.bpe.model"),
)
WEIGHTS: dict[Library, tuple[str, ...]] = {  # in the order of each library, which loads the first one found
    "diffusers": (
        "diffusion_pytorch_model.safetensors.index.json",
        "diffusion_pytorch_model.safetensors",
        "diffusion_pytorch_model.bin",
        "diffusion_pytorch_model.bin.index.json",
    ),
    "transformers": (
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ),
}
COPIES: dict[Library, str] = {"diffusers": "diffusion_pytorch_model", "transformers": "model"}
WHOLE = tuple({name} for name in VOCABULARIES if name in ("tokenizer.json", "vocab.txt") or name.endswith(".model"))
NAMES_FILE = re.compile(r"_files?$|^(vocab|merges)$")
MOST_TOKENS, ENDLESS = 1_000_000, 10**29  # of a prompt; tokenizers without a limit declare 10^30
CODE = ("auto_map", "custom_pipelines", "_auto_class", "trust_remote_code", "_custom_pipeline")
LARGE = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".h5", ".onnx")


@dataclass(frozen=True)
class Part:
    """One part of a folder, checked: its config and that file's name, vocabularies, and files of weights."""

    config_name: str
    config: Mapping[str, Any] | None
    vocabularies: tuple[Path, ...]
    weights: tuple[Path, ...]
    stem: str

    def write(self, target: Path) -> None:
        """Write the part to the new folder ``target``, weights as safetensors."""
        target.mkdir()
        if self.config is not None:
            write_json(target / self.config_name, self.config)
        for path in self.vocabularies:
            _link(path, target / path.name)
        count = len(self.weights)
        weight_map: dict[str, str] = {}
        for number, path in enumerate(self.weights, start=1):
            name = f"{self.stem}-{number:05}-of-{count:05}.safetensors" if count > 1 else f"{self.stem}.safetensors"
            held = _write_weights(path, target / name)
            if twice := sorted(weight_map.keys() & set(held)):
                raise UnsupportedModelError(f"{path}: {twice[0]!r:.80} is in another shard too. Save the model again.")
            weight_map |= dict.fromkeys(held, name)
        if count > 1:
            size = sum(path.stat().st_size for path in self.weights)
            index = {"metadata": {"total_size": size}, "weight_map": weight_map}
            write_json(target / f"{self.stem}.safetensors.index.json", index)


def read_part(folder: Path, root: Path, kind: Kind, library: Library) -> Part:
    """Return the files of a part in ``folder``, which is in ``root``; raise unless they are data of plausible size."""
    check_inside(folder, root)
    if code := sorted(path.name for path in folder.iterdir() if path.suffix.lower() == ".py"):
        raise UnsupportedModelError(
            f"{folder / code[0]}: code next to a model's files is not run. Remove it to load the rest."
        )
    if (folder / "adapter_config.json").exists():
        raise UnsupportedModelError(
            f"{folder / 'adapter_config.json'}: adapters are loaded from elsewhere. Merge them first."
        )
    weights = _find_weights(folder, root, library) if kind in ("network", "unused") else ()
    if kind == "network" and not weights:
        found = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in LARGE)
        raise UnsupportedModelError(
            f"{folder}: has none of {', '.join(WEIGHTS[library])}, but {', '.join(found[:3]) or 'no weights'}. Save it "
            "again with save_pretrained, without a variant (fp16 and the like), or load the pipeline yourself and give the "
            "object to load_diffusers."
        )
    tensors = sum(check_checkpoint(path) if path.suffix == ".bin" else len(types_in(path)) for path in weights)
    config_file = folder / CONFIGS[kind]
    config = None
    if config_file.is_file():
        check_inside(config_file, root)
        config = read_json_object(config_file)
        check_no_code(config, str(config_file))
        check_sizes(config, tensors, config_file)
    elif kind in ("network", "scheduler"):
        raise UnsupportedModelError(
            f"{config_file}: there is no such file. Save the pipeline again with save_pretrained."
        )
    if kind == "network" and any(value for name, value in entries(config or {}) if name == "quantization_config"):
        raise UnsupportedModelError(
            f"{config_file}: the weights are quantised, which other packages unpack. Load the pipeline yourself and give the "
            "object to load_diffusers."
        )
    vocabularies = []
    if kind == "tokenizer":
        # Entries that name files refer to other places; transformers has opened them without checks.
        config = {name: value for name, value in (config or {}).items() if not NAMES_FILE.search(name)}
        vocabularies = [folder / name for name in VOCABULARIES if (folder / name).is_file()]
        for path in vocabularies:
            check_inside(path, root)
        _check_tokenizer(config, {path.name for path in vocabularies}, folder)
    return Part(config_file.name, config, tuple(vocabularies), weights, stem=COPIES[library])


def check_inside(path: Path, root: Path) -> None:
    """Raise if links lead from ``path`` out of the folder ``root``, other than into the hub's cache that it is part of."""
    if not lies_in(path, root):
        raise UnsupportedModelError(
            f"{path}: it leads out of the folder {root}, to {path.resolve()}. Copy what belongs to the model into its folder."
        )


def check_no_code(config: Mapping[str, Any], path: str) -> None:
    """Raise if a config, at any depth, names code that comes with a model or from the hub."""
    for name, value in entries(config):
        # An implementation is a known name or a repository of kernels.
        if (name in CODE and value) or ("_implementation" in name and "/" in str(value)):
            raise UnsupportedModelError(
                f"{path}: {name!r} names code that comes with the model, which is not run. If you trust it, write "
                "package.module:function that returns a dpstride.Denoiser."
            )


def _check_tokenizer(config: Mapping[str, Any], there: set[str], folder: Path) -> None:
    """Raise if prompts would be tokenized without a full vocabulary, or padded to an excessive length."""
    if there and not any(whole <= there for whole in (*WHOLE, {"vocab.json", "merges.txt"})):
        raise UnsupportedModelError(
            f"{folder}: has {', '.join(sorted(there))}, which is not a complete vocabulary; prompts would lose their words. "
            "Save the tokenizer again with save_pretrained."
        )
    most = ENDLESS if (found := config.get("model_max_length")) is None else found
    if (
        isinstance(most, bool)
        or not isinstance(most, (int, float))
        or not (1 <= most <= MOST_TOKENS or most >= ENDLESS)
    ):
        raise UnsupportedModelError(
            f"{folder / CONFIGS['tokenizer']}: model_max_length must be a whole number from 1 to {MOST_TOKENS:,}, not "
            f"{most!r:.40}."
        )


def _find_weights(folder: Path, root: Path, library: Library) -> tuple[Path, ...]:
    """Return the files that the library would load for this part, including shards."""
    for name in WEIGHTS[library]:
        path = folder / name
        if path.is_file():
            check_inside(path, root)
            return _find_shards(path, root) if path.suffix == ".json" else (path,)
    return ()


def _find_shards(index: Path, root: Path) -> tuple[Path, ...]:
    suffix = Path(index.name.removesuffix(".index.json")).suffix
    shards = read_json_object(index).get("weight_map")
    names = sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else []
    for name in names or ["no weight_map"]:
        path = index.parent / name
        if os.path.basename(name) != name or path.suffix != suffix or not path.is_file():
            raise UnsupportedModelError(
                f"{index}: {name!r:.80} is not the name of a file next to it, ending in {suffix}."
            )
        check_inside(path, root)
    return tuple(index.parent / name for name in names)


def types_in(path: Path) -> dict[str, str]:
    """Return the types of the tensors in a safetensors file by name; only its header is read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  # no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise UnsupportedModelError(f"{path}: not a whole safetensors file ({error!s:.300}).") from error


def _write_weights(source: Path, target: Path) -> list[str]:
    """Write weights to ``target`` as safetensors, and return the names of the tensors."""
    if source.suffix != ".bin":
        _link(source, target)
        return list(types_in(source))
    import torch
    from safetensors.torch import save_file

    state = read_checkpoint(source)
    # Tensors of a pickle may share memory, which safetensors does not support.
    apart = {name: state.pop(name).clone(memory_format=torch.contiguous_format) for name in list(state)}
    save_file(apart, target, metadata={"format": "pt"})
    return list(apart)


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # a system without links
        shutil.copyfile(source, target)
