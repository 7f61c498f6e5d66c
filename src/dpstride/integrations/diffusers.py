"""diffusers pipelines become denoisers: a folder, a hub id, or a pipeline object.

The only entry point, `load_diffusers`, passes a pipeline to the function for its class: pixels here, latents in
`diffusers_latent`, flow matching in `diffusers_flow`. The scheduler's config is read in `scheduler_config`; an unknown
pipeline is refused with the list of known ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ..denoiser import Denoiser
from ..devices import usable_device
from ..options import LEARNED_RANGE, POSTERIOR, ModelVariance
from ..reading.documents import read_json
from ..reading.text import first_line
from .folders import OWN, UNUSED, check_index, clean_pipeline
from .guidance import check_scale
from .latents import LatentKind
from .loaded import LoadedModel, UnsupportedModelError, quietly, require_diffusers
from .openai import ClassConditional, Plain
from .part_weights import check_complete
from .scheduler_config import VARIANCE_TYPES, SchedulerFacts, read_scheduler

PIXELS = ("DDPMPipeline", "DDIMPipeline", "PNDMPipeline")
LATENT = ("DiTPipeline", "StableDiffusionPipeline", "StableDiffusionXLPipeline")
FLOW = ("StableDiffusion3Pipeline", "FluxPipeline")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options beyond the pipeline itself.

    Attributes:
        name: the model's name in reports.
        guidance_scale: classifier-free guidance; None is the conditional model itself, the only one with an ELBO.
        variance: reverse variance, instead of the config's; a learned one can be dropped but not added.
        overrides: entries of the scheduler's config to replace, for example {"thresholding": False}.
        negative_prompt: prompt that a guided text model is steered away from.
        latents: "sample" from the autoencoder's distribution, as training does, or its "mean".
        sample_size: height and width of one sample of the denoiser (latents for latent models), if not the config's.
        T: grid steps of a flow-matching model, which is trained on continuous times; None is the scheduler's own number.
    """

    name: str
    guidance_scale: float | None = None
    variance: ModelVariance | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    negative_prompt: str = ""
    latents: LatentKind = "sample"
    sample_size: int | tuple[int, int] | None = None
    T: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "guidance_scale", check_scale(self.guidance_scale))


def load_diffusers(
    source: Any, *, device: str | torch.device | None = None, dtype: torch.dtype | None = None, **options: Any
) -> LoadedModel:
    """Make a denoiser from a diffusers pipeline.

    Args:
        source: a pipeline folder, a hub id, or a pipeline object.
        device: device to run it on.
        dtype: precision in which to load a folder or hub id.
        **options: guidance_scale, variance, overrides, negative_prompt, latents, sample_size and T, see `Options`.
    """
    diffusers = require_diffusers("Reading a diffusers pipeline")
    place = None if device is None else usable_device(device)  # before gigabytes are read
    pipeline, name = _pipeline(diffusers, source, dtype)
    if place is not None:
        pipeline = pipeline.to(place)
    chosen = Options(name=name, **options)
    if isinstance(source, diffusers.DiffusionPipeline):
        return _load(pipeline, chosen)
    try:
        return _load(pipeline, chosen)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
        # The configs of a file may hold anything; errors in them are reported with the file's name.
        raise UnsupportedModelError(f"{source}: {error if isinstance(error, ValueError) else repr(error)}") from error


def _load(pipeline: Any, options: Options) -> LoadedModel:
    kinds = {kind.__name__ for kind in type(pipeline).__mro__}
    if options.T is not None and not kinds & set(FLOW):
        raise UnsupportedModelError(
            f"T chooses the grid of a flow-matching model, but {type(pipeline).__name__} was trained on fixed steps. Thin "
            "its grid with denoiser.process.subset(steps) instead."
        )
    if kinds & set(PIXELS):
        return load_pixels(pipeline.unet, pipeline.scheduler, options)
    if kinds & set(LATENT):
        from .diffusers_latent import load_latent

        return load_latent(pipeline, options)
    if kinds & set(FLOW):
        from .diffusers_flow import load_flow

        return load_flow(pipeline, options)
    raise UnsupportedModelError(
        f"{type(pipeline).__name__} is not a pipeline that dpstride knows; it knows {', '.join((*PIXELS, *LATENT, *FLOW))}."
        " If its network estimates clean data from (x, time), wrap it: dpstride.Denoiser(lambda x, time: …, process)."
    )


def load_pixels(unet: Any, scheduler: Any, options: Options) -> LoadedModel:
    """Load a UNet2DModel on pixels, class-conditional or not."""
    if options.guidance_scale is not None:
        raise UnsupportedModelError(
            "guidance_scale needs a network with a null condition; a UNet2DModel has none. Leave guidance_scale out."
        )
    facts = facts_of(scheduler, options)
    variance, keep, note = choose_variance(facts, unet.config.in_channels, unet.config.out_channels, options.variance)
    conditional = unet.config.num_class_embeds is not None or unet.config.class_embed_type is not None
    network: Any = ClassConditional(unet) if conditional else Plain(unet)
    if not keep:
        network = FirstHalf(network)
    shape = sample_shape(unet.config.in_channels, options.sample_size or unet.config.sample_size)
    denoiser = denoiser_of(network, facts, variance, shape, name=options.name)
    notes = (*facts.notes, note)
    return LoadedModel(denoiser, notes, conditioning="a class label per sample" if conditional else None)


