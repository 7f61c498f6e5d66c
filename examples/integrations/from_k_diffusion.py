"""A sigma-conditioned denoiser D(x, sigma), as k-diffusion and EDM have them; its sigmas for k-diffusion's samplers."""

import torch

import dpstride
from dpstride.integrations.k_diffusion import load_k_diffusion


def denoised(x, sigma):  # yours: k_diffusion.Denoiser(...), CompVisDenoiser(...), an EDM network
    sigma = sigma[:, None, None, None]
    return 0.25 / (0.25 + sigma**2) * x


model = load_k_diffusion(denoised, sigma_min=0.002, sigma_max=80.0, T=64, data_range="continuous")
data = 0.5 * torch.randn(64, 3, 4, 4)
schedules = dpstride.optimise(model.denoiser, data, data_range=model.data_range, progress=False)
print("sigmas =", schedules[8].for_k_diffusion())
