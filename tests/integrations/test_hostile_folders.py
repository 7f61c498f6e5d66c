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
import huggingface_hub
import pipelines
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import dpstride
from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.loaded import UnsupportedModelError
from dpstride.training.export import export_model
from dpstride.training.objectives import setting_of
from dpstride.zoo.models import load_folder

pytestmark = pytest.mark.attack("diffusers folders that bring code")

UNET = "diffusion_pytorch_model"
TEXT = "pytorch_model"


class Runs:
    """A pickle that makes a folder when it is run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


@pytest.fixture(autouse=True)
def escaped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What is made by code that ran, and by torch.load, which lets everything through."""
    original = torch.load

    def load(file: Any, **arguments: Any) -> Any:
        (tmp_path / "ran").mkdir(exist_ok=True)
        return original(file, **{**arguments, "weights_only": False})

    monkeypatch.setattr(torch, "load", load)
    return tmp_path / "ran"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline with every kind of part."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    pipeline = pipelines.stable_diffusion(diffusers.DDIMScheduler(20, steps_offset=1, clip_sample=False))
    pipeline.register_modules(safety_checker=_safety_checker(), feature_extractor=transformers.CLIPImageProcessor())
    pipeline.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def _safety_checker() -> Any:
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker

    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        vision_config={**vision, "image_size": 8, "patch_size": 4}, text_config={}, projection_dim=8
    )
    return StableDiffusionSafetyChecker(config)


def bomb(path: Path) -> None:
    """Weights that run code, at ``path``."""
    root = next(parent for parent in path.parents if parent.name == "model").parent
    torch.save({"conv_in.weight": Runs(root / "ran")}, path)


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def only(folder: Path, name: str) -> Path:
    """``folder`` without weights, and the path of ``name`` in it."""
    for path in folder.glob("*.safetensors"):
        path.unlink()
    return folder / name


def pickled(part: str, stem: str, *decoys: str) -> Callable[[Path], None]:
    """A part whose weights are a pickle, beside real safetensors under names that the libraries do not look for."""

    def edit(folder: Path) -> None:
        (weights,) = (folder / part).glob("*.safetensors")
        content = weights.read_bytes()
        bomb(only(folder / part, f"{stem}.bin"))
        for decoy in decoys:
            (folder / part / decoy).write_bytes(content)

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


def config_with(part: str, name: str = "config.json", **entries: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / part / name, **entries)


def pipe_as_config(folder: Path) -> None:
    (folder / "vae" / "config.json").unlink()
    os.mkfifo(folder / "vae" / "config.json")


def index_with(**entries: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / "model_index.json", **entries)


def code_in(place: str) -> Callable[[Path], None]:
    return lambda folder: (folder / place).write_text(f"open({str(folder.parent / 'ran')!r}, 'w')")  # type: ignore[return-value]


def custom_pipeline(folder: Path) -> None:
    code_in("pipeline.py")(folder)
    change(folder / "model_index.json", _class_name=["pipeline", "StableDiffusionPipeline"])


CODE = "no code in it is run: it names"
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
        r"file beside it, ending in \.safetensors",
    ),
    "an index of pickles": (pickled_shards, CODE),
    "shards above": (shards_at("../evil.bin"), r"'\.\./evil\.bin' is not the name of a file beside it"),
    "shards at an absolute path": (shards_at("{}/evil.bin"), "is not the name of a file beside it"),
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
    "code beside a tokenizer": (code_in("tokenizer/tokenization_mine.py"), "code beside a model's files"),
    "code beside a safety checker": (code_in("safety_checker/safety.py"), "code beside a model's files"),
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


def test_a_zoo_folder_is_handed_over_in_the_same_way(tmp_path: Path, escaped: Path) -> None:
    process = dpstride.ForwardProcess.linear(20)
    export_model(pipelines.unet(), process, setting_of("simple"), tmp_path / "model", {"seed": 0})
    load_folder(tmp_path / "model")
    pickled("unet", UNET, f"{UNET}.fp16.safetensors")(tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match=CODE):
        load_folder(tmp_path / "model")
    assert not escaped.exists()


# --- honest folders --------------------------------------------------------------------------------------------------------


def as_pickles(folder: Path) -> None:
    """Weights of every part as torch.save writes them, some of them sharing memory."""
    for part, stem in (("unet", UNET), ("vae", UNET), ("text_encoder", TEXT), ("safety_checker", TEXT)):
        (weights,) = (folder / part).glob("*.safetensors")
        state = load_file(weights)
        state = {name: torch.stack([value, value])[0] for name, value in state.items()}
        only(folder / part, "")
        torch.save(state, folder / part / f"{stem}.bin")


def as_pickles_beside_decoys(folder: Path) -> None:
    as_pickles(folder)
    save_file({"nothing": torch.zeros(1)}, folder / "unet" / f"{UNET}.fp16.safetensors")


def beside_pickles(folder: Path) -> None:
    """Both kinds, as many repositories have them: safetensors are taken, pickles are not opened."""
    for part, stem in (("unet", UNET), ("vae", UNET), ("text_encoder", TEXT)):
        bomb(folder / part / f"{stem}.bin")


def in_shards(folder: Path, suffix: str = "safetensors") -> None:
    for part, stem, safe in (("unet", UNET, UNET), ("text_encoder", TEXT, "model")):
        (weights,) = (folder / part).glob("*.safetensors")
        state = load_file(weights)
        weights.unlink()
        stem = safe if suffix == "safetensors" else stem
        weight_map = {}
        for number in (1, 2):
            shard = f"{stem}-{number:05}-of-00002.{suffix}"
            some = {name: value for i, (name, value) in enumerate(sorted(state.items())) if i % 2 == number - 1}
            save_file(some, folder / part / shard) if suffix == "safetensors" else torch.save(
                some, folder / part / shard
            )
            weight_map |= dict.fromkeys(some, shard)
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (folder / part / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))


