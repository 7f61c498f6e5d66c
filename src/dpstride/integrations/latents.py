"""Conversion between images and latents, and from prompts to embeddings, around the denoiser of a latent pipeline.

The statistics of a latent model are taken in latent space, where its diffusion takes place: bits are per latent dimension,
the data are continuous, and the autoencoder's own loss is not part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..denoiser import Denoiser
from .loaded import LoadedModel, UnsupportedModelError

LatentKind = Literal["sample", "mean"]
PROMPTED = "a prompt per sample"
UNIT = "bits per latent dimension (without the autoencoder)"
Conditioning = Callable[[Any, int], Any]  # the user's conditions, number of samples → the denoiser's conditioning


class Latents:
    """`encode` and `decode` of a LoadedModel with an autoencoder.

    ``kind``: "sample" draws from the encoder's distribution, as in training, with one fixed seed per image, so that the
    batch size does not matter; "mean" takes its mean.
    """

    def __init__(self, vae: Any, conditioning: Conditioning | None, kind: LatentKind = "sample", seed: int = 0) -> None:
        if kind not in ("sample", "mean"):
            raise ValueError(f"latents must be 'sample' or 'mean', not {kind!r}.")
        config = vae.config
        if getattr(config, "latents_mean", None) is not None or getattr(config, "latents_std", None) is not None:
            raise UnsupportedModelError(
                "The autoencoder normalises its latents per channel (latents_mean, latents_std), which is not supported. "
                "Encode the data yourself and build a Denoiser on the latents."
            )
        self.vae, self.conditioning, self.kind, self.seed = vae.eval(), conditioning, kind, seed
        self.scale = float(config.scaling_factor)
        self.shift = float(getattr(config, "shift_factor", None) or 0.0)

    def loaded(
        self, denoiser: Denoiser, notes: tuple[str, ...], warnings: tuple[str, ...], conditioning: str
    ) -> LoadedModel:
        """Return the model of latents with the autoencoder around it."""
        return LoadedModel(
            denoiser, notes, warnings, data_range="continuous", conditioning=conditioning,
            encode=self.encode, decode=self.decode, condition=self.conditioning, unit=UNIT,
        )  # fmt: skip

    def encode(self, images: Any, conditioning: Any = None, batch_size: int = 8) -> Any:
        """Encode images (uint8, or floats in [−1, 1]) as latents, or (latents, conditioning) if the model has any."""
        x = _images(images)
        parts = []
        with torch.inference_mode():
            for first in range(0, len(x), batch_size):
                batch = x[first : first + batch_size].to(device=self.vae.device, dtype=self.vae.dtype)
                distribution = self.vae.encode(batch).latent_dist
                z = distribution.mean
                if self.kind == "sample":
                    z = z + distribution.std * self._noise(first, z)
                parts.append(((z - self.shift) * self.scale).float().cpu())
        latents = torch.cat(parts)
        if self.conditioning is None:
            return latents
        return latents, self.conditioning(conditioning, len(latents))

    def decode(self, latents: Tensor, batch_size: int = 8) -> Tensor:
        """Decode latents to images in [−1, 1]."""
        parts = []
        with torch.inference_mode():
            for first in range(0, len(latents), batch_size):
                z = latents[first : first + batch_size].to(device=self.vae.device, dtype=self.vae.dtype)
                parts.append(self.vae.decode(z / self.scale + self.shift).sample.float().cpu().clamp(-1.0, 1.0))
        return torch.cat(parts)

    def _noise(self, first: int, like: Tensor) -> Tensor:
        rows = [
            torch.randn(like.shape[1:], generator=torch.Generator().manual_seed(self.seed * 2**32 + first + row))
            for row in range(len(like))
        ]
        return torch.stack(rows).to(like)


def prompt_list(prompts: Any, count: int) -> list[str]:
    """Return one prompt per sample; a single string is the prompt of all."""
    if isinstance(prompts, str):
        return [prompts] * count
    if not isinstance(prompts, Sequence) or not all(isinstance(prompt, str) for prompt in prompts):
        raise ValueError(
            f"This model is conditioned on prompts: give one string per image, one string for all, or a dict of "
            f"embeddings, not {type(prompts).__name__}. The empty prompt is ''."
        )
    if len(prompts) != count:
        raise ValueError(f"Give one prompt per image: {count} images, but {len(prompts)} prompts.")
    return list(prompts)


def encode_prompts(
    encode: Callable[[list[str]], Mapping[str, Tensor]], prompts: Any, count: int, batch_size: int = 8
) -> Mapping[str, Tensor]:
    """Return embeddings by the pipeline's own text encoders, which encode equal prompts once; a dict is returned as it is."""
    if isinstance(prompts, Mapping):
        return prompts
    given = prompt_list(prompts, count)
    different = sorted(set(given))
    parts = []
    try:
        with torch.inference_mode():
            for first in range(0, len(different), batch_size):
                parts.append(encode(different[first : first + batch_size]))
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:  # parts do not fit each other
        raise UnsupportedModelError(
            f"The model's tokenizers and text encoders do not take prompts ({error!s:.300}). Check that all of them are "
            "there, with a model_max_length that the encoder has positions for."
        ) from error
    place = torch.tensor([different.index(prompt) for prompt in given])
    return {key: torch.cat([part[key].cpu() for part in parts])[place].clone() for key in parts[0]}


def _images(images: Any) -> Tensor:
    x = torch.from_numpy(np.ascontiguousarray(images)) if isinstance(images, np.ndarray) else torch.as_tensor(images)
    if x.ndim != 4:
        raise ValueError(f"images must have shape [samples, channels, height, width], not {tuple(x.shape)}.")
    if x.dtype == torch.uint8:
        return x.float() / 127.5 - 1.0
    if not x.is_floating_point() or float(x.min()) < -1.001 or float(x.max()) > 1.001:
        raise ValueError(
            f"images must be uint8, or floats in [-1, 1], but they are {x.dtype} in [{float(x.min()):g}, "
            f"{float(x.max()):g}]. Scale them: 8-bit images are x / 127.5 - 1."
        )
    return x.float()
