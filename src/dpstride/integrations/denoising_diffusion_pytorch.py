"""lucidrains' denoising-diffusion-pytorch: a trained GaussianDiffusion object becomes a denoiser.

The object holds the network, the objective and the betas, so nothing else is needed. It takes images in [0, 1] and works
on 2 x − 1 inside (``auto_normalize``); the denoiser works on the inner range, and `encode` maps [0, 1] to it.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..denoiser import Denoiser, Predicts
from ..options import LEARNED_RANGE, POSTERIOR
from ..process import ForwardProcess
from .loaded import LoadedModel, UnsupportedModelError

_OBJECTIVES: dict[str, Predicts] = {"pred_noise": "eps", "pred_x0": "x0", "pred_v": "v"}


def load_denoising_diffusion(diffusion: Any, name: str | None = None) -> LoadedModel:
    """Make a denoiser from a GaussianDiffusion (or LearnedGaussianDiffusion) object."""
    for attribute in ("model", "betas", "alphas_cumprod", "objective", "num_timesteps"):
        if not hasattr(diffusion, attribute):
            raise UnsupportedModelError(
                f"This {type(diffusion).__name__} has no {attribute!r}, so it is not a GaussianDiffusion of "
                "denoising-diffusion-pytorch. ElucidatedDiffusion is read by load_k_diffusion with its "
                "preconditioned_network_forward."
            )
    if diffusion.objective not in _OBJECTIVES:
        raise UnsupportedModelError(
            f"objective must be {' or '.join(map(repr, _OBJECTIVES))}, not {diffusion.objective!r}."
        )
    learned = diffusion.model.out_dim == 2 * diffusion.model.channels
    process = _process(diffusion)
    normalised = _normalises(diffusion)
    notes = [
        f"objective {diffusion.objective}; {process.T} steps, alpha_bar recomputed in float64 from the object's betas",
        "x0_hat clipped to [-1, 1], as p_sample does",
        "variance learned_range" if learned else "variance posterior, the only fixed one this project has",
        "data in [0, 1] becomes 2 x - 1 (auto_normalize); floats in [0, 1] go through encode"
        if normalised
        else "data is taken as it is (auto_normalize is off), in [-1, 1]",
    ]
    warnings = []
    if getattr(diffusion, "self_condition", False):
        notes.append("self-conditioning: every evaluation is made without a previous estimate, as at the first step")
        warnings.append(
            "the model conditions on its own previous estimate when it samples, which depends on the path; the costs are "
            "those of the model without it, an upper estimate."
        )
    denoiser = Denoiser(
        SelfConditional(diffusion.model),
        process,
        predicts=_OBJECTIVES[diffusion.objective],
        variance=LEARNED_RANGE if learned else POSTERIOR,
        clip=(-1.0, 1.0),
        shape=_shape(diffusion),
        name=name or type(diffusion).__name__,
    )
    return LoadedModel(denoiser, tuple(notes), tuple(warnings), encode=from_unit_interval if normalised else None)


class SelfConditional:
    """``network(x, time)`` of a Unet that also takes its previous estimate, which is None here."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the network's output."""
        return cast(Tensor, self.network(x, time, None))


def from_unit_interval(images: Any) -> Tensor:
    """Map float images in [0, 1] to [−1, 1]; return uint8 images unchanged, since they stand for [−1, 1] here."""
    x = torch.as_tensor(images)
    if x.dtype == torch.uint8:
        return x
    if not x.is_floating_point() or float(x.min()) < 0.0 or float(x.max()) > 1.0:
        raise ValueError(
            f"This model takes images in [0, 1] (auto_normalize), but the data spans [{float(x.min()):g}, "
            f"{float(x.max()):g}]. Give uint8 images, or floats in [0, 1]."
        )
    return 2.0 * x.double() - 1.0


def _process(diffusion: Any) -> ForwardProcess:
    betas = diffusion.betas.detach().cpu().double().numpy()
    alpha_bar = diffusion.alphas_cumprod.detach().cpu().double().numpy()
    # float32 betas near 1 have lost digits of 1 - beta; there the products, rounded only once, are more accurate.
    ratio = alpha_bar / np.concatenate([[1.0], alpha_bar[:-1]])
    return ForwardProcess.from_betas(np.where(betas < 0.5, betas, 1.0 - ratio), name="denoising_diffusion_pytorch")


def _normalises(diffusion: Any) -> bool:
    probe = torch.tensor([0.0, 1.0])
    return bool(torch.equal(diffusion.normalize(probe), 2.0 * probe - 1.0))


def _shape(diffusion: Any) -> tuple[int, ...]:
    if hasattr(diffusion, "seq_length"):  # GaussianDiffusion1D
        return (int(diffusion.channels), int(diffusion.seq_length))
    size = diffusion.image_size  # an int in older versions
    height, width = (size, size) if isinstance(size, int) else size
    return (int(diffusion.channels), int(height), int(width))