def without_unused(folder: Path) -> None:
    shutil.rmtree(folder / "safety_checker")


def with_files_named(folder: Path) -> None:
    """As configs of older versions have them; nothing is there."""
    names = {
        "vocab_file": "/nowhere/vocab.json",
        "tokenizer_file": "../../x.json",
        "special_tokens_map_file": "./x.json",
    }
    change(folder / "tokenizer" / "tokenizer_config.json", **names, fast_tokenizer_files=["tokenizer.9.0/../x.json"])


def as_hub_cache(folder: Path) -> None:
    """Every file a link to a blob, as in the cache of the hub."""
    moved = folder.parent / "models--someone--model"
    shutil.move(folder, moved / "snapshots" / "0123")
    (moved / "blobs").mkdir()
    for number, path in enumerate(sorted((moved / "snapshots").rglob("*.*"))):
        blob = moved / "blobs" / f"{number:040x}"
        shutil.move(path, blob)
        path.symlink_to(os.path.relpath(blob, path.parent))
    folder.symlink_to(moved / "snapshots" / "0123")


HONEST: dict[str, Callable[[Path], None]] = {
    "as saved": lambda folder: None,
    "pickles": as_pickles,
    "pickles beside a variant": as_pickles_beside_decoys,
    "safetensors beside pickles": beside_pickles,
    "shards": in_shards,
    "pickled shards": lambda folder: in_shards(folder, "bin"),
    "no safety checker": without_unused,
    "a tokenizer that names files": with_files_named,
    "links of the hub's cache": as_hub_cache,
    "other entries of the index": index_with(_strange=[], _ignore_files=["x"], image_encoder=[None, None]),
    "fields of kernels": config_with("text_encoder", _attn_implementation_autoset=True, attn_implementation="eager"),
}


@pytest.mark.parametrize("case", HONEST)
def test_an_honest_folder_is_read_with_the_weights_that_diffusers_would_take(
    saved: Path, folder: Path, escaped: Path, case: str
) -> None:
    HONEST[case](folder)
    model = load_diffusers(folder)
    assert not escaped.exists()
    expected = load_diffusers(diffusers.StableDiffusionPipeline.from_pretrained(saved, safety_checker=None))
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
    (x, condition), (right, meant) = (each.encode(images, ["a b", "c"]) for each in (model, expected))
    torch.testing.assert_close(x, right, rtol=1e-5, atol=1e-6)  # float32 kernels differ by where weights lie in memory
    torch.testing.assert_close(condition, meant, rtol=1e-5, atol=1e-6)
    t = torch.tensor([3, 15])
    found, needed = model.denoiser(x, t, condition).x0_hat, expected.denoiser(x, t, meant).x0_hat
    torch.testing.assert_close(found, needed, rtol=1e-5, atol=1e-5)


def test_what_was_loaded_says_that_it_is_from_the_folder(folder: Path) -> None:
    """The copy that diffusers saw is gone, and is no part of what a model is."""
    network = load_diffusers(folder).denoiser.network.network
    assert network.config["_name_or_path"] == str(folder / "unet")


def test_all_parts_in_one_folder_as_in_the_first_repositories(tmp_path: Path, escaped: Path) -> None:
    pipeline = diffusers.DDPMPipeline(pipelines.unet(), diffusers.DDPMScheduler(20))
    pipeline.save_pretrained(tmp_path / "model")
    flat = tmp_path / "flat" / "model"
    flat.mkdir(parents=True)
    for path in (tmp_path / "model").rglob("*.*"):
        shutil.copy(path, flat / path.name)
    x = torch.zeros(1, 3, 8, 8)
    torch.testing.assert_close(
        load_diffusers(flat).denoiser(x, 3).x0_hat, load_diffusers(pipeline).denoiser(x, 3).x0_hat, rtol=1e-5, atol=1e-6
    )
    (flat / f"{UNET}.safetensors").rename(flat / "model.safetensors")
    bomb(flat / f"{UNET}.bin")
    with pytest.raises(UnsupportedModelError, match=CODE):
        load_diffusers(flat)
    assert not escaped.exists()
    assert not (tmp_path / "flat" / "ran").exists()


@pytest.mark.filterwarnings("ignore:The `local_dir_use_symlinks`:UserWarning")  # diffusers' own call
def test_a_hub_id_is_read_by_the_same_rules(
    folder: Path, tmp_path: Path, escaped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the hub's cache, without a connection."""
    as_hub_cache(folder)
    repository = tmp_path / "models--someone--model"
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert load_diffusers("someone/model").denoiser.name == "model"
    weights = repository / "snapshots" / "0123" / "unet" / f"{UNET}.safetensors"
    weights.rename(weights.with_name(f"{UNET}.fp16.safetensors"))
    torch.save({"conv_in.weight": Runs(escaped)}, weights.with_suffix(".bin"))
    with pytest.raises(UnsupportedModelError, match=CODE):
        load_diffusers("someone/model")
    (weights.with_suffix(".bin")).unlink()
    (repository / "snapshots" / "0123" / "vae" / "evil.py").write_text("")
    with pytest.raises(UnsupportedModelError, match=r"has none of|code beside"):
        load_diffusers("someone/model")
    assert not escaped.exists()
