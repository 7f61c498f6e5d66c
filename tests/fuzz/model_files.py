"""Good files of models, and what is done with what was read from them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from result_files import IMAGES, ROOT

import dpstride
from dpstride import ForwardProcess

# --- models ------------------------------------------------------------------------------------------------------------


def small_unet() -> Any:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 8),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=4,
    )


def make_pipeline(folder: Path, safe: bool = True) -> None:
    from diffusers import DDPMPipeline, DDPMScheduler

    DDPMPipeline(small_unet(), DDPMScheduler(20)).save_pretrained(folder / "model", safe_serialization=safe)


def make_dit(folder: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "integrations"))
    import pipelines
    from diffusers import DDIMScheduler

    pipelines.dit(DDIMScheduler(20)).save_pretrained(folder / "model")


def read_model(folder: Path) -> Any:
    from dpstride.integrations.loading import load_model

    return load_model(folder / "model")


def use_model(model: Any) -> None:
    """Not run: what a network of a damaged config computes is its author's affair (SECURITY.md)."""
    assert model.describe()
    assert model.denoiser.describe()


def use_network(model: Any) -> None:
    use_model(model)
    if model.denoiser.shape == (1, 8, 8):
        with torch.inference_mode():
            model.denoiser(torch.zeros(1, 1, 8, 8), 1)


def make_scheduler(folder: Path) -> None:
    from diffusers import DDIMScheduler

    DDIMScheduler(50).save_pretrained(folder)


def read_scheduler_file(folder: Path) -> Any:
    from dpstride.integrations.scheduler_config import read_scheduler
    from dpstride.reading.documents import read_json_object

    return read_scheduler(read_json_object(folder / "scheduler_config.json"))


def make_own_scheduler(folder: Path) -> None:
    from diffusers import DDPMScheduler

    from dpstride.integrations.diffusers_scheduler import DPStrideScheduler

    process = ForwardProcess.linear(1000).subset(range(0, 1001, 100))
    schedules = dpstride.ScheduleSet.of([dpstride.even_stride(process, K) for K in (2, 5)])
    config = DDPMScheduler(1000).config
    DPStrideScheduler.from_config(config, schedules=schedules).save_pretrained(folder)


def read_own_scheduler(folder: Path) -> Any:
    from dpstride.integrations.diffusers_scheduler import DPStrideScheduler

    return DPStrideScheduler.from_pretrained(folder)


def use_own_scheduler(scheduler: Any) -> None:
    scheduler.set_timesteps(2)
    scheduler.step(torch.zeros(1, 1, 2, 2), scheduler.timesteps[0], torch.zeros(1, 1, 2, 2))


def make_zoo_model(folder: Path) -> None:
    from dpstride.training.export import export_model
    from dpstride.training.objectives import setting_of

    export_model(small_unet(), ForwardProcess.linear(20), setting_of("simple"), folder / "model", {"seed": 0})


def read_zoo_model(folder: Path) -> Any:
    from dpstride.zoo.models import load_folder

    return load_folder(folder / "model")


OPENAI_FLAGS = (
    "--image_size 8 --num_channels 32 --num_res_blocks 1 --channel_mult 1 --attention_resolutions 8 --num_heads 2"
)


def make_characters(folder: Path) -> None:
    from dpstride.zoo.characters import Architecture, CharacterTransformer, save_characters

    save_characters(CharacterTransformer(Architecture(8, 8, 1, 2)), folder, {})


def read_characters(folder: Path) -> Any:
    from dpstride.zoo.characters import load_characters

    return load_characters(folder)


def make_openai(folder: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "integrations"))
    from openai_network import Walk

    from dpstride.integrations.openai_flags import OpenAIFlags

    walk = Walk(OpenAIFlags.parse(OPENAI_FLAGS))
    walk(torch.zeros(1, 1, 8, 8), torch.zeros(1))
    torch.save(walk.state, folder / "ema.pt")


def read_openai(folder: Path) -> Any:
    from dpstride.integrations.openai import load_openai

    return load_openai(folder / "ema.pt", OPENAI_FLAGS)


TRAINING: dict[str, Any] = {"batch_size": 2, "channels": (8,), "steps": 4, "warmup": 1}


def run_training(folder: Path) -> Any:
    from dpstride.training.settings import TrainingSettings
    from dpstride.training.train import Run

    settings = TrainingSettings(objective="vlb", **TRAINING)
    return Run(IMAGES, folder, settings, process=ForwardProcess.cosine(8))


def make_training(folder: Path) -> None:
    run = run_training(folder)
    for _ in range(2):
        run.advance()
    run.evaluate()
    run.save()


def use_training(run: Any) -> None:
    run.advance()


def make_torchscript(folder: Path) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, whose archives are still about
        torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))).save(folder / "a.pt")


def read_torchscript_file(folder: Path) -> Any:
    from dpstride.reading.torchscript import is_torchscript, read_torchscript

    return read_torchscript(folder / "a.pt") if is_torchscript(folder / "a.pt") else {}


def use_tensors(state: Any) -> None:
    assert all(isinstance(name, str) and float(value.double().sum()) is not None for name, value in state.items())
