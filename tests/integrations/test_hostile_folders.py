"""Folders of diffusers made to run code, by every way in which diffusers and transformers open files.

`torch.load` is replaced by one without its own guard, as it is in versions where that guard can be escaped: whatever reaches
it leaves a mark.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pipelines
import pytest
import torch
from safetensors.torch import load_file, save_file
from saved_folders import CODE, TEXT, UNET, bomb, change, config_with, index_with, only

import dpstride
from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.loaded import UnsupportedModelError
from dpstride.training.export import export_model
from dpstride.training.objectives import setting_of
from dpstride.zoo.models import load_folder

pytestmark = pytest.mark.attack("diffusers folders that bring code")


@pytest.fixture(autouse=True)
def escaped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What is made by code that ran, and by torch.load, which lets everything through."""
    original = torch.load

    def load(file: Any, **arguments: Any) -> Any:
        (tmp_path / "ran").mkdir(exist_ok=True)
        return original(file, **{**arguments, "weights_only": False})

    monkeypatch.setattr(torch, "load", load)
    return tmp_path / "ran"


def pickled(part: str, stem: str, *decoys: str) -> Callable[[Path], None]:
    """A part whose weights are a pickle, beside real safetensors under names that the libraries do not look for."""

    def edit(folder: Path) -> None:
        (weights,) = (folder / part).glob("*.safetensors")
        content = weights.read_bytes()
        bomb(only(folder / part, f"{stem}.bin"))
        for decoy in decoys:
            (folder / part / decoy).write_bytes(content)

    return edit


def without_a_weight(part: str) -> Callable[[Path], None]:
    """The last of its weights is another one of the same shape, so that neither their number nor their size tells."""

    def edit(folder: Path) -> None:
        (path,) = (folder / part).glob("*.safetensors")
        weights = load_file(path)
        weights["elsewhere"] = weights.pop(sorted(name for name in weights if name.endswith("weight"))[-1])
        save_file(weights, path, metadata={"format": "pt"})

    return edit


def index_to_pickles(folder: Path) -> None:
    bomb(only(folder / "unet", f"{UNET}-00001-of-00001.bin"))
    weight_map = {"conv_in.weight": f"{UNET}-00001-of-00001.bin"}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "unet" / f"{UNET}.safetensors.index.json").write_text(json.dumps(index))


def pickled_shards(folder: Path) -> None:
    bomb(only(folder / "text_encoder", f"{TEXT}-00001-of-00001.bin"))
    weight_map = {"conv_in.weight": f"{TEXT}-00001-of-00001.bin"}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "text_encoder" / f"{TEXT}.bin.index.json").write_text(json.dumps(index))


