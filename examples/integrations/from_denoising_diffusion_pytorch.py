"""A GaussianDiffusion of denoising-diffusion-pytorch; here an object with the same attributes stands in for yours."""

from types import SimpleNamespace

import torch

import dpstride
from dpstride.integrations.denoising_diffusion_pytorch import load_denoising_diffusion

betas = torch.linspace(1e-4, 0.3, 50)
unet = torch.nn.Bilinear(1, 1, 1)  # any module; its call is replaced
unet.forward = lambda x, time, x_self_cond: 0.5 * x
unet.channels = unet.out_dim = 3
diffusion = SimpleNamespace(model=unet, betas=betas, alphas_cumprod=(1 - betas).cumprod(0), objective="pred_v",
    num_timesteps=50, image_size=8, channels=3, normalize=lambda x: 2 * x - 1)  # fmt: skip  # yours: GaussianDiffusion(...)
model = load_denoising_diffusion(diffusion)
images = torch.randint(0, 256, (8, 3, 8, 8)) / 255.0  # in [0, 1], as that project takes them
schedules = dpstride.optimise(model.denoiser, model.encode(images), progress=False)
print(schedules[5].steps)
