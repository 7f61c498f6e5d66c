"""A diffusers scheduler as a sampler for `dpstride.tune`: its `set_timesteps` and `step`, with the network's raw output.

Schedulers that take lists of times or noise levels can race; `integrations.export.for_diffusers` knows which, and refuses
the others by name. Noise that a scheduler draws comes from generators seeded by each sample's x_T alone, so samples do not
depend on the batch.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..integrations.export import for_diffusers
from .sampling import Own

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from ..schedule import Schedule

PREDICTIONS = {"eps": "epsilon", "x0": "sample", "v": "v_prediction", "flow": "flow_prediction"}
FLOW_STEPS = 1000.0  # time scale of flow-match schedulers


def diffusers_sampler(scheduler: Any) -> Own:
    """The sampler of a diffusers scheduler, for ``tune(..., sampler=diffusers_sampler(scheduler))``.

    The scheduler's configuration is used (solver order, algorithm type, prediction type), not its state. Heun's takes two
    evaluations in every step but the last.
    """
    if not hasattr(scheduler, "set_timesteps") or not hasattr(scheduler, "config"):
        raise ValueError(f"diffusers_sampler takes a diffusers scheduler, not {type(scheduler).__name__}.")

    def sampler(denoiser: Denoiser, schedule: Schedule, noise: Tensor, conditioning: Any = None) -> Tensor:
        own = type(scheduler).from_config(scheduler.config)
        _check_prediction(denoiser, own)
        given = for_diffusers(schedule, own)
        own.set_timesteps(
            # an array, since UniPC multiplies its sigmas
            **{"sigmas": np.array(given)} if isinstance(given[0], float) else {"timesteps": given},
            device=noise.device,
        )
        random = {"generator": _generators(noise)} if "generator" in inspect.signature(own.step).parameters else {}
        x = noise * float(getattr(own, "init_noise_sigma", 1.0))
        if hasattr(own, "set_begin_index"):
            own.set_begin_index(0)  # UniPC rounds its times, so that two may coincide
        for place, time in enumerate(own.timesteps):
            scaled = own.scale_model_input(x, time) if hasattr(own, "scale_model_input") else x
            one_each = len(own.timesteps) == schedule.budget
            index = schedule.steps[place] if one_each else _index(schedule, float(time))
            output = denoiser.response(scaled.to(noise.dtype), index, conditioning)
            x = own.step(_outputs(output, x, own), time, x, **random).prev_sample
        return x.to(noise.dtype)

    name = type(scheduler).__name__
    settings = {key: repr(value) for key, value in scheduler.config.items() if not key.startswith("_")}
    cost = {"passes": 2, "last": 1} if "Heun" in name else {}
    return Own(sampler, f"diffusers' {name}", settings=settings, **cost)


def _check_prediction(denoiser: Denoiser, scheduler: Any) -> None:
    """Refuse a scheduler that would misread the network's output."""
    wanted = PREDICTIONS[denoiser.predicts]
    found = scheduler.config.get("prediction_type", wanted)
    if found != wanted:
        name = type(scheduler).__name__
        raise ValueError(
            f"The network predicts {denoiser.predicts}, but the scheduler has prediction_type={found!r}. Create it with "
            f"{name}.from_config(scheduler.config, prediction_type={wanted!r})."
        )


def _index(schedule: Schedule, time: float) -> int:
    """The grid index of the path that is nearest to a scheduler's ``time``."""
    process, steps = schedule.process, np.array(schedule.steps[:-1])
    own = process.times[steps] * FLOW_STEPS if process.name == "rectified_flow" else process.origin[steps] - 1.0
    return int(steps[np.abs(own - time).argmin()])


def _outputs(output: Tensor, x: Tensor, scheduler: Any) -> Tensor:
    """The prediction alone, or with the variance channels if the scheduler takes learned variances."""
    learned = str(scheduler.config.get("variance_type", "")).startswith("learned")
    return output if learned else output[:, : x.shape[1]]


def _generators(noise: Tensor) -> list[torch.Generator]:
    """A generator for every sample, seeded by its x_T."""
    found = []
    for sample in noise:
        digest = hashlib.sha256(sample.detach().cpu().contiguous().numpy().tobytes()).digest()
        found.append(torch.Generator().manual_seed(int.from_bytes(digest[:7], "little")))
    return found
