"""Classifier-free guidance as a network, so that a guided model can be measured like any other.

It is a wrapper around the conditional network, invisible to all other code: the guided prediction is ``u + scale (c − u)``,
with c and u the outputs with and without the condition, evaluated in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .loaded import UnsupportedModelError

NO_ELBO = (
    "guidance_scale = {scale:g}: a guided model is not the reverse of the process it was trained on, so it has no ELBO of "
    "its own. Its numbers are costs of the guided estimate, useful for choosing steps, but not likelihoods of the data."
)


class Guided:
    """``network(x, time, **condition)`` guided by ``scale``; ``unconditional`` are one sample's null conditions.

    A learned variance (channels beyond those of x) is the conditional network's own, as in DiT's code.
    """

    passes = 2  # of the network per evaluation, for the evaluations reported as spent

    def __init__(self, network: Callable[..., Tensor], unconditional: Mapping[str, Tensor], scale: float) -> None:
        self.network = network
        self.unconditional = dict(unconditional)
        self.scale = float(scale)

    def __call__(self, x: Tensor, time: Tensor, **condition: Any) -> Tensor:
        """Return the guided output."""
        if missing := sorted(set(self.unconditional) - set(condition)):
            raise ValueError(
                f"A guided model needs its condition with every sample; {missing[0]!r} is missing. Give pairs (data, "
                "condition), for example from LoadedModel.encode."
            )
        both = {
            key: torch.cat([value, self.unconditional[key].to(value).expand_as(value)])
            for key, value in condition.items()
        }
        output = self.network(torch.cat([x, x]), torch.cat([time, time]), **both)
        conditional, unconditional = output.chunk(2)
        channels = x.shape[1]
        c, u = conditional[:, :channels], unconditional[:, :channels]
        return torch.cat([u + self.scale * (c - u), conditional[:, channels:]], dim=1)


def guided(network: Any, unconditional: Mapping[str, Tensor], scale: float) -> tuple[Guided, tuple[str, ...]]:
    """Return the guided network, and a warning for its user."""
    return Guided(network, unconditional, scale), (NO_ELBO.format(scale=scale),)


def check_scale(scale: float | None) -> float | None:
    """Return a guidance scale above 1, or None for no guidance: 1 is the conditional model itself."""
    if scale is None or scale == 1.0:
        return None
    if not scale > 1.0:
        raise UnsupportedModelError(
            f"guidance_scale must be above 1 (guided) or 1 (the conditional model itself), not {scale!r}."
        )
    return float(scale)
