"""The tensors of an OpenAI U-Net under the names and in the layout of diffusers' UNet2DModel.

The two networks compute the same function; they differ in how blocks are numbered (OpenAI: one flat list per half,
diffusers: levels), and in attention, where OpenAI keeps queries, keys and values in one matrix whose rows are ordered by head
first (legacy order) or by kind first (new order). Nothing is approximated: `convert` uses every tensor once, or refuses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .loaded import UnsupportedModelError
from .openai_flags import OpenAIFlags

_RESNET = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
}

# A file of tensors does not contain its flags, so without any given the defaults are tried, and they seldom fit.
_PRESET = "For a released checkpoint, give its flags by name: preset= (on the command line -M preset=NAME)."


def unet_configuration(flags: OpenAIFlags, state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the arguments of UNet2DModel (and of `OpenAIUNet2DModel` if needed) for a checkpoint of these flags."""
    multipliers, attention = flags.multipliers, flags.attention_levels
    if multipliers[0] != 1:
        raise UnsupportedModelError(
            f"The first channel multiplier must be 1, not {multipliers[0]}: UNet2DModel ties the width of the time "
            "embedding to the first level. Wrap the original network with dpstride.Denoiser instead."
        )
    channels = tuple(flags.num_channels * multiplier for multiplier in multipliers)
    in_channels = _shape(state, "input_blocks.0.0.weight", 4)[1]
    out_channels = _shape(state, "out.2.weight", 4)[0]
    if out_channels != in_channels * (2 if flags.learn_sigma else 1):
        raise UnsupportedModelError(
            f"The checkpoint maps {in_channels} channels to {out_channels}, which does not fit learn_sigma="
            f"{flags.learn_sigma}. Set learn_sigma as the model was trained; a super-resolution checkpoint takes "
            f"its low-resolution image as extra channels and is not supported. {_PRESET}"
        )
    down = "ResnetDownsampleBlock2D" if flags.resblock_updown else "DownBlock2D"
    up = "ResnetUpsampleBlock2D" if flags.resblock_updown else "UpBlock2D"
    levels = range(len(channels))
    configuration: dict[str, Any] = {
        "sample_size": flags.image_size,
        "in_channels": in_channels,
        "out_channels": out_channels,
        "block_out_channels": channels,
        "layers_per_block": flags.num_res_blocks,
        "down_block_types": tuple("AttnDownBlock2D" if level in attention else down for level in levels),
        "up_block_types": tuple("AttnUpBlock2D" if level in attention else up for level in reversed(levels)),
        "downsample_type": "resnet" if flags.resblock_updown else "conv",
        "upsample_type": "resnet" if flags.resblock_updown else "conv",
        "dropout": flags.dropout,
        "norm_num_groups": 32,
        "attn_norm_num_groups": 32,  # without it the middle attention loses its norm under scale_shift
        "norm_eps": 1e-5,
        "flip_sin_to_cos": True,
        "freq_shift": 0,
        "resnet_time_scale_shift": "scale_shift" if flags.use_scale_shift_norm else "default",
        "num_class_embeds": _shape(state, "label_emb.weight", 2)[0] if flags.class_cond else None,
    }
    if flags.num_head_channels != -1:
        configuration["attention_head_dim"] = flags.num_head_channels
    else:
        if flags.num_heads < 1 or flags.num_heads_upsample == 0:
            raise UnsupportedModelError(f"num_heads must be at least 1, not {flags.num_heads}.")
        heads = (flags.num_heads, flags.num_heads if flags.num_heads_upsample == -1 else flags.num_heads_upsample)
        widths = {channels[level] // heads[0] for level in (*attention, len(channels) - 1)}
        configuration["attention_head_dim"] = math.gcd(*widths)  # any common divisor; `attention_heads` decides
        if len(widths) > 1 or heads[0] != heads[1]:
            configuration["attention_heads"] = heads
    if flags.rescale_timesteps and flags.diffusion_steps != 1000:
        configuration["time_scale"] = 1000.0 / flags.diffusion_steps
    return configuration


def convert(flags: OpenAIFlags, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return UNet2DModel's state dictionary made from OpenAI's."""
    names = _Names(state)
    levels, attention, blocks = len(flags.multipliers), flags.attention_levels, flags.num_res_blocks
    names.take("time_embed.0", "time_embedding.linear_1")
    names.take("time_embed.2", "time_embedding.linear_2")
    if flags.class_cond:
        names.take("label_emb", "class_embedding", bias=False)
    names.take("input_blocks.0.0", "conv_in")
    place = 1
    for level in range(levels):
        for block in range(blocks):
            names.resnet(f"input_blocks.{place}.0", f"down_blocks.{level}.resnets.{block}")
            if level in attention:
                names.attention(f"input_blocks.{place}.1", f"down_blocks.{level}.attentions.{block}", flags, up=False)
            place += 1
        if level < levels - 1:
            target = f"down_blocks.{level}.downsamplers.0"
            if flags.resblock_updown:
                names.resnet(f"input_blocks.{place}.0", target)
            else:
                names.take(f"input_blocks.{place}.0.op", f"{target}.conv")
            place += 1
    names.resnet("middle_block.0", "mid_block.resnets.0")
    names.attention("middle_block.1", "mid_block.attentions.0", flags, up=False)
    names.resnet("middle_block.2", "mid_block.resnets.1")
    place = 0
    for depth, level in enumerate(reversed(range(levels))):
        for block in range(blocks + 1):
            layer = 1
            names.resnet(f"output_blocks.{place}.0", f"up_blocks.{depth}.resnets.{block}")
            if level in attention:
                names.attention(f"output_blocks.{place}.1", f"up_blocks.{depth}.attentions.{block}", flags, up=True)
                layer = 2
            if level > 0 and block == blocks:
                target = f"up_blocks.{depth}.upsamplers.0"
                if flags.resblock_updown:
                    names.resnet(f"output_blocks.{place}.{layer}", target)
                else:
                    names.take(f"output_blocks.{place}.{layer}.conv", f"{target}.conv")
            place += 1
    names.take("out.0", "conv_norm_out")
    names.take("out.2", "conv_out")
    names.check_all_used()
    return names.converted


class _Names:
    """OpenAI's tensors, each taken once."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self.state = state
        self.converted: dict[str, Tensor] = {}
        self.used: set[str] = set()

    def take(self, source: str, target: str, bias: bool = True) -> None:
        for part in ("weight", "bias") if bias else ("weight",):
            self.converted[f"{target}.{part}"] = self._tensor(f"{source}.{part}").float()

    def resnet(self, source: str, target: str) -> None:
        for theirs, ours in _RESNET.items():
            self.take(f"{source}.{theirs}", f"{target}.{ours}")
        if f"{source}.skip_connection.weight" in self.state:
            self.take(f"{source}.skip_connection", f"{target}.conv_shortcut")

    def attention(self, source: str, target: str, flags: OpenAIFlags, *, up: bool) -> None:
        self.take(f"{source}.norm", f"{target}.group_norm")
        for part in ("weight", "bias"):
            qkv = self._matrix(f"{source}.qkv.{part}")
            channels = qkv.shape[0] // 3 if qkv.ndim else 0
            rest = qkv.shape[1:]
            heads = _heads(flags, channels, up=up)
            if not channels or qkv.shape[0] != 3 * channels or heads < 1 or channels % heads:
                raise UnsupportedModelError(
                    f"The tensor {source}.qkv.{part} has shape {tuple(qkv.shape)}, which is not three matrices of {heads} "
                    "heads. Check num_heads and num_head_channels."
                )
            if flags.use_new_attention_order:
                kinds = qkv.reshape(3, channels, *rest)
            else:
                kinds = qkv.reshape(heads, 3, -1, *rest).transpose(0, 1)
            for kind, name in zip(kinds, ("to_q", "to_k", "to_v"), strict=True):
                self.converted[f"{target}.{name}.{part}"] = kind.reshape(channels, *rest).contiguous()
            self.converted[f"{target}.to_out.0.{part}"] = self._matrix(f"{source}.proj_out.{part}")

    def check_all_used(self) -> None:
        if left := sorted(set(self.state) - self.used):
            raise UnsupportedModelError(
                f"The checkpoint has tensors that a network of these flags does not have, for example {left[0]!r} "
                f"({len(left)} in all). Check num_res_blocks, attention_resolutions, class_cond, resblock_updown and the "
                f"image size. {_PRESET}"
            )

    def _matrix(self, name: str) -> Tensor:
        """Return a convolution of width 1 as a matrix."""
        tensor = self._tensor(name).float()
        return tensor.squeeze(-1) if tensor.ndim == 3 else tensor

    def _tensor(self, name: str) -> Tensor:
        if name not in self.state:
            raise UnsupportedModelError(
                f"The checkpoint has no tensor {name!r}, which a network of these flags has. Check num_res_blocks, "
                f"attention_resolutions, class_cond, resblock_updown and the image size. {_PRESET}"
            )
        self.used.add(name)
        return self.state[name]


def _heads(flags: OpenAIFlags, channels: int, *, up: bool) -> int:
    if flags.num_head_channels != -1:
        return channels // flags.num_head_channels if flags.num_head_channels > 0 else 0
    return flags.num_heads_upsample if up and flags.num_heads_upsample != -1 else flags.num_heads


def _shape(state: Mapping[str, Tensor], name: str, axes: int) -> tuple[int, ...]:
    if name not in state or state[name].ndim != axes or not state[name].numel():
        found = f"its {name!r} has shape {tuple(state[name].shape)}" if name in state else f"it has no {name!r}"
        raise UnsupportedModelError(
            f"This is not a checkpoint of improved-diffusion or guided-diffusion with these flags: {found}."
        )
    return tuple(state[name].shape)
