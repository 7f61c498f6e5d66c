"""The network that is trained: diffusers' UNet2DModel, lean, fresh or from another model's weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dpstride.zoo.library import diffusers
from dpstride.zoo.models import load_unet

if TYPE_CHECKING:
    from torch import nn

DEFAULT_CHANNELS = (24, 48, 64)
NORM_GROUPS = 8


def build_network(
    shape: tuple[int, int, int],
    learned_variance: bool,
    channels: tuple[int, ...] = DEFAULT_CHANNELS,
    layers_per_block: int = 1,
) -> nn.Module:
    """A UNet2DModel for images of ``shape`` [C, H, W], with attention at its coarsest resolution only.

    The default has 0.87 M parameters at 28×28. With learned variance it has 2C output channels, the prediction and v.
    Weights come from torch's global generator: seed it first.
    """
    image_channels, height, width = shape
    halvings = 2 ** (len(channels) - 1)
    if height % halvings or width % halvings:
        raise ValueError(
            f"Images of {height}×{width} cannot be halved {len(channels) - 1} times; give fewer channels levels (now "
            f"{channels}) or pad the images to a multiple of {halvings}."
        )
    if wrong := [width for width in channels if width % NORM_GROUPS]:
        raise ValueError(f"Every level's channels must be a multiple of {NORM_GROUPS}, but {wrong[0]} is not.")
    plain = len(channels) - 1
    network: nn.Module = diffusers().UNet2DModel(
        sample_size=height if height == width else (height, width),
        in_channels=image_channels,
        out_channels=image_channels * (2 if learned_variance else 1),
        layers_per_block=layers_per_block,
        block_out_channels=channels,
        down_block_types=("DownBlock2D",) * plain + ("AttnDownBlock2D",),
        up_block_types=("AttnUpBlock2D",) + ("UpBlock2D",) * plain,
        norm_num_groups=NORM_GROUPS,
    )
    return network


def load_weights(network: nn.Module, folder: Path) -> None:
    """Start ``network`` from the weights of the model in ``folder`` (a diffusers folder, or its unet folder).

    When only the number of output channels differs, the prediction's channels are kept and new ones (v, of a learned
    variance) are zero: φ = (v + 1)/2 then starts at ½ everywhere, the geometric mean of the two variances.
    """
    source_folder = folder / "unet" if (folder / "unet").is_dir() else folder
    if not (source_folder / "config.json").is_file():
        raise ValueError(f"{folder} holds no diffusers model (no unet/config.json). Give the folder that train wrote.")
    state = load_unet(source_folder).state_dict()
    target = network.state_dict()
    for name in ("conv_out.weight", "conv_out.bias"):
        if name in state and name in target and state[name].shape[1:] == target[name].shape[1:]:
            widened = torch.zeros_like(target[name])
            kept = min(len(widened), len(state[name]))
            widened[:kept] = state[name][:kept]
            state[name] = widened
    if wrong := [name for name in target if name not in state or state[name].shape != target[name].shape]:
        found = tuple(state[wrong[0]].shape) if wrong[0] in state else "absent"
        raise ValueError(
            f"The model in {folder} has another architecture: {wrong[0]} is {found} there and "
            f"{tuple(target[wrong[0]].shape)} "
            "here. Give the same channels and layers per block as it was trained with."
        )
    network.load_state_dict(state)
