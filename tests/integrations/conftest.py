"""diffusers and transformers warn while they are imported; nothing else about them is silenced."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that reaches for the network is wrong
sys.path.insert(0, str(Path(__file__).parent))

if find_spec("diffusers") is None or find_spec("transformers") is None:  # the extras are not installed
    collect_ignore_glob = ["test_*.py"]
else:
    with warnings.catch_warnings():
        # torch deprecates torch.jit.script, which transformers and diffusers still call at import.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.script", category=DeprecationWarning)
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
        from transformers import (  # noqa: F401
            CLIPTextModel,
            CLIPTextModelWithProjection,
            CLIPTokenizer,
            T5EncoderModel,
        )

    for package in (diffusers, transformers):
        package.utils.logging.set_verbosity_error()
        package.utils.logging.disable_progress_bar()

    from saved_folders import folder, saved  # noqa: F401  # fixtures
