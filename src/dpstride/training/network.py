"""The network to train: a small UNet2DModel of diffusers, with fresh weights or those of another model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dpstride.zoo.library import diffusers
from dpstride.zoo.models import load_unet

if TYPE_CHECKING:
    from torch import nn

NORM_GROUPS = 8
COARSEST = 8  # images are halved until their sides are at most this, so that attention is cheap
MOST_LEVELS = 5
WIDEST = 64


def default_channels(shape: tuple[int, int, int]) -> tuple[int, ...]:
    """Widths of the levels for images of ``shape`` [C, H, W]: (24, 48, 64) for 28×28 grey, (32, 64, 64) for 32×32 colour.

    Sides are halved while they are even and above 8. Widths double from level to level up to 64; colour starts wider.
    """
    channels, height, width = shape
    widths = [24 if channels == 1 else 32]
    while len(widths) < MOST_LEVELS and max(height, width) > COARSEST and height % 2 == width % 2 == 0:
        height, width = height // 2, width // 2
        widths.append(min(2 * widths[-1], WIDEST))
    return tuple(widths)


def build_network(
    shape: tuple[int, int, int],
    learned_variance: bool,
    channels: tuple[int, ...] | None = None,
    layers_per_block: int = 1,
    attention: tuple[int, ...] | None = None,
    classes: int = 0,
) -> nn.Module:
    """Build a UNet2DModel for images of ``shape`` [C, H, W].

    Args:
        shape: one image's shape.
        learned_variance: 2C output channels, the prediction and v.
        channels: width of every level, each half the resolution of the one before; None takes `default_channels`.
        layers_per_block: residual blocks of a level.
        attention: heights of the levels with attention, such as (16, 8); None is only the coarsest, () none.
        classes: number of classes of a class-conditional network; 0 is unconditional.

    Weights come from torch's global generator: seed it first.
    """
    image_channels, height, width = shape
    channels = default_channels(shape) if channels is None else channels
    heights = _level_heights(shape, channels)
    attended = attended_heights(shape, channels, attention)
    if wrong := [size for size in attended if size not in heights]:
        raise ValueError(
            f"attention names the height {wrong[0]}, but the levels have the heights {', '.join(map(str, heights))}. "
            "Choose from these, or none."
        )
    down = tuple("AttnDownBlock2D" if size in attended else "DownBlock2D" for size in heights)
    network: nn.Module = diffusers().UNet2DModel(
        sample_size=height if height == width else (height, width),
        in_channels=image_channels,
        out_channels=image_channels * (2 if learned_variance else 1),
        layers_per_block=layers_per_block,
        block_out_channels=channels,
        down_block_types=down,
        up_block_types=tuple(block.replace("Down", "Up") for block in reversed(down)),
        norm_num_groups=NORM_GROUPS,
        add_attention=bool(attended),
        num_class_embeds=classes or None,
    )
    return network


def attended_heights(
    shape: tuple[int, int, int], channels: tuple[int, ...], attention: Sequence[int] | None
) -> tuple[int, ...]:
    """Heights of the levels with attention, descending, each once; the coarsest for None."""
    return _level_heights(shape, channels)[-1:] if attention is None else tuple(sorted(set(attention), reverse=True))


def _level_heights(shape: tuple[int, int, int], channels: tuple[int, ...]) -> tuple[int, ...]:
    """Heights of the levels; raises ValueError if images or widths do not fit them."""
    _, height, width = shape
    if wrong := [each for each in channels or (0,) if each < 1 or each % NORM_GROUPS]:
        raise ValueError(f"Every level's channels must be a positive multiple of {NORM_GROUPS}, but {wrong[0]} is not.")
    halvings = 2 ** (len(channels) - 1)
    if min(height, width) < 2 * halvings:
        remedy = (
            f"Give fewer levels of channels (now {channels})" if len(channels) > 1 else "Give images of 2×2 or more"
        )
        raise ValueError(
            f"Images of {height}×{width} are too small for {len(channels)} level{'s' * (len(channels) > 1)}, of which the "
            f"coarsest would be {height / halvings:g}×{width / halvings:g}. {remedy}."
        )
    if height % halvings or width % halvings:
        raise ValueError(
            f"Images of {height}×{width} cannot be halved {len(channels) - 1} times; give fewer levels of channels (now "
            f"{channels}) or pad the images to a multiple of {halvings}."
        )
    return tuple(height >> level for level in range(len(channels)))


def load_weights(network: nn.Module, folder: Path) -> None:
    """Start ``network`` from the weights of the model in ``folder`` (a diffusers folder, or its unet folder).

    If only the number of output channels differs, the channels of the prediction are kept and new ones (v of a learned
    variance) are zero: φ = (v + 1)/2 then starts at ½ everywhere, the geometric mean of the two variances.
    """
    source_folder = folder / "unet" if (folder / "unet").is_dir() else folder
    if not (source_folder / "config.json").is_file():
        inner = f" Did you mean {folder / 'model'}?" if (folder / "model" / "unet").is_dir() else ""
        raise ValueError(
            f"{folder} holds no diffusers model (no unet/config.json). Give the folder model/ of a run of train.{inner}"
        )
    state = load_unet(source_folder).state_dict()
    target = network.state_dict()
    for name in ("conv_out.weight", "conv_out.bias"):
        if name in state and name in target and state[name].shape[1:] == target[name].shape[1:]:
            widened = torch.zeros_like(target[name])
            kept = min(len(widened), len(state[name]))
            widened[:kept] = state[name][:kept]
            state[name] = widened
    shapes = [{name: tuple(tensor.shape) for name, tensor in each.items()} for each in (state, target)]
    if wrong := [name for name in {**state, **target} if shapes[0].get(name) != shapes[1].get(name)]:
        there, here = (each.get(wrong[0], "absent") for each in shapes)
        raise ValueError(
            f"The model in {folder} has another architecture: {wrong[0]} is {there} there and {here} here. Give images with "
            "the same number of channels, and the widths, layers per block, attention and classes that it was trained with."
        )
    network.load_state_dict(state)
