"""An improved-diffusion checkpoint: python openai_checkpoint.py model.pt "--image_size 32 --learn_sigma True …" """

import sys

import torch

import dpstride
from dpstride.integrations.openai import load_openai, save_as_diffusers

model = load_openai(sys.argv[1], sys.argv[2])  # a released one: load_openai("cifar10_…pt", preset="cifar10-l-vlb")
print(model.describe())
save_as_diffusers(model, "as-diffusers")  # the same network for diffusers
steps = range(1, model.denoiser.process.T + 1, 100)  # drop this line for all steps; every one is a network evaluation
denoiser = model.denoiser.on_grid(model.denoiser.process.subset(list(steps)))
images = torch.randint(0, 256, (4, *denoiser.shape), dtype=torch.uint8)
schedules = dpstride.optimise(denoiser, images, progress=False)
print("use_timesteps =", sorted(schedules[5].for_improved_diffusion()))
