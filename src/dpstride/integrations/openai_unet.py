"""A UNet2DModel with the two features of OpenAI's networks for which diffusers has no configuration.

These are a constant number of attention heads on levels of different widths (ImageNet-64), and time steps rescaled to
0 … 1000 (`rescale_timesteps`). Everything else maps onto plain UNet2DModel, which is used if neither is needed. This is a
separate file because saved folders name it: diffusers imports this module when it loads such a folder.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from diffusers import (
    ModelMixin as ModelMixin,  # diffusers looks it up in this module to classify our class
    UNet2DModel,
)
from diffusers.models.attention_processor import Attention


class OpenAIUNet2DModel(UNet2DModel):  # type: ignore[misc]  # diffusers has no types
    """UNet2DModel with ``attention_heads`` = (down and middle, up) and ``time_scale``, which multiplies the time step."""

    def __init__(
        self, attention_heads: tuple[int, int] | None = None, time_scale: float = 1.0, **configuration: Any
    ) -> None:
        super().__init__(**configuration)
        self.register_to_config(attention_heads=attention_heads, time_scale=time_scale)
        if attention_heads is not None:
            _set_heads(self.down_blocks, attention_heads[0])
            _set_heads(self.mid_block, attention_heads[0])
            _set_heads(self.up_blocks, attention_heads[1])

    def forward(self, sample: torch.Tensor, timestep: Any, *args: Any, **kwargs: Any) -> Any:
        """Run UNet2DModel at ``timestep · time_scale``; the product is taken in float32, as in OpenAI's code."""
        timestep = torch.as_tensor(timestep, device=sample.device)
        return super().forward(sample, timestep.to(torch.float32) * self.config.time_scale, *args, **kwargs)


def _set_heads(part: torch.nn.Module, heads: int) -> None:
    for module in part.modules():
        if isinstance(module, Attention):
            module.heads = heads
            module.sliceable_head_dim = heads
            module.scale = (module.inner_dim // heads) ** -0.5


# diffusers reads the names of a config from the signature, which must therefore show those in **configuration.
_own = list(inspect.signature(OpenAIUNet2DModel.__init__).parameters.values())[:-1]
_inherited = [p for p in inspect.signature(UNet2DModel.__init__).parameters.values() if p.name != "self"]
vars(OpenAIUNet2DModel)["__init__"].__signature__ = inspect.Signature([*_own, *_inherited])
