"""Latent diffusion pipelines of diffusers: DiT (class labels) and Stable Diffusion (prompts).

They differ only in how the network is called and in its condition, so each is one small network class and one function;
the autoencoder and the text encoders around it are in `latents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from ..options import LEARNED_RANGE
from .diffusers import FirstHalf, Options, choose_variance, denoiser_of, facts_of, sample_shape
from .guidance import guided
from .latents import PROMPTED, Latents, encode_prompts
from .loaded import LoadedModel, UnsupportedModelError


def load_latent(pipeline: Any, options: Options) -> LoadedModel:
    """Load a DiT or Stable Diffusion pipeline."""
    kinds = {kind.__name__ for kind in type(pipeline).__mro__}
    if "DiTPipeline" in kinds:
        return _load_dit(pipeline, options)
    return _load_stable_diffusion(pipeline, options, xl="StableDiffusionXLPipeline" in kinds)


class LabelTransformer:
    """``network(x, time, class_labels=…)`` of a DiT."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, x: Tensor, time: Tensor, class_labels: Tensor | None = None) -> Tensor:
        """Return the transformer's output, variance channels included."""
        if class_labels is None:
            raise ValueError(
                "This model is class-conditional, but the data came without labels. Give encode(images, labels), or "
                "conditioning={'class_labels': labels} when sampling."
            )
        return cast(Tensor, self.network(x, timestep=time, class_labels=class_labels.long()).sample)


class TextUNet:
    """``network(x, time, encoder_hidden_states=…)`` of a Stable Diffusion U-Net; SDXL adds text_embeds and time_ids."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, x: Tensor, time: Tensor, encoder_hidden_states: Tensor | None = None, **added: Tensor) -> Tensor:
        """Return the U-Net's output."""
        if encoder_hidden_states is None:
            raise ValueError(
                "This model is conditioned on prompts, but the data came without them. Give encode(images, prompts); the "
                "empty prompt is ''."
            )
        dtype = self.network.dtype
        more = {"added_cond_kwargs": {key: value.to(dtype) for key, value in added.items()}} if added else {}
        return cast(Tensor, self.network(x, time, encoder_hidden_states=encoder_hidden_states.to(dtype), **more).sample)


def _load_dit(pipeline: Any, options: Options) -> LoadedModel:
    transformer = pipeline.transformer
    facts = facts_of(pipeline.scheduler, options)
    channels = transformer.config.in_channels
    # DiT is trained with a learned range, whatever the pipeline's scheduler states; the pipeline drops the variance channels.
    learned = transformer.config.out_channels == 2 * channels and options.variance is None
    variance, keep, note = choose_variance(
        facts, channels, transformer.config.out_channels, LEARNED_RANGE if learned else options.variance
    )
    if learned:
        note = "variance learned_range: the transformer has variance channels, which DiTPipeline itself drops"
    network: Any = LabelTransformer(transformer)
    if not keep:
        network = FirstHalf(network)
    classes = int(transformer.config.num_embeds_ada_norm)
    warnings: tuple[str, ...] = ()
    if options.guidance_scale is not None:
        network, warnings = guided(network, {"class_labels": torch.tensor([classes])}, options.guidance_scale)
    latents = Latents(pipeline.vae, lambda labels, count: _labels(labels, count, classes), options.latents)
    shape = sample_shape(channels, options.sample_size or transformer.config.sample_size)
    denoiser = denoiser_of(network, facts, variance, shape, name=options.name)
    notes = (*facts.notes, note, *_latent_notes(latents, options))
    return latents.loaded(denoiser, notes, warnings, f"a class label per sample, 0 to {classes - 1}")


def _load_stable_diffusion(pipeline: Any, options: Options, *, xl: bool) -> LoadedModel:
    unet = pipeline.unet
    if getattr(unet.config, "time_cond_proj_dim", None) is not None:
        raise UnsupportedModelError(
            "The U-Net takes its guidance scale as a time condition (time_cond_proj_dim), so it is a distilled network "
            "and has no ELBO. Load the model it was distilled from."
        )
    facts = facts_of(pipeline.scheduler, options)
    variance, _, note = choose_variance(facts, unet.config.in_channels, unet.config.out_channels, options.variance)
    shape = sample_shape(unet.config.in_channels, options.sample_size or unet.config.sample_size)

    def embed(prompts: list[str]) -> Mapping[str, Tensor]:
        return _embed_xl(pipeline, prompts, shape) if xl else {"encoder_hidden_states": _embed(pipeline, prompts)}

    network: Any = TextUNet(unet)
    warnings: tuple[str, ...] = ()
    if options.guidance_scale is not None:
        if pipeline.text_encoder is None:
            raise UnsupportedModelError("guidance_scale needs the pipeline's text encoder for the negative prompt.")
        null = encode_prompts(embed, options.negative_prompt, 1)
        network, warnings = guided(network, null, options.guidance_scale)
    latents = Latents(pipeline.vae, lambda prompts, count: encode_prompts(embed, prompts, count), options.latents)
    denoiser = denoiser_of(network, facts, variance, shape, name=options.name)
    return latents.loaded(denoiser, (*facts.notes, note, *_latent_notes(latents, options)), warnings, PROMPTED)


def _embed(pipeline: Any, prompts: list[str]) -> Tensor:
    embeddings, _ = pipeline.encode_prompt(prompts, pipeline.unet.device, 1, False)
    return cast(Tensor, embeddings)


def _embed_xl(pipeline: Any, prompts: list[str], shape: tuple[int, int, int] | None) -> dict[str, Tensor]:
    """Return SDXL's two embeddings and its size condition, for images neither resized nor cropped."""
    embeddings, _, pooled, _ = pipeline.encode_prompt(
        prompts, device=pipeline.unet.device, do_classifier_free_guidance=False
    )
    if shape is None:
        raise UnsupportedModelError(
            "The U-Net's config has no sample_size, which SDXL is conditioned on. Give sample_size."
        )
    size = [shape[1] * pipeline.vae_scale_factor, shape[2] * pipeline.vae_scale_factor]
    time_ids = torch.tensor([[*size, 0, 0, *size]], dtype=embeddings.dtype).expand(len(prompts), -1)
    return {"encoder_hidden_states": embeddings, "text_embeds": pooled, "time_ids": time_ids}


def _labels(labels: Any, count: int, classes: int) -> dict[str, Tensor]:
    if labels is None:
        raise ValueError("This model is class-conditional: give encode(images, labels).")
    tensor = torch.as_tensor(labels).reshape(-1).long()
    if len(tensor) != count:
        raise ValueError(f"Give one label per image: {count} images, but {len(tensor)} labels.")
    if int(tensor.min()) < 0 or int(tensor.max()) >= classes:
        raise ValueError(
            f"Labels must lie in 0 … {classes - 1}, but they span {int(tensor.min())} … {int(tensor.max())}."
        )
    return {"class_labels": tensor}


def _latent_notes(latents: Latents, options: Options) -> tuple[str, ...]:
    guidance = "no guidance: the conditional model itself"
    if options.guidance_scale is not None:
        guidance = f"classifier-free guidance with scale {options.guidance_scale:g}, two network evaluations per step"
    return (
        f"latents: the encoder's {latents.kind} times {latents.scale:g}; statistics are in latent space, data continuous",
        guidance,
    )
