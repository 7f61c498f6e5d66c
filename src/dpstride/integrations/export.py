"""Export of schedules: one path in the form that each sampler takes.

A path is grid indices T … 0. diffusers and improved-diffusion count training steps from 0, so index t is their t − 1, and
they add the clean end themselves; k-diffusion and flow-matching schedulers take noise levels. Each function here is one such
convention, and Schedule has a method that calls it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..schedule import Schedule


def timesteps(schedule: Schedule) -> list[int]:
    """Return training steps from the noise end down, counted from 0, as diffusers' ``timesteps=`` takes them."""
    process = schedule.process
    if process.kind != "discrete":
        raise ValueError(
            f"The process {process.name!r} is continuous, so its path has no training steps. Use sigmas: "
            "schedule.for_diffusers() for a flow-matching scheduler, or schedule.for_k_diffusion()."
        )
    return [int(process.origin[step]) - 1 for step in schedule.steps[:-1]]


def sigmas(schedule: Schedule) -> list[float]:
    """Return noise levels g/f from the noise end down, without the final 0.

    For a rectified flow these are its own times t, as flow-matching schedulers take them, which add the final 0 themselves.
    """
    process, steps = schedule.process, list(schedule.steps[:-1])
    if process.name == "rectified_flow":
        return [float(time) for time in process.times[steps]]
    if (process.f[steps] == 0.0).any():
        raise ValueError(
            "The path starts at pure noise (f = 0), where sigma = g/f is infinite, so no sigma array can hold it. Use "
            "timesteps (for_diffusers() without a scheduler, or --to diffusers), DPStrideScheduler, or dpstride.sample."
        )
    return [float(value) for value in process.g[steps] / process.f[steps]]


def for_diffusers(schedule: Schedule, scheduler: Any = None, mu: float | None = None) -> list[int] | list[float]:
    """Return the list to pass to diffusers, as ``timesteps=``, or as ``sigmas=`` if the scheduler takes noise levels.

    Without ``scheduler``: timesteps for a discrete model, the flow's own times (``sigmas=``) for a rectified flow. With an
    EulerDiscreteScheduler: its ``sigmas=``, which end at 0. With a flow-matching scheduler, or UniPC for flows: its
    ``sigmas=``, with its shift undone beforehand because it will be applied again (``mu`` is that of a dynamic shift). With
    any other: ``timesteps=``. UniPC multiplies the list, so make it a numpy array.
    """
    flow = schedule.process.name == "rectified_flow"
    if scheduler is None:
        return sigmas(schedule) if flow else timesteps(schedule)
    import inspect

    name = type(scheduler).__name__
    takes = set(inspect.signature(scheduler.set_timesteps).parameters)
    if "FlowMatch" in name:
        if not flow:
            raise ValueError(
                f"{name} samples a rectified flow, but this schedule is for the process {schedule.process.name!r}."
            )
        return [_unshift(sigma, scheduler.config, mu) for sigma in sigmas(schedule)]
    if flow and "UniPC" in name:
        _check_unipc(name, scheduler.config)
        return [_unshift(sigma, scheduler.config, mu, "flow_shift") for sigma in sigmas(schedule)]
    if flow:
        raise ValueError(
            f"This schedule is for a rectified flow, which {name} does not sample. Use a flow-matching scheduler, or UniPC "
            "with use_flow_sigmas=True."
        )
    if name == "EulerDiscreteScheduler":
        return [*sigmas(schedule), 0.0]
    if "timesteps" in takes:
        return timesteps(schedule)
    raise ValueError(
        f"{name} takes no timesteps (DDIM, PNDM, DEIS, EulerAncestral and LMS do not, UniPC for flows alone), and steps of its "
        "own spacing would be silently wrong. Use DPStrideScheduler, which also has a DDIM mode, or DDPMScheduler."
    )


def for_k_diffusion(schedule: Schedule) -> Any:
    """Return noise levels from the noise end down with the final 0, as k-diffusion's samplers take them (a float32 tensor)."""
    import torch

    if schedule.process.name == "rectified_flow":
        raise ValueError(
            "k-diffusion's samplers take x_0 + sigma noise, not a rectified flow. The sigmas for a flow-matching scheduler "
            "are schedule.for_diffusers()."
        )
    return torch.tensor([*sigmas(schedule), 0.0], dtype=torch.float32)