def shards_at(place: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        bomb(folder / "evil.bin")
        only(folder / "unet", "")
        named = place.format(folder)
        index = {"metadata": {"total_size": 1}, "weight_map": {"conv_in.weight": named}}
        (folder / "unet" / f"{UNET}.safetensors.index.json").write_text(json.dumps(index))

    return edit


def nested_pipeline(folder: Path) -> None:
    """The U-Net is a pipeline, whose own U-Net is a pickle."""
    inner = diffusers.DDPMPipeline(pipelines.unet(), diffusers.DDPMScheduler(20))
    shutil.rmtree(folder / "unet")
    inner.save_pretrained(folder / "unet")
    bomb(only(folder / "unet" / "unet", f"{UNET}.bin"))
    change(folder / "model_index.json", unet=["diffusers", "DDPMPipeline"])


def linked_part(folder: Path) -> None:
    outside = folder.parent / "elsewhere"
    shutil.move(folder / "unet", outside)
    (folder / "unet").symlink_to(outside)


def linked_weights(folder: Path) -> None:
    outside = folder.parent / "elsewhere.safetensors"
    shutil.move(folder / "unet" / f"{UNET}.safetensors", outside)
    (folder / "unet" / f"{UNET}.safetensors").symlink_to(outside)


def linked_config(folder: Path) -> None:
    outside = folder.parent / "elsewhere.json"
    shutil.move(folder / "vae" / "config.json", outside)
    (folder / "vae" / "config.json").symlink_to(os.path.relpath(outside, folder / "vae"))


def linked_vocabulary(folder: Path) -> None:
    outside = folder.parent / "elsewhere.json"
    shutil.move(folder / "tokenizer" / "tokenizer.json", outside)
    (folder / "tokenizer" / "tokenizer.json").symlink_to(outside)


def vocabulary_elsewhere(folder: Path) -> None:
    """The tokenizer's config names files outside, and the folder has none of its own."""
    words = json.loads((folder / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"]
    (folder.parent / "vocab.json").write_text(json.dumps(dict(zip(words, reversed(words.values()), strict=True))))
    (folder.parent / "merges.txt").write_text("#version: 0.2\n")
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        (folder / "tokenizer" / name).unlink(missing_ok=True)
    (folder / "tokenizer" / "special_tokens_map.json").write_text("{}")
    outside = {"vocab": str(folder.parent / "vocab.json"), "merges": str(folder.parent / "merges.txt")}
    change(folder / "tokenizer" / "tokenizer_config.json", **outside)


def weights_changed(
    part: str, edit: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (path,) = (folder / part).glob("*.safetensors")
        save_file(edit(load_file(path)), path, metadata={"format": "pt"})

    return write


def shards_that_disagree(part: str, stem: str) -> Callable[[Path], None]:
    """Two shards hold the same tensors, with other numbers."""

    def edit(folder: Path) -> None:
        (path,) = (folder / part).glob("*.safetensors")
        weights = load_file(path)
        path.unlink()
        names = [f"{stem}-0000{number}-of-00002.safetensors" for number in (1, 2)]
        save_file(weights, folder / part / names[0], metadata={"format": "pt"})
        others = {name: value + 1 for name, value in list(weights.items())[:3]}
        save_file(others, folder / part / names[1], metadata={"format": "pt"})
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, names[0]) | {"elsewhere": names[1]}}
        (folder / part / f"{stem}.safetensors.index.json").write_text(json.dumps(index))

    return edit


def pipe_as_config(folder: Path) -> None:
    (folder / "vae" / "config.json").unlink()
    os.mkfifo(folder / "vae" / "config.json")


def code_in(place: str) -> Callable[[Path], None]:
    return lambda folder: (folder / place).write_text(f"open({str(folder.parent / 'ran')!r}, 'w')")  # type: ignore[return-value]


def custom_pipeline(folder: Path) -> None:
    code_in("pipeline.py")(folder)
    change(folder / "model_index.json", _class_name=["pipeline", "StableDiffusionPipeline"])


OUTSIDE = "leads out of the folder"
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    **{
        f"a pickle as the {part}, beside {decoy}": (pickled(part, stem, decoy), CODE)
        for part, stem, decoys in (
            ("unet", UNET, ("model.safetensors", f"{UNET}.fp16.safetensors", f"{UNET}-old.safetensors")),
            ("vae", UNET, (f"{UNET}.non_ema.safetensors", f"{UNET}_.safetensors", f"{UNET}.SAFETENSORS")),
            ("text_encoder", TEXT, (f"{UNET}.safetensors", f"{TEXT}.safetensors", "model.fp16.safetensors")),
            ("text_encoder", TEXT, ("Model.safetensors", f"{TEXT}-00001-of-00002.safetensors")),
            ("safety_checker", TEXT, (f"{TEXT}.safetensors", "model.fp16.safetensors")),
        )
        for decoy in decoys
    },
    "an index of safetensors that names a pickle": (
        index_to_pickles,
        r"file next to it, ending in \.safetensors",
    ),
    "an index of pickles": (pickled_shards, CODE),
    "shards above": (shards_at("../evil.bin"), r"'\.\./evil\.bin' is not the name of a file next to it"),
    "shards at an absolute path": (shards_at("{}/evil.bin"), "is not the name of a file next to it"),
    "a pipeline as the U-Net": (
        nested_pipeline,
        r"'unet' is \['diffusers', 'DDPMPipeline'\], but it must be UNet2DModel",
    ),
    "a pipeline as one more part": (
        index_with(prior=["diffusers", "DiffusionPipeline"]),
        "'prior' is not the name of a part",
    ),
    "a pipeline by its base class": (index_with(vae=["diffusers", "DiffusionPipeline"]), "but it must be"),
    "a runtime of others": (index_with(vae=["diffusers", "OnnxRuntimeModel"]), "but it must be"),
    "a module as a class": (index_with(vae=["diffusers", "utils"]), "but it must be"),
    "a function as a class": (index_with(text_encoder=["transformers", "pipeline"]), "but it must be"),
    "a class that picks a class": (index_with(text_encoder=["transformers", "AutoModel"]), "but it must be"),
    "a tokenizer that picks a class": (index_with(tokenizer=["transformers", "AutoTokenizer"]), "but it must be"),
    "a network as the scheduler": (index_with(scheduler=["diffusers", "UNet2DModel"]), "but it must be a scheduler"),
    "half a part": (index_with(vae=[None, "AutoencoderKL"]), "but it must be"),
    "an empty part": (index_with(vae=[]), "but it must be"),
    "a library of lists": (index_with(vae=[["diffusers"], {}]), "but it must be"),
    "a safety checker of others": (index_with(safety_checker=["safety", "Checker"]), "but it must be from diffusers"),
    "an unknown class": (index_with(unet=["diffusers", "NoSuchNetwork"]), "but it must be"),
    "an unknown part": (
        index_with(controlnet=["diffusers", "ControlNetModel"]),
        "'controlnet' is not the name of a part",
    ),
    "a part linked from elsewhere": (linked_part, OUTSIDE),
    "weights linked from elsewhere": (linked_weights, OUTSIDE),
    "a config linked from elsewhere": (linked_config, OUTSIDE),
    "a vocabulary linked from elsewhere": (linked_vocabulary, OUTSIDE),
    "a pipeline of its own": (custom_pipeline, "is not a pipeline that dpstride knows"),
    "code beside a tokenizer": (code_in("tokenizer/tokenization_mine.py"), "code next to a model's files"),
    "code beside a safety checker": (code_in("safety_checker/safety.py"), "code next to a model's files"),
    "code named in a tokenizer": (
        config_with("tokenizer", "tokenizer_config.json", auto_map={"AutoTokenizer": ["x.T", None]}),
        "'auto_map' names code",
    ),
    "code named deeper in a config": (
        config_with("text_encoder", text_config={"auto_map": {"AutoModel": "x.M"}}),
        "'auto_map' names code",
    ),
    "kernels of the hub": (
        config_with("text_encoder", _attn_implementation="someone/kernels"),
        "'_attn_implementation' names code",
    ),
    "kernels of the hub, deeper": (
        config_with("text_encoder", vision_config={"attn_implementation": {"": "someone/kernels"}}),
        "'attn_implementation' names code",
    ),
    "quantised weights": (config_with("unet", quantization_config={"quant_method": "x"}), "weights are quantised"),
    "a pipe as a config": (pipe_as_config, r"config\.json: there is no such file"),
    "weights under another name": (
        lambda folder: (folder / "unet" / f"{UNET}.safetensors").rename(folder / "unet" / f"{UNET}.fp16.safetensors"),
        r"has none of .*fp16.*without a variant",
    ),
    **{
        f"weights that {part} lacks": (without_a_weight(part), f"{part}: its weights lack '.*', which would be random")
        for part in ("unet", "vae", "text_encoder")
    },
    "thousands of blocks": (
        config_with("unet", block_out_channels=[8] * 5000, down_block_types=["DownBlock2D"] * 5000),
        "block_out_channels has 5,000 entries, but its weights have only",
    ),
    **{
        f"a part that is {part!r}": (
            index_with(text_encoder=part),
            r"the part 'text_encoder' is .*, not \[library, class\]",
        )
        for part in ("os", "diffusers", None, 3, True)
    },
    "a scheduler of another kind of model": (
        index_with(scheduler=["diffusers", "FlowMatchEulerDiscreteScheduler"]),
        "FlowMatchEulerDiscreteScheduler belongs to a flow-matching model",
    ),
    **{
        f"weights of {part} that its config has no place for": (
            weights_changed(part, lambda weights: weights | {"more": torch.ones(3)}),
            f"{part}: its weights hold 'more', which the network of its config does not have",
        )
        for part in ("unet", "vae")
    },
    "layers that the config leaves out": (
        config_with("unet", transformer_layers_per_block=0),
        "and 79 more, which the network of its config does not have",
    ),
    **{
        f"weights of {part} as whole numbers": (
            weights_changed(
                part, lambda weights: {name: (10 * value).to(torch.int8) for name, value in weights.items()}
            ),
            f"{part}: its weights hold '.*' as whole numbers",
        )
        for part in ("unet", "vae", "text_encoder")
    },
    **{
        f"shards of {part} that disagree": (shards_that_disagree(part, stem), "is in another shard too")
        for part, stem in (("unet", UNET), ("text_encoder", "model"))
    },
    "a config inside a config": (
        config_with("text_encoder", model_type="clip", text_config={"num_hidden_layers": 2**20}),
        "num_hidden_layers = 1048576, but its weights have only",
    ),
    "quantised weights, deeper": (
        config_with("text_encoder", model_type="clip", text_config={"quantization_config": {"quant_method": "x"}}),
        "weights are quantised",
    ),
    "names for a thousand million labels": (
        config_with("text_encoder", num_labels=2**30),
        "num_labels = 1,073,741,824",
    ),
    "a table of as many classes": (config_with("unet", num_class_embeds=2**30), "num_class_embeds = 1,073,741,824"),
    "a scheduler that remembers a thousand million steps": (
        config_with("scheduler", "scheduler_config.json", solver_order=10**9),
        r"scheduler_config\.json: solver_order = 1,000,000,000 is more than the 64",
    ),
    "a scheduler that corrects as many": (
        config_with("scheduler", "scheduler_config.json", predictor_order=2, corrector_order=10**9),
        r"scheduler_config\.json: corrector_order = 1,000,000,000 is more than the 64",
    ),
    **{
        f"prompts of {most!r} tokens": (
            config_with("tokenizer", "tokenizer_config.json", model_max_length=most),
            "model_max_length must be a whole number from 1 to",
        )
        for most in (2**33, 0, -1, "x")
    },
    "a vocabulary named elsewhere": (
        vocabulary_elsewhere,
        "tokenizer: has special_tokens_map.json, which is not a complete",
    ),
    "no vocabulary": (lambda folder: shutil.rmtree(folder / "tokenizer"), "tokenizer: has no vocabulary"),
    "words without their merges": (
        lambda folder: (folder / "tokenizer" / "tokenizer.json").rename(folder / "tokenizer" / "vocab.json"),
        r"tokenizer: has .*vocab\.json.*, which is not a complete vocabulary",
    ),
    "a checkpoint of another kind": (
        lambda folder: (folder / "unet" / f"{UNET}.safetensors").rename(folder / "unet" / f"{UNET}.ckpt"),
        "has none of",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_folder_is_refused_by_name_and_runs_nothing(folder: Path, escaped: Path, case: str) -> None:
    edit, match = REFUSED[case]
    edit(folder)
    with pytest.raises(UnsupportedModelError, match=match) as refusal:
        load_diffusers(folder)
    assert str(folder) in str(refusal.value)
    assert not escaped.exists()


@pytest.mark.parametrize("most", [10**6, 10**30, None])
def test_prompts_longer_than_the_encoder_takes_are_refused(folder: Path, most: int | None) -> None:
    change(folder / "tokenizer" / "tokenizer_config.json", model_max_length=most)
    with pytest.raises(UnsupportedModelError, match="do not take prompts"):
        load_diffusers(folder).encode(torch.zeros(1, 3, 16, 16), ["a"])


def test_a_zoo_folder_is_handed_over_in_the_same_way(tmp_path: Path, escaped: Path) -> None:
    process = dpstride.ForwardProcess.linear(20)
    export_model(pipelines.unet(), process, setting_of("simple"), tmp_path / "model", {"seed": 0})
    load_folder(tmp_path / "model")
    whole = (tmp_path / "model" / "unet" / f"{UNET}.safetensors").read_bytes()
    without_a_weight("unet")(tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match="unet: its weights lack"):
        load_folder(tmp_path / "model")
    (tmp_path / "model" / "unet" / f"{UNET}.safetensors").write_bytes(whole)
    pickled("unet", UNET, f"{UNET}.fp16.safetensors")(tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match=CODE):
        load_folder(tmp_path / "model")
    assert not escaped.exists()
