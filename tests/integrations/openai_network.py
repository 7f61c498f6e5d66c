"""The U-Net of Nichol and Dhariwal, written here from its description, as an oracle for the mapping onto UNet2DModel.

A walk over the network in the order of its evaluation. Tensors are looked up by the names that the released checkpoints
use, and made at random the first time they are asked for, so one run gives both a checkpoint and its output.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional


class Walk:
    def __init__(self, flags, seed=0):
        self.flags, self.state = flags, {}
        self.generator = torch.Generator().manual_seed(seed)

    def tensor(self, name, *shape):
        if name not in self.state:
            fan_in = math.prod(shape[1:]) if len(shape) > 1 else 1
            self.state[name] = torch.randn(*shape, generator=self.generator) * 0.5 / math.sqrt(fan_in)
        return self.state[name]

    def conv(self, name, x, out, size=3, stride=1):
        weight = self.tensor(f"{name}.weight", out, x.shape[1], size, size)
        return functional.conv2d(x, weight, self.tensor(f"{name}.bias", out), stride=stride, padding=size // 2)

    def linear(self, name, x, out):
        return functional.linear(x, self.tensor(f"{name}.weight", out, x.shape[-1]), self.tensor(f"{name}.bias", out))

    def norm(self, name, x):
        channels = x.shape[1]
        weight, bias = self.tensor(f"{name}.weight", channels), self.tensor(f"{name}.bias", channels)
        return functional.group_norm(x, 32, weight, bias, eps=1e-5)

    def residual(self, name, x, emb, out, resize=None):
        h = functional.silu(self.norm(f"{name}.in_layers.0", x))
        if resize is not None:
            h, x = resize(h), resize(x)
        h = self.conv(f"{name}.in_layers.2", h, out)
        both = 2 if self.flags.use_scale_shift_norm else 1
        e = self.linear(f"{name}.emb_layers.1", functional.silu(emb), both * out)[:, :, None, None]
        if self.flags.use_scale_shift_norm:
            scale, shift = e.chunk(2, dim=1)
            h = self.norm(f"{name}.out_layers.0", h) * (1.0 + scale) + shift
        else:
            h = self.norm(f"{name}.out_layers.0", h + e)
        h = self.conv(f"{name}.out_layers.3", functional.silu(h), out)
        return h + (x if x.shape[1] == out else self.conv(f"{name}.skip_connection", x, out, size=1))

    def attention(self, name, x, up=False):
        flags = self.flags
        B, C, H, W = x.shape
        heads = C // flags.num_head_channels
        if flags.num_head_channels == -1:
            heads = flags.num_heads_upsample if up and flags.num_heads_upsample != -1 else flags.num_heads
        h = self.norm(f"{name}.norm", x).reshape(B, C, H * W)
        weight, bias = self.tensor(f"{name}.qkv.weight", 3 * C, C, 1), self.tensor(f"{name}.qkv.bias", 3 * C)
        qkv = functional.conv1d(h, weight, bias)
        if flags.use_new_attention_order:  # rows by kind, then head
            q, k, v = qkv.reshape(B, 3, heads, C // heads, H * W).unbind(1)
        else:  # rows by head, then kind
            q, k, v = qkv.reshape(B, heads, 3, C // heads, H * W).unbind(2)
        weights = torch.softmax(q.transpose(-1, -2) @ k / math.sqrt(C // heads), dim=-1)
        h = (v @ weights.transpose(-1, -2)).reshape(B, C, H * W)
        out = functional.conv1d(
            h, self.tensor(f"{name}.proj_out.weight", C, C, 1), self.tensor(f"{name}.proj_out.bias", C)
        )
        return x + out.reshape(B, C, H, W)

    def __call__(self, x, time, labels=None):
        flags = self.flags
        width, mult, blocks = flags.num_channels, flags.multipliers, flags.num_res_blocks
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(width // 2) / (width // 2))
        angles = time.float()[:, None] * frequencies
        emb = torch.cat([angles.cos(), angles.sin()], dim=1)
        emb = self.linear("time_embed.2", functional.silu(self.linear("time_embed.0", emb, 4 * width)), 4 * width)
        if flags.class_cond:
            emb = emb + self.tensor("label_emb.weight", 1000, 4 * width)[labels]
        colours = x.shape[1]
        h = self.conv("input_blocks.0.0", x, width)
        skips, place = [h], 1
        for level, m in enumerate(mult):
            for _ in range(blocks):
                h = self.residual(f"input_blocks.{place}.0", h, emb, m * width)
                if level in flags.attention_levels:
                    h = self.attention(f"input_blocks.{place}.1", h)
                skips.append(h)
                place += 1
            if level < len(mult) - 1:
                name = f"input_blocks.{place}.0"
                if flags.resblock_updown:
                    h = self.residual(name, h, emb, m * width, lambda z: functional.avg_pool2d(z, 2))
                else:
                    h = self.conv(f"{name}.op", h, m * width, stride=2)
                skips.append(h)
                place += 1
        h = self.residual("middle_block.0", h, emb, h.shape[1])
        h = self.attention("middle_block.1", h)
        h = self.residual("middle_block.2", h, emb, h.shape[1])
        place = 0
        for level, m in reversed(list(enumerate(mult))):
            for block in range(blocks + 1):
                name, layer = f"output_blocks.{place}", 1
                h = self.residual(f"{name}.0", torch.cat([h, skips.pop()], dim=1), emb, m * width)
                if level in flags.attention_levels:
                    h, layer = self.attention(f"{name}.1", h, up=True), 2
                if level > 0 and block == blocks:
                    if flags.resblock_updown:
                        h = self.residual(f"{name}.{layer}", h, emb, m * width, _double)
                    else:
                        h = self.conv(f"{name}.{layer}.conv", _double(h), m * width)
                place += 1
        return self.conv("out.2", functional.silu(self.norm("out.0", h)), colours * (2 if flags.learn_sigma else 1))


def _double(z):
    return z.repeat_interleave(2, dim=-1).repeat_interleave(2, dim=-2)
