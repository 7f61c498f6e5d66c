"""diffusers and transformers warn while they are imported; nothing else about them is silenced."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that reaches for the network is wrong
sys.path.insert(0, str(Path(__file__).parent))

with warnings.catch_warnings():
    # torch deprecates torch.jit.script, which transformers and diffusers still call at import.
    warnings.filterwarnings("ignore", message=r"`torch\.jit\.script", category=DeprecationWarning)
    pytest.importorskip("diffusers")
    pytest.importorskip("transformers")
    import diffusers
    import transformers
    from diffusers import (  # noqa: F401  # these names are loaded lazily, each with its own imports
        AutoencoderKL,
        DDIMPipeline,
        DDPMPipeline,
        DiTPipeline,
        FluxPipeline,
        StableDiffusion3Pipeline,
        StableDiffusionPipeline,
        StableDiffusionXLPipeline,
        UNet2DModel,
    )
    from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer, T5EncoderModel  # noqa: F401

diffusers.utils.logging.set_verbosity_error()
diffusers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
