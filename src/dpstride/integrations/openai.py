"""OpenAI's improved-diffusion and guided-diffusion checkpoints (.pt) become denoisers and diffusers folders.

Only tensors are read from the file (`dpstride.reading.checkpoints`), never code. The network is diffusers' UNet2DModel with the
same weights in another layout (`openai_weights`), so no foreign code is needed to run it, and a folder saved from it works
with existing tools.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..denoiser import Denoiser
from ..devices import usable_device
from ..options import LEARNED_RANGE, POSTERIOR, UPPER, ModelVariance
from ..process import ForwardProcess
from ..reading.checkpoints import read_checkpoint
from ..reading.limits import UnreadableFileError
from ..runs.writing import atomic_folder
from .loaded import LoadedModel, UnsupportedModelError, require_diffusers
from .openai_flags import OpenAIFlags, Repository, preset_flags
from .openai_weights import convert, unet_configuration
from .scheduler_config import VARIANCE_TYPES


def load_openai(
    checkpoint: str | os.PathLike[str] | Mapping[str, Tensor],
    flags: str = "",
    preset: str | None = None,
    repository: Repository | None = None,
    device: str | torch.device | None = None,
    **more_flags: Any,
) -> LoadedModel:
    """Make a denoiser from a checkpoint of improved-diffusion or guided-diffusion.

    Args:
        checkpoint: the .pt file, or its state dictionary.
        flags: the model's flags as in its README, "--image_size 32 --learn_sigma True …".
        preset: the name of a released checkpoint (`openai_flags.PRESETS`), instead of ``flags`` or overridden by them.
        repository: the repository whose defaults apply to flags not given; the preset's, else improved-diffusion.
        device: device to run it on.
        more_flags: flags by keyword; they override ``flags``, which override the preset.
    """
    require_diffusers("Reading an OpenAI checkpoint (it is mapped onto diffusers' UNet2DModel)")
    line = ""
    if preset is not None:
        preset_repository, line = preset_flags(preset)
        repository = repository or preset_repository
    repository = repository or "improved-diffusion"
    place = usable_device("cpu" if device is None else device)
    # A later flag replaces an earlier one of the same name, so a preset can be adjusted.
    parsed = OpenAIFlags.parse(f"{line} {flags}", repository, more_flags)
    state = checkpoint if isinstance(checkpoint, Mapping) else _read(Path(checkpoint))
    process = _process(parsed)
    variance: ModelVariance = LEARNED_RANGE if parsed.learn_sigma else POSTERIOR if parsed.sigma_small else UPPER
    try:
        network = _network(parsed, state).to(place)
    except UnsupportedModelError as error:
        if isinstance(checkpoint, Mapping):
            raise
        raise UnsupportedModelError(f"{Path(checkpoint)}: {error}") from error
    name = preset or ("state" if isinstance(checkpoint, Mapping) else Path(checkpoint).stem)
    denoiser = Denoiser(
        ClassConditional(network) if parsed.class_cond else Plain(network),
        process,
        predicts="x0" if parsed.predict_xstart else "eps",
        variance=variance,
        clip=(-1.0, 1.0),
        shape=(network.config.in_channels, parsed.image_size, parsed.image_size),
        name=name,
    )
    return LoadedModel(
        denoiser,
        notes=_notes(parsed, repository, process),
        conditioning="a class label per sample" if parsed.class_cond else None,
    )


def save_as_diffusers(model: LoadedModel, folder: str | os.PathLike[str]) -> None:
    """Write a model of `load_openai` as a DDPMPipeline folder with the same outputs.

    If the network needs a constant number of heads or rescaled time steps, the folder names
    `dpstride.integrations.openai_unet`, so loading it with diffusers needs dpstride installed (and nothing else).
    """
    diffusers = require_diffusers("Saving a diffusers folder")
    denoiser = model.denoiser
    network = getattr(denoiser.network, "network", None)
    if not isinstance(network, diffusers.UNet2DModel):
        raise UnsupportedModelError(
            f"Only models of load_openai can be saved here, but this denoiser's network is "
            f"{type(denoiser.network).__name__}."
        )
    scheduler = diffusers.DDPMScheduler(
        num_train_timesteps=denoiser.process.origin_T,
        variance_type=VARIANCE_TYPES[denoiser.variance],
        prediction_type={"eps": "epsilon", "x0": "sample"}[denoiser.predicts],
        clip_sample=True,
        **_betas(denoiser.process),
    )
    with atomic_folder(folder) as whole:
        diffusers.DDPMPipeline(unet=network, scheduler=scheduler).save_pretrained(whole)


class Plain:
    """``network(x, time)`` of a diffusers model, which returns the output's sample."""

    stateless = True  # several threads may call it

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the network's output."""
        return cast(Tensor, self.network(x, time).sample)


