"""Any callable network(x, time): three lines."""

import torch

import dpstride

network = torch.nn.Conv2d(3, 3, 3, padding=1)  # yours
images = torch.randint(0, 256, (16, 3, 8, 8), dtype=torch.uint8)

process = dpstride.ForwardProcess.from_betas(torch.linspace(1e-4, 0.2, 100))
denoiser = dpstride.Denoiser(lambda x, time: network(x), process, predicts="eps", variance="upper")
schedules = dpstride.optimise(denoiser, images, progress=False)

print(schedules[8].steps, f"{schedules[8].bpd:.2f} bits/dim")