def for_improved_diffusion(schedule: Schedule) -> set[int]:
    """Return the set for ``SpacedDiffusion(use_timesteps=…)``."""
    return set(timesteps(schedule))


def timestep_respacing(schedule: Schedule) -> str:
    """Return the same set as a ``--timestep_respacing`` string: one section per training step, with 1 step or 0.

    Sections are filled evenly there, so a path has no shorter form in general; sections of one step are exact.
    """
    kept = for_improved_diffusion(schedule)
    return ",".join("1" if step in kept else "0" for step in range(schedule.process.origin_T))


def for_comfyui(schedule: Schedule) -> str:
    """Return noise levels with the final 0, as text for ComfyUI's ManualSigmas node.

    The node finds numbers with a pattern that does not support exponents (it reads 1e-05 as 1 and −5), so small numbers are
    written out. A rectified flow's levels are its own times, as ComfyUI takes them for such models.
    """
    return ", ".join(np.format_float_positional(sigma, trim="0") for sigma in [*sigmas(schedule), 0.0])


def for_a1111(schedule: Schedule) -> str:
    """Return noise levels with the final 0, as a list for the "custom" scheduler of webUI_ExtraSchedulers.

    The web UI itself has no such field; this extension adds it, for A1111 and Forge. It takes a list that ends at 0.0 as it
    is, but rescales one that also begins at exactly 1.0, as a flow's does. Such a first number is lowered by 1e-9, which is
    1.0 again in the float32 of the sampler.
    """
    levels = [*sigmas(schedule), 0.0]
    if levels[0] == 1.0:
        levels[0] -= 1e-9
    return json.dumps(levels)


def to_csv(schedule: Schedule) -> str:
    """Return CSV text with one row per grid point of the path, from noise to clean data."""
    process = schedule.process
    log_snr = process.log_snr
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["k", "index", "training_step", "time", "f", "g", "log_snr", "sigma"])
    for k, step in zip(range(schedule.budget, -1, -1), schedule.steps, strict=True):
        f, g = float(process.f[step]), float(process.g[step])
        training = "" if process.kind != "discrete" else int(process.origin[step])
        sigma = g / f if f > 0.0 else math.inf
        writer.writerow([k, step, training, repr(float(process.times[step])), repr(f), repr(g), log_snr[step], sigma])
    return text.getvalue()


def _check_unipc(name: str, config: Any) -> None:
    """Refuse settings with which UniPC does not take a list for a flow, or does not end at clean data."""
    for setting, wanted in (("use_flow_sigmas", True), ("final_sigmas_type", "zero")):
        if config.get(setting) != wanted:
            raise ValueError(
                f"{name} takes the steps of a rectified flow to clean data with {setting}={wanted!r}, but this one has "
                f"{config.get(setting)!r}. Create it with {name}.from_config(scheduler.config, {setting}={wanted!r})."
            )


def _unshift(sigma: float, config: Any, mu: float | None, name: str = "shift") -> float:
    """Return the number that a flow-matching scheduler's own shift turns into ``sigma``."""
    for setting in (
        "shift_terminal",
        "use_karras_sigmas",
        "use_exponential_sigmas",
        "use_beta_sigmas",
        "invert_sigmas",
    ):
        if config.get(setting):
            raise ValueError(
                f"The scheduler has {setting} = {config[setting]!r}, which replaces the sigmas it is given. Create it "
                f"without: type(scheduler).from_config(scheduler.config, {setting}=None)."
            )
    if config.get("use_dynamic_shifting"):
        if mu is None:
            raise ValueError(
                "The scheduler shifts its sigmas by mu, which depends on the image size (use_dynamic_shifting). Pass the "
                "pipeline's mu, or use a scheduler made with use_dynamic_shifting=False, shift=1.0."
            )
        shift = math.exp(mu) if config.get("time_shift_type", "exponential") == "exponential" else mu
    else:
        shift = float(config.get(name, 1.0))
    return float(np.float64(sigma) / (shift - (shift - 1.0) * sigma))
