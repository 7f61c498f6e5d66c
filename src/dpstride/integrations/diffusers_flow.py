"""Flow-matching transformers of diffusers (Stable Diffusion 3, Flux) through the rectified-flow process.

x_t = (1 − t) x_0 + t ε, and the transformer predicts ε − x_0 at a continuous t. The scheduler has no process of its own,
only a spacing of its times (a shift), which is the grid here; any other grid is equally valid (`Denoiser.on_grid`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..denoiser import Denoiser
from ..options import POSTERIOR
from ..process import ForwardProcess
from .diffusers import Options, sample_shape
from .guidance import guided
from .latents import PROMPTED, Latents, encode_prompts
from .loaded import LoadedModel, UnsupportedModelError
from .scheduler_config import steps_of


def load_flow(pipeline: Any, options: Options) -> LoadedModel:
    """Load a Stable Diffusion 3 or Flux pipeline."""
    flux = "FluxPipeline" in {kind.__name__ for kind in type(pipeline).__mro__}
    if options.variance is not None:
        raise UnsupportedModelError(
            "A flow-matching model has no reverse variance of its own, so none can be replaced; choose one for the costs, "
            "optimise(..., variance='posterior', 'upper' or 'optimal')."
        )
    times, notes = read_flow(pipeline.scheduler, options)
    transformer = pipeline.transformer
    channels = transformer.config.in_channels // (4 if flux else 1)
    warnings: tuple[str, ...] = ()

    def embed(prompts: list[str]) -> Mapping[str, Tensor]:
        return _embed_flux(pipeline, prompts) if flux else _embed_sd3(pipeline, prompts)

    network: Any
    if flux:
        guidance = options.guidance_scale or 1.0
        network = FluxTransformer(transformer, guidance if transformer.config.guidance_embeds else None)
        if transformer.config.guidance_embeds:
            notes.append(f"guidance {guidance:g} is an input of this distilled network (guidance_embeds)")
            warnings = ("a guidance-distilled network imitates a guided model, which has no ELBO of its own.",)
        elif options.guidance_scale is not None:
            raise UnsupportedModelError("This Flux network takes no guidance (guidance_embeds is False). Leave it out.")
    else:
        network = TextTransformer(transformer)
        if options.guidance_scale is not None:
            null = encode_prompts(embed, options.negative_prompt, 1)
            network, warnings = guided(network, null, options.guidance_scale)
        notes.append(
            "no guidance: the conditional model itself"
            if options.guidance_scale is None
            else f"classifier-free guidance with scale {options.guidance_scale:g}"
        )
    latents = Latents(pipeline.vae, lambda prompts, count: encode_prompts(embed, prompts, count), options.latents)
    size = options.sample_size or getattr(transformer.config, "sample_size", None)
    denoiser = Denoiser(
        network,
        ForwardProcess.rectified_flow(times=times),
        predicts="flow",
        variance=POSTERIOR,
        clip=None,
        shape=sample_shape(channels, size),
        trained_continuous=True,
        time_input="time",
        name=options.name,
    )
    notes.append(
        f"latents: the encoder's {latents.kind}, (z - {latents.shift:g}) times {latents.scale:g}; data continuous"
    )
    return latents.loaded(denoiser, tuple(notes), warnings, PROMPTED)


def read_flow(scheduler: Any, options: Options) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Return the grid of times 0 … 1 with the scheduler's static shift, and notes for the user."""
    name, config = type(scheduler).__name__, {**scheduler.config, **options.overrides}
    if "FlowMatch" not in name:
        raise UnsupportedModelError(
            f"The pipeline's scheduler is {name}, not a flow-matching scheduler, so its times are not those of a rectified "
            "flow. Put a FlowMatchEulerDiscreteScheduler into the pipeline."
        )
    if config.get("invert_sigmas"):
        raise UnsupportedModelError("invert_sigmas=True reverses time (Mochi), which is not supported.")
    T = options.T or steps_of(config)
    shift = 1.0 if config.get("use_dynamic_shifting") else float(config.get("shift", 1.0))
    if not 0.0 < shift < np.inf:
        raise UnsupportedModelError(f"The scheduler's shift must be above 0 and finite, not {shift}.")
    u = np.linspace(0.0, 1.0, T + 1)
    times = shift * u / (1.0 + (shift - 1.0) * u)
    times[-1] = 1.0
    notes = [
        f"rectified flow, f = 1 - t and g = t; prediction is eps - x0; grid of {T} times with shift {shift:g} ({name})",
        "x0_hat is not clipped",
    ]
    if config.get("use_dynamic_shifting"):
        notes.append("use_dynamic_shifting only spaces the sampler's own times; the grid here is even")
    return times, notes


class TextTransformer:
    """``network(x, time, …)`` of Stable Diffusion 3's transformer, which takes 1000 t."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, x: Tensor, time: Tensor, **embeddings: Tensor) -> Tensor:
        """Return the transformer's flow."""
        texts = _of_prompts(embeddings, self.network.dtype)
        return cast(Tensor, self.network(hidden_states=x, timestep=time * 1000.0, **texts, return_dict=False)[0])


class FluxTransformer:
    """``network(x, time, …)`` of Flux's transformer, which takes latents as a sequence of 2 × 2 patches."""

    def __init__(self, network: Any, guidance: float | None) -> None:
        self.network = network
        self.guidance = guidance

    def __call__(self, x: Tensor, time: Tensor, **embeddings: Tensor) -> Tensor:
        """Return the transformer's flow in the shape of the latents."""
        dtype = self.network.dtype
        texts = _of_prompts(embeddings, dtype)
        B, C, H, W = x.shape
        patches = x.reshape(B, C, H // 2, 2, W // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(B, -1, 4 * C)
        rows, columns = torch.meshgrid(torch.arange(H // 2), torch.arange(W // 2), indexing="ij")
        places = torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).reshape(-1, 3)
        output = self.network(
            hidden_states=patches,
            timestep=time.to(dtype),
            guidance=None if self.guidance is None else torch.full([B], self.guidance, device=x.device),
            **texts,
            txt_ids=torch.zeros(texts["encoder_hidden_states"].shape[1], 3, device=x.device, dtype=dtype),
            img_ids=places.to(device=x.device, dtype=dtype),
            return_dict=False,
        )[0]
        picture = output.reshape(B, H // 2, W // 2, C, 2, 2).permute(0, 3, 1, 4, 2, 5)
        return cast(Tensor, picture.reshape(B, C, H, W))


def _of_prompts(embeddings: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the two embeddings of prompts in the network's precision."""
    if embeddings.keys() != {"encoder_hidden_states", "pooled_projections"}:
        raise ValueError("This model is conditioned on prompts. Give encode(images, prompts); the empty one is ''.")
    return {name: value.to(dtype) for name, value in embeddings.items()}


def _embed_sd3(pipeline: Any, prompts: list[str]) -> dict[str, Tensor]:
    embeddings, _, pooled, _ = pipeline.encode_prompt(
        prompts, None, None, device=pipeline.transformer.device, do_classifier_free_guidance=False
    )
    return {"encoder_hidden_states": embeddings, "pooled_projections": pooled}


def _embed_flux(pipeline: Any, prompts: list[str]) -> dict[str, Tensor]:
    embeddings, pooled, _ = pipeline.encode_prompt(prompts, device=pipeline.transformer.device)
    return {"encoder_hidden_states": embeddings, "pooled_projections": pooled}
