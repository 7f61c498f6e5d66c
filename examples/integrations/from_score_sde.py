"""A continuous score network of the score_sde kind (VP here; "subvp" and "ve" too)."""

import torch

import dpstride
from dpstride.integrations.score_sde import load_score_sde


def score(x, t):  # yours: mutils.get_score_fn(sde, score_model, train=False, continuous=True)
    f2 = torch.exp(-(0.1 * t + 9.95 * t**2))[:, None, None, None]
    return -x / (0.25 * f2 + 1 - f2)


model = load_score_sde(score, "vp", T=100, clip=None)
data = 0.5 * torch.randn(64, 3, 4, 4)
schedules = dpstride.optimise(model.denoiser, data, data_range="continuous", variance="optimal", progress=False)
print([round(time, 3) for time in schedules[8].times])