class FirstHalf:
    """A learned-variance network without its variance: the prediction's channels only."""

    stateless = True  # like the networks that it wraps

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, x: Tensor, time: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the first half of the channels."""
        return cast(Tensor, self.network(x, time, *args, **kwargs)[:, : x.shape[1]])


# --- shared by the kinds of pipelines -----------------------------------------------------------------------------------


def facts_of(scheduler: Any, options: Options) -> SchedulerFacts:
    """Return the facts in the scheduler's config, with the user's overrides; an explicit variance replaces the config's."""
    overrides = dict(options.overrides)
    if options.variance is not None and "variance_type" in scheduler.config:
        overrides.setdefault("variance_type", VARIANCE_TYPES[options.variance])
    return read_scheduler(dict(scheduler.config), overrides, type(scheduler).__name__)


def denoiser_of(
    network: Any, facts: SchedulerFacts, variance: ModelVariance, shape: tuple[int, ...] | None, *, name: str
) -> Denoiser:
    """Return the denoiser of a network on the process of its scheduler."""
    return Denoiser(
        network, facts.process, predicts=facts.predicts, variance=variance, clip=facts.clip, shape=shape, name=name
    )


def choose_variance(
    facts: SchedulerFacts, in_channels: int, out_channels: int, asked: ModelVariance | None
) -> tuple[ModelVariance, bool, str]:
    """Return the variance to use, whether the network's variance channels are kept, and a note with the reason."""
    learned = out_channels == 2 * in_channels
    if out_channels not in (in_channels, 2 * in_channels):
        raise UnsupportedModelError(
            f"The network maps {in_channels} channels to {out_channels}. A denoiser returns as many channels as it takes, "
            "or twice as many with a learned variance; inpainting and super-resolution networks are not supported."
        )
    wanted = asked or facts.variance
    if wanted is None:
        rule = "the network has variance channels" if learned else "the default, since the config names none"
        wanted = LEARNED_RANGE if learned else POSTERIOR
        return wanted, True, f"variance {wanted}: {rule}"
    if wanted == LEARNED_RANGE and not learned:
        raise UnsupportedModelError(
            f"The variance is learned_range, but the network returns {out_channels} channels for {in_channels}: it has "
            "no variance channels. Give variance='posterior' or 'upper'."
        )
    if learned and wanted != LEARNED_RANGE:
        if asked is None:
            raise UnsupportedModelError(
                f"The network returns twice its channels, a learned variance, but the config's variance is {wanted}. Give "
                "variance='learned_range' to use it, or variance='posterior' or 'upper' to drop it."
            )
        return wanted, False, f"variance {wanted} by your choice: the network's variance channels are dropped"
    return wanted, True, f"variance {wanted}{' by your choice' if asked else ''}"


def sample_shape(channels: int, size: int | tuple[int, int] | None) -> tuple[int, int, int] | None:
    """Return (channels, height, width), or None if the size is not known."""
    if size is None:
        return None
    lengths = (channels, size, size) if isinstance(size, int) else (channels, *size)
    if len(lengths) != 3 or not all(isinstance(length, int) and 1 <= length <= 2**16 for length in lengths):
        raise UnsupportedModelError(
            f"The shape of a sample must be (channels, height, width), whole numbers of at least 1, not {lengths!s:.80}."
        )
    return int(lengths[0]), int(lengths[1]), int(lengths[2])


def _pipeline(diffusers: Any, source: Any, dtype: torch.dtype | None) -> tuple[Any, str]:
    if isinstance(source, diffusers.DiffusionPipeline):
        return source, type(source).__name__
    if not isinstance(source, (str, os.PathLike)):
        raise UnsupportedModelError(
            f"A diffusers model is a folder, a hub id or a pipeline object, not {type(source).__name__}. A network alone "
            "has no noise schedule: put it into a pipeline, or use dpstride.Denoiser."
        )
    folder = Path(source)
    if folder.is_dir() and not (folder / "model_index.json").is_file():
        raise UnsupportedModelError(
            f"{folder}: a pipeline folder has a model_index.json, but this one has none. Give the folder that "
            "pipeline.save_pretrained wrote; a network's folder alone does not contain its noise schedule."
        )
    known = (*PIXELS, *LATENT, *FLOW)
    place = str(folder)
    try:
        if not folder.is_dir():  # a hub id: check its index before downloading anything else
            check_index(diffusers.DiffusionPipeline.load_config(str(source)), known, str(source))
            folder = Path(diffusers.DiffusionPipeline.download(str(source), **dict.fromkeys(UNUSED)))
        with clean_pipeline(folder, known) as copy, quietly():
            place = str(copy)
            return _load_copy(diffusers, copy, folder, dtype), Path(source).name
    except UnsupportedModelError:
        raise
    except Exception as error:  # diffusers and transformers raise anything on a wrong config
        first = first_line(error, 1000).replace(place, str(folder))[:300]
        raise UnsupportedModelError(
            f"{source}: diffusers could not load it ({first}). Is it a pipeline folder or a hub id, and are the packages "
            'it needs installed (text pipelines need transformers: pip install "dpstride[text]")?'
        ) from error


def _load_copy(diffusers: Any, copy: Path, folder: Path, dtype: torch.dtype | None) -> Any:
    """Load the pipeline of a clean copy of ``folder``; its parts record ``folder`` as their origin, not the copy."""
    if OWN in [tuple(part) for part in read_json(copy / "model_index.json").values() if isinstance(part, list)]:
        from . import openai_unet  # noqa: F401  # diffusers finds our class only if it is imported
    arguments = {} if dtype is None else {"torch_dtype": dtype}
    pipeline = diffusers.DiffusionPipeline.from_pretrained(
        str(copy), use_safetensors=True, local_files_only=True, **arguments
    )
    for name, part in pipeline.components.items():
        if isinstance(part, torch.nn.Module):
            check_complete(part, copy / name, folder / name)
        if isinstance(part, diffusers.ModelMixin):
            part.register_to_config(_name_or_path=str(folder / name))
        elif hasattr(part, "name_or_path"):
            part.name_or_path = str(folder / name)
    return pipeline
