"""A text-to-image pipeline (Stable Diffusion, SDXL, SD3, Flux) in latent space: python text_to_image.py FOLDER-OR-HUB-ID"""

import sys

import torch

import dpstride
from dpstride.integrations.diffusers import load_diffusers

model = load_diffusers(sys.argv[1], sample_size=8)  # drop sample_size for the model's own latent size
print(model.describe())
images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)  # yours, with captions
data = model.encode(images, ["a cat", "a dog", "a cat", ""])
schedules = dpstride.optimise(
    model.denoiser, data, data_range=model.data_range, variance="optimal", max_budget=8, progress=False
)
print(schedules[8].for_diffusers())
