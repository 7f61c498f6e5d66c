"""Small pipelines of every kind with random weights, built by diffusers' own classes."""

from __future__ import annotations

import string
from typing import Any

import diffusers
import torch
import transformers

T = 20


def unet(seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    arguments = {
        "sample_size": 8,
        "in_channels": 3,
        "out_channels": 3,
        "block_out_channels": (8, 16),
        "layers_per_block": 1,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        "norm_num_groups": 4,
        "attention_head_dim": 4,
    }
    return diffusers.UNet2DModel(**{**arguments, **changes}).eval()


def vae() -> Any:
    torch.manual_seed(1)
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        scaling_factor=0.5,
        shift_factor=0.25,
    ).eval()


def dit(scheduler: Any, classes: int = 10) -> Any:
    torch.manual_seed(2)
    transformer = diffusers.DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        out_channels=8,
        num_layers=1,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=classes,
        norm_type="ada_norm_zero",
        norm_elementwise_affine=False,
        activation_fn="gelu-approximate",
    )
    for parameter in transformer.parameters():  # DiT starts at zero, which would hide every mistake
        parameter.data.normal_(0.0, 0.2)
    return diffusers.DiTPipeline(transformer=transformer.eval(), vae=vae(), scheduler=scheduler)


class Text:
    """Tiny text encoders, and a tokenizer that spells."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        pieces = [*string.ascii_lowercase, *(f"{c}</w>" for c in string.ascii_lowercase)]
        vocabulary = {piece: i for i, piece in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}
        self.tokenizer = transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=16)
        size = len(vocabulary)
        config = transformers.CLIPTextConfig(
            vocab_size=size,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=16,
            projection_dim=8,
            bos_token_id=size - 2,
            eos_token_id=size - 1,
        )
        self.clip = transformers.CLIPTextModel(config).eval()
        self.projecting = transformers.CLIPTextModelWithProjection(config).eval()
        t5 = transformers.T5Config(vocab_size=size, d_model=32, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
        self.t5 = transformers.T5EncoderModel(t5).eval()


def _text_unet(cross_attention_dim: int, **changes: Any) -> Any:
    torch.manual_seed(4)
    return diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=cross_attention_dim,
        norm_num_groups=4,
        attention_head_dim=4,
        **changes,
    ).eval()


def stable_diffusion(scheduler: Any) -> Any:
    text = Text()
    return diffusers.StableDiffusionPipeline(
        vae=vae(),
        text_encoder=text.clip,
        tokenizer=text.tokenizer,
        unet=_text_unet(16),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_xl(scheduler: Any) -> Any:
    text = Text()
    added = {
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 6 * 8 + 8,
    }
    return diffusers.StableDiffusionXLPipeline(
        vae=vae(),
        text_encoder=text.clip,
        text_encoder_2=text.projecting,
        tokenizer=text.tokenizer,
        tokenizer_2=text.tokenizer,
        unet=_text_unet(32, **added),
        scheduler=scheduler,
        add_watermarker=False,
    )


def stable_diffusion_3(scheduler: Any) -> Any:
    text = Text()
    torch.manual_seed(5)
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=32,
        caption_projection_dim=16,
        pooled_projection_dim=16,
        pos_embed_max_size=8,
    )
    return diffusers.StableDiffusion3Pipeline(
        transformer=transformer.eval(),
        scheduler=scheduler,
        vae=vae(),
        text_encoder=text.projecting,
        tokenizer=text.tokenizer,
        text_encoder_2=text.projecting,
        tokenizer_2=text.tokenizer,
        text_encoder_3=text.t5,
        tokenizer_3=text.tokenizer,
    )


def flux(scheduler: Any, guidance_embeds: bool = True) -> Any:
    text = Text()
    torch.manual_seed(6)
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=16,
        guidance_embeds=guidance_embeds,
        axes_dims_rope=(4, 4, 8),
    )
    return diffusers.FluxPipeline(
        scheduler=scheduler,
        vae=vae(),
        text_encoder=text.clip,
        tokenizer=text.tokenizer,
        text_encoder_2=text.t5,
        tokenizer_2=text.tokenizer,
        transformer=transformer.eval(),
    )
