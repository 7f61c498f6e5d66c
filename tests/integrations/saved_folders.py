"""Saved pipelines, and edits of their folders."""

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
import transformers

UNET = "diffusion_pytorch_model"
TEXT = "pytorch_model"


class Runs:
    """A pickle that makes a folder when it is run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


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


def config_with(part: str, name: str = "config.json", **entries: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / part / name, **entries)


def index_with(**entries: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / "model_index.json", **entries)


CODE = "no code in it is run: it names"
