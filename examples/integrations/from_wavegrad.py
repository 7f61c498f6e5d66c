"""A vocoder conditioned on its noise level: a few-step schedule without a grid search."""

import torch

import dpstride
from dpstride.integrations.wavegrad import load_wavegrad


def vocoder(audio, spectrogram, noise_level):  # yours: wavegrad.model.WaveGrad, called so
    return (audio * noise_level[:, None] / 2)[:, None, :]


model = load_wavegrad(vocoder)
full = model.denoiser.process  # trained on continuous levels, so a coarser grid of candidates is allowed
sigmas = [0.0, *torch.logspace(-2, 2, 60).double().tolist()]
coarse = dpstride.ForwardProcess.from_functions(full.f_function, full.g_function, sigmas, name="wavegrad")
data = (0.1 * torch.randn(8, 300), torch.randn(8, 128, 1))  # audio, spectrograms
schedules = dpstride.optimise(model.denoiser.on_grid(coarse), data, data_range=model.data_range, progress=False)
print("noise levels =", [round(float(coarse.f[step]), 4) for step in schedules[6].steps])
