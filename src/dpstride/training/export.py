"""The trained network as an ordinary diffusers folder, plus dpstride.json for the facts that diffusers cannot express."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstride.options import LEARNED_RANGE, POSTERIOR
from dpstride.runs.writing import atomic_folder, write_text
from dpstride.zoo.library import diffusers

if TYPE_CHECKING:
    from torch import nn

    from dpstride.process import ForwardProcess
    from dpstride.training.objectives.terms import Setting

FORMAT = "dpstride-model-1"
FILE = "dpstride.json"


def export_model(
    network: nn.Module,
    process: ForwardProcess,
    setting: Setting,
    folder: Path,
    facts: dict[str, Any],
) -> None:
    """Write unet/, for a discrete process also scheduler/ and model_index.json (DDPMPipeline), and dpstride.json.

    ``facts`` (objective, steps, seed, command, ...) are added to dpstride.json unchanged.
    """
    with atomic_folder(folder) as whole:
        if process.kind == "discrete":
            scheduler = ddpm_scheduler(process, setting.learned_variance)
            diffusers().DDPMPipeline(unet=network, scheduler=scheduler).save_pretrained(whole)
        else:
            network.save_pretrained(whole / "unet")  # type: ignore[operator]
    document = {
        "format": FORMAT,
        "process": process.name,
        "T": process.T,
        "kind": process.kind,
        "predicts": setting.predicts,
        "variance": LEARNED_RANGE if setting.learned_variance else POSTERIOR,
        "clip": [-1.0, 1.0],
        # The network's time input: the step counted from 0, or 1000 times the continuous time, as a float.
        "time_input": "index0" if process.kind == "discrete" else "1000*time",
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        **facts,
    }
    write_text(folder / FILE, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def ddpm_scheduler(process: ForwardProcess, learned_variance: bool) -> Any:
    """The DDPMScheduler with the betas of a discrete process, by name if diffusers has it, else as a list."""
    options: dict[str, Any] = {
        "num_train_timesteps": process.T,
        "variance_type": LEARNED_RANGE if learned_variance else "fixed_small",
        "clip_sample": True,
        "prediction_type": "epsilon",
    }
    betas = 1.0 - (process.f[1:] / process.f[:-1]) ** 2
    named: dict[str, dict[str, Any]] = {
        "linear": {"beta_schedule": "linear", "beta_start": 0.1 / process.T, "beta_end": 20.0 / process.T},
        "cosine": {"beta_schedule": "squaredcos_cap_v2"},
    }
    if process.name in named:
        scheduler = diffusers().DDPMScheduler(**options, **named[process.name])
        # diffusers keeps betas in float32; a name is used only if it gives the same numbers.
        if np.allclose(scheduler.betas.double().numpy(), betas, rtol=1e-5, atol=1e-10):
            return scheduler
    return diffusers().DDPMScheduler(**options, trained_betas=betas.tolist())
