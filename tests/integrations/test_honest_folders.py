"""Honest folders of diffusers, in every arrangement, are read with the weights that diffusers would take."""

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
from safetensors.torch import load_file, save_file
from saved_folders import CODE, TEXT, UNET, Runs, bomb, change, config_with, index_with, only

from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.loaded import UnsupportedModelError

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
