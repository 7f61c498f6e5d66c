"""The flags of OpenAI's improved-diffusion and guided-diffusion, under the names of those repositories.

A released checkpoint contains only tensors; their meaning is given by a line of flags in a README. Names and defaults here
are the repositories', so that such a line can be pasted; the lines of the released models are presets.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from .loaded import UnsupportedModelError

Repository = Literal["improved-diffusion", "guided-diffusion"]


@dataclass(frozen=True)
class OpenAIFlags:
    """Flags with improved-diffusion's defaults; `parse` applies those of guided-diffusion that differ."""

    image_size: int = 64
    num_channels: int = 128
    num_res_blocks: int = 2
    num_heads: int = 4
    num_heads_upsample: int = -1
    num_head_channels: int = -1
    attention_resolutions: str = "16,8"
    channel_mult: str = ""
    dropout: float = 0.0
    learn_sigma: bool = False
    sigma_small: bool = False
    class_cond: bool = False
    diffusion_steps: int = 1000
    noise_schedule: str = "linear"
    timestep_respacing: str = ""
    use_kl: bool = False
    predict_xstart: bool = False
    rescale_timesteps: bool = True
    rescale_learned_sigmas: bool = True
    use_checkpoint: bool = False
    use_scale_shift_norm: bool = True
    resblock_updown: bool = False
    use_fp16: bool = False
    use_new_attention_order: bool = False

    @classmethod
    def parse(
        cls,
        text: str = "",
        repository: Repository = "improved-diffusion",
        flags: Mapping[str, Any] | None = None,
    ) -> OpenAIFlags:
        """Parse a README's line ("--image_size 32 --learn_sigma True …") and keyword flags, which override the line."""
        if repository not in get_args(Repository):
            raise UnsupportedModelError(
                f"repository must be 'improved-diffusion' or 'guided-diffusion', not {repository!r}: their flags are the "
                "same but for some defaults (rescale_timesteps is True in the first and False in the second)."
            )
        defaults = cls()
        if repository == "guided-diffusion":
            defaults = replace(defaults, rescale_timesteps=False, rescale_learned_sigmas=False)
        values = _read_line(text) | {key: value for key, value in (flags or {}).items() if value is not None}
        kinds = {field.name: type(getattr(defaults, field.name)) for field in fields(cls)}
        converted: dict[str, Any] = {}
        for name, value in values.items():
            if name not in kinds:
                if name in TRAINING_FLAGS:
                    continue
                raise UnsupportedModelError(
                    f"--{name} is not a model or diffusion flag of {repository}. Known: {', '.join(sorted(kinds))}."
                )
            converted[name] = _convert(name, value, kinds[name])
        return replace(defaults, **converted)

    @property
    def multipliers(self) -> tuple[int, ...]:
        """Channel multiplier of every level; both repositories derive it from the image size when it is not given."""
        if self.channel_mult:
            try:
                return tuple(int(part) for part in self.channel_mult.split(","))
            except ValueError as error:
                raise UnsupportedModelError(
                    f"channel_mult must be whole numbers, not {self.channel_mult!r}."
                ) from error
        sizes = {256: (1, 1, 2, 2, 4, 4), 128: (1, 1, 2, 3, 4), 64: (1, 2, 3, 4), 32: (1, 2, 2, 2)}
        if self.image_size == 512:
            raise UnsupportedModelError(
                "image_size 512 has channel multiplier 0.5 on its first level, where UNet2DModel ties the width of the "
                "time embedding to the first level, so this network cannot be mapped exactly. Wrap the original network "
                "with dpstride.Denoiser instead (docs/integrations/any-callable.md)."
            )
        if self.image_size not in sizes:
            raise UnsupportedModelError(
                f"image_size {self.image_size} has no default channel_mult (32, 64, 128 and 256 have). Give channel_mult, "
                "for example '1,2,2'."
            )
        return sizes[self.image_size]

    @property
    def attention_levels(self) -> frozenset[int]:
        """Levels (0 is the full size) with attention."""
        try:
            rates = {self.image_size // int(size) for size in self.attention_resolutions.split(",") if size}
        except (ValueError, ZeroDivisionError) as error:
            raise UnsupportedModelError(
                f"attention_resolutions must be image sizes such as '16,8', not {self.attention_resolutions!r}."
            ) from error
        return frozenset(level for level in range(len(self.multipliers)) if 2**level in rates)


def _read_line(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UnsupportedModelError(f"The flags {text!r:.200} cannot be split into words ({error}).") from error
    values: dict[str, str] = {}
    while words:
        name = words.pop(0)
        if not name.startswith("--"):
            raise UnsupportedModelError(f"Flags are written --name value, but {name!r} is in the place of a name.")
        name, equals, value = name[2:].partition("=")
        if not equals:
            if not words:
                raise UnsupportedModelError(f"--{name} has no value. Flags are written --name value.")
            value = words.pop(0)
        values[name] = value
    return values


def _convert(name: str, value: Any, kind: type) -> Any:
    if kind is bool and isinstance(value, str):
        if value.lower() not in _TRUE | _FALSE:
            raise UnsupportedModelError(f"--{name} must be True or False, not {value!r}.")
        return value.lower() in _TRUE
    if kind is str and isinstance(value, (tuple, list)):
        return ",".join(str(part) for part in value)
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(f"--{name} must be {kind.__name__}, not {value!r}.") from error


_TRUE = {"true", "yes", "t", "y", "1"}
_FALSE = {"false", "no", "f", "n", "0"}

# Flags of the same READMEs for training or sampling a model, which do not describe it.
TRAINING_FLAGS = frozenset(
    {
        *(
            "data_dir",
            "schedule_sampler",
            "lr",
            "weight_decay",
            "lr_anneal_steps",
            "batch_size",
            "microbatch",
            "ema_rate",
        ),
        *("log_interval", "save_interval", "resume_checkpoint", "fp16_scale_growth"),
        *("model_path", "num_samples", "use_ddim", "clip_denoised", "classifier_scale"),
    }
)

# Name → (repository, flags), as the two READMEs give them for their released checkpoints.
PRESETS: dict[str, tuple[Repository, str]] = {
    "cifar10-l-hybrid": (
        "improved-diffusion",
        "--image_size 32 --num_channels 128 --num_res_blocks 3 --learn_sigma True --dropout 0.3 "
        "--diffusion_steps 4000 --noise_schedule cosine",
    ),
    "cifar10-l-vlb": (
        "improved-diffusion",
        "--image_size 32 --num_channels 128 --num_res_blocks 3 --learn_sigma True --dropout 0.3 "
        "--diffusion_steps 4000 --noise_schedule cosine --use_kl True",
    ),
    "imagenet64-l-hybrid": (
        "improved-diffusion",
        "--image_size 64 --num_channels 128 --num_res_blocks 3 --learn_sigma True "
        "--diffusion_steps 4000 --noise_schedule cosine",
    ),
    "imagenet64-l-vlb": (
        "improved-diffusion",
        "--image_size 64 --num_channels 128 --num_res_blocks 3 --learn_sigma True "
        "--diffusion_steps 4000 --noise_schedule cosine --use_kl True",
    ),
    "imagenet64-class-conditional": (
        "improved-diffusion",
        "--image_size 64 --num_channels 192 --num_res_blocks 3 --learn_sigma True --class_cond True "
        "--diffusion_steps 4000 --noise_schedule cosine --rescale_learned_sigmas False --rescale_timesteps False",
    ),
    "lsun-bedroom": (
        "improved-diffusion",
        "--image_size 256 --num_channels 128 --num_res_blocks 2 --num_heads 1 --learn_sigma True "
        "--use_scale_shift_norm False --attention_resolutions 16 "
        "--diffusion_steps 1000 --noise_schedule linear --rescale_learned_sigmas False --rescale_timesteps False",
    ),
    "guided-imagenet64": (
        "guided-diffusion",
        "--attention_resolutions 32,16,8 --class_cond True --diffusion_steps 1000 --dropout 0.1 --image_size 64 "
        "--learn_sigma True --noise_schedule cosine --num_channels 192 --num_head_channels 64 --num_res_blocks 3 "
        "--resblock_updown True --use_new_attention_order True --use_fp16 True --use_scale_shift_norm True",
    ),
    "guided-imagenet128": (
        "guided-diffusion",
        "--attention_resolutions 32,16,8 --class_cond True --diffusion_steps 1000 --image_size 128 --learn_sigma True "
        "--noise_schedule linear --num_channels 256 --num_heads 4 --num_res_blocks 2 --resblock_updown True "
        "--use_fp16 True --use_scale_shift_norm True",
    ),
    "guided-imagenet256": (
        "guided-diffusion",
        "--attention_resolutions 32,16,8 --class_cond True --diffusion_steps 1000 --image_size 256 --learn_sigma True "
        "--noise_schedule linear --num_channels 256 --num_head_channels 64 --num_res_blocks 2 --resblock_updown True "
        "--use_fp16 True --use_scale_shift_norm True",
    ),
    "guided-imagenet256-unconditional": (
        "guided-diffusion",
        "--attention_resolutions 32,16,8 --class_cond False --diffusion_steps 1000 --image_size 256 --learn_sigma True "
        "--noise_schedule linear --num_channels 256 --num_head_channels 64 --num_res_blocks 2 --resblock_updown True "
        "--use_fp16 True --use_scale_shift_norm True",
    ),
}


def preset_flags(preset: str) -> tuple[Repository, str]:
    """Return the repository and flags of a released checkpoint by name."""
    if preset not in PRESETS:
        raise UnsupportedModelError(f"There is no preset {preset!r}; presets are {', '.join(sorted(PRESETS))}.")
    return PRESETS[preset]