class ClassConditional:
    """``network(x, time, labels)`` of a class-conditional diffusers UNet2DModel."""

    stateless = True  # several threads may call it

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, x: Tensor, time: Tensor, class_labels: Tensor | None = None) -> Tensor:
        """Return the network's output for these labels."""
        if class_labels is None:
            raise ValueError(
                "This model is class-conditional, but the data came without labels. Give pairs (images, labels), or "
                "conditioning=labels when sampling."
            )
        return cast(Tensor, self.network(x, time, class_labels=class_labels.long()).sample)


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        state = read_checkpoint(path)
    except UnreadableFileError as error:
        raise UnsupportedModelError(str(error)) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UnsupportedModelError(
            f"{path}: it holds a {type(state).__name__}, not the state dictionary of a network. Save model.state_dict()."
        )
    if not all(isinstance(name, str) for name in state):
        raise UnsupportedModelError(f"{path}: the names of its tensors are not text. Save model.state_dict().")
    return state


def _network(flags: OpenAIFlags, state: Mapping[str, Tensor]) -> Any:
    from diffusers import UNet2DModel

    # First the tensors, then the network: a network of these flags is built only if the checkpoint has its tensors.
    converted = convert(flags, state)
    configuration = unet_configuration(flags, state)
    kind = UNet2DModel
    if {"attention_heads", "time_scale"} & set(configuration):
        from .openai_unet import OpenAIUNet2DModel

        kind = OpenAIUNet2DModel
    try:
        with torch.device("meta"):  # no memory for a network larger than its checkpoint
            network = kind(**configuration)
        network.load_state_dict(converted, assign=True)
    except (RuntimeError, ValueError, TypeError, ZeroDivisionError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedModelError(
            f"The checkpoint does not fit a network of these flags: {lines[min(1, len(lines) - 1)].strip():.300} Check the "
            "flags."
        ) from error
    return network.eval()


def _process(flags: OpenAIFlags) -> ForwardProcess:
    match flags.noise_schedule:
        case "linear":
            return ForwardProcess.linear(flags.diffusion_steps)
        case "cosine":
            return ForwardProcess.cosine(flags.diffusion_steps)
    raise UnsupportedModelError(f"noise_schedule must be 'linear' or 'cosine', not {flags.noise_schedule!r}.")


def _betas(process: ForwardProcess) -> dict[str, Any]:
    """Return DDPMScheduler's arguments for this process, from which it can be rebuilt exactly in float64."""
    T = process.origin_T
    if process.name == "cosine":
        return {"beta_schedule": "squaredcos_cap_v2"}
    start, end = 1e-4 * (1000.0 / T), 0.02 * (1000.0 / T)
    betas = np.minimum(np.linspace(1e-4, 0.02, T) * (1000.0 / T), 0.999)
    if np.array_equal(np.linspace(start, end, T), betas):
        return {"beta_schedule": "linear", "beta_start": start, "beta_end": end}
    return {"trained_betas": betas.tolist()}


def _notes(flags: OpenAIFlags, repository: Repository, process: ForwardProcess) -> tuple[str, ...]:
    notes = [
        f"{repository} checkpoint, {flags.image_size} × {flags.image_size}, mapped onto diffusers' UNet2DModel exactly",
        f"noise schedule {flags.noise_schedule} with {process.T} steps, recomputed in float64",
        "variance: learned range (learn_sigma)"
        if flags.learn_sigma
        else f"variance: {'fixed small = posterior' if flags.sigma_small else 'fixed large = upper'} (sigma_small)",
        "x0_hat clipped to [-1, 1], as in both repositories for sampling and for likelihoods",
    ]
    if flags.rescale_timesteps and flags.diffusion_steps != 1000:
        notes.append(f"rescale_timesteps: the network is fed t · {1000.0 / flags.diffusion_steps:g}, a fraction")
    if flags.use_fp16:
        notes.append("use_fp16: run in float32 here, which is at least as accurate")
    if flags.timestep_respacing:
        notes.append(f"timestep_respacing {flags.timestep_respacing!r} is not used: dpstride chooses the steps")
    return tuple(notes)
