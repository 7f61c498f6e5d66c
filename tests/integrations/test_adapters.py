"""Adapters of other projects, each against the formula that the project states; their real code is run elsewhere."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dpstride
from dpstride.integrations.denoising_diffusion_pytorch import load_denoising_diffusion
from dpstride.integrations.k_diffusion import load_k_diffusion
from dpstride.integrations.loaded import UnsupportedModelError
from dpstride.integrations.score_sde import load_score_sde
from dpstride.integrations.wavegrad import TRAINING_BETAS, load_wavegrad


def column(values):
    return torch.as_tensor(values)[:, None, None, None]


class Gaussian:
    """Data N(mean, s²) per dimension, whose posterior mean, noise and score are known at any f, g."""

    mean, s = 0.3, 0.5

    def x0(self, x, f, g):
        return self.mean + f * self.s**2 / (f**2 * self.s**2 + g**2) * (x - f * self.mean)

    def score(self, x, f, g):
        return -(x - f * self.mean) / (f**2 * self.s**2 + g**2)


def test_k_diffusion_denoiser_is_fed_unscaled_x_and_sigma():
    ideal, seen = Gaussian(), []

    def denoised(x, sigma):  # Karras et al.: D(x; sigma) of x = x_0 + sigma noise
        seen.append(sigma)
        return ideal.x0(x, torch.ones_like(column(sigma)), column(sigma))

    model = load_k_diffusion(denoised, T=40, shape=(2, 3, 3))
    process = model.denoiser.process
    np.testing.assert_allclose(process.times[[1, 40]], [0.002, 80.0])
    t = torch.tensor([1, 17, 40])
    x0 = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    noise = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    f, g = (column(array[t.numpy()]) for array in (process.f, process.g))
    found = model.denoiser(f * x0 + g * noise, t).x0_hat
    sigma = column(process.times[t.numpy()])
    torch.testing.assert_close(
        found, ideal.x0(x0 + sigma * noise, torch.ones_like(sigma), sigma), rtol=1e-10, atol=1e-12
    )
    torch.testing.assert_close(seen[-1], sigma.flatten())


def test_k_diffusion_takes_a_wrappers_own_sigmas():
    alpha_bar = np.cumprod(1.0 - np.linspace(1e-4, 0.02, 50))
    sigmas = np.sqrt((1.0 - alpha_bar) / alpha_bar)
    model = load_k_diffusion(lambda x, sigma: x, sigmas=sigmas)
    np.testing.assert_allclose(model.denoiser.process.f[1:] ** 2, alpha_bar, rtol=1e-12)
    with pytest.raises(ValueError, match="0 < sigma_min < sigma_max"):
        load_k_diffusion(lambda x, sigma: x, sigma_min=0.0)
    with pytest.raises(ValueError, match="at least 2"):
        load_k_diffusion(lambda x, sigma: x, T=1)


@pytest.mark.parametrize("sde", ["vp", "subvp", "ve"])
def test_score_network_gives_tweedies_estimate(sde):
    """x̂_0 = (x + std² score)/mean coefficient, with Song et al.'s own mean and std of each SDE."""
    ideal = Gaussian()

    def marginal(t):
        if sde == "ve":
            return torch.ones_like(t), 0.01 * (50.0 / 0.01) ** t
        log_mean = -0.25 * t**2 * 19.9 - 0.5 * t * 0.1
        variance = 1.0 - torch.exp(2.0 * log_mean)
        return torch.exp(log_mean), variance if sde == "subvp" else variance.sqrt()

    def score(x, t):
        f, g = marginal(t.double())
        return ideal.score(x, column(f), column(g))

    model = load_score_sde(score, sde, T=100, clip=None, shape=(2, 3, 3))
    process = model.denoiser.process
    t = torch.tensor([4, 50, 100])
    time = torch.tensor(process.times[t.numpy()])
    f, g = marginal((time / 0.01).log() / math.log(5000.0) if sde == "ve" else time)
    x = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    own = x * column(process.input_scale[t.numpy()])
    torch.testing.assert_close(model.denoiser(x, t).x0_hat, ideal.x0(own, column(f), column(g)), rtol=1e-8, atol=1e-9)
    statistics = dpstride.estimate(model.denoiser, torch.randn(4, 2, 3, 3), data_range="continuous", progress=False)
    assert np.isfinite(statistics.mean_squared_error).all()


def test_unknown_sde_is_refused():
    with pytest.raises(ValueError, match="'vp', 'subvp' or 've'"):
        load_score_sde(lambda x, t: x, "vpsde")


class Vocoder(torch.nn.Module):
    """The signature of lmnt-com/wavegrad: (audio, spectrogram, noise_scale) → noise with a channel dimension."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.7, -0.2, 0.4]))
        self.levels = []

    def forward(self, audio, spectrogram, noise_scale):
        self.levels.append(noise_scale.clone())
        a, b, c = self.weight
        return (torch.tanh(a * audio) + b * noise_scale[:, None] + c * spectrogram.mean((1, 2))[:, None])[:, None, :]


def test_wavegrad_is_fed_the_square_root_of_alpha_bar():
    vocoder = Vocoder()
    model = load_wavegrad(vocoder)
    assert model.denoiser.process.T == 1000
    alpha_bar = np.cumprod(1.0 - TRAINING_BETAS)
    t = torch.tensor([10, 900])
    audio, spectrogram = torch.randn(2, 60, dtype=torch.float64), torch.randn(2, 5, 3)
    found = model.denoiser(audio, t, spectrogram).x0_hat
    level = torch.tensor(np.sqrt(alpha_bar[t.numpy() - 1]))
    torch.testing.assert_close(vocoder.levels[-1], level.float(), rtol=1e-6, atol=0)
    with torch.no_grad():
        eps = vocoder(audio.float(), spectrogram, level.float()).squeeze(1).double()
    expected = (audio - (1.0 - level[:, None] ** 2).sqrt() * eps) / level[:, None]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_vocoders_may_leave_their_training_grid_and_have_a_density():
    vocoder = Vocoder()
    model = load_wavegrad(vocoder)
    full = model.denoiser.process
    sigmas = np.concatenate([[0.0], np.geomspace(full.times[1], full.times[-1], 12)])
    coarse = dpstride.ForwardProcess.from_functions(full.f_function, full.g_function, sigmas, "wavegrad")
    denoiser = model.denoiser.on_grid(coarse)
    data = (torch.randn(4, 60) * 0.1, torch.randn(4, 5, 3))
    schedules = dpstride.optimise(denoiser, data, data_range=model.data_range, progress=False)
    assert schedules[6].steps[0] == 12
    seen = torch.cat(vocoder.levels).double().numpy()
    np.testing.assert_allclose(np.unique(seen), np.unique(coarse.f[1:].astype(np.float32)), rtol=1e-6)


def test_other_vocoders_say_how_they_are_called():
    model = load_wavegrad(Vocoder(), call=lambda network, audio, mel, level: network(audio, mel, level))
    assert model.denoiser(torch.randn(1, 20), 5, torch.randn(1, 5, 3)).x0_hat.shape == (1, 20)


class Diffusion:
    """The attributes of denoising-diffusion-pytorch's GaussianDiffusion that are read, made as that project makes them."""

    def __init__(self, objective, betas, learned=False, auto_normalize=True, self_condition=False):
        alpha_bar = torch.cumprod(1.0 - betas, 0)
        self.betas, self.alphas_cumprod = betas.float(), alpha_bar.float()
        self.objective, self.num_timesteps = objective, len(betas)
        self.self_condition, self.image_size, self.channels = self_condition, (4, 4), 2
        self.normalize = (lambda x: 2.0 * x - 1.0) if auto_normalize else (lambda x: x)
        weights = torch.nn.Conv2d(2, 4 if learned else 2, 3, padding=1)
        self.model = lambda x, t, x_self_cond: weights(x) + 0.01 * column(t)
        self.model = SimpleCall(self.model, 4 if learned else 2)


class SimpleCall:
    def __init__(self, function, out_dim):
        self.function, self.out_dim, self.channels = function, out_dim, 2

    def __call__(self, *arguments):
        return self.function(*arguments)


def cosine_betas(T=30):
    alpha_bar = torch.cos((torch.arange(T + 1, dtype=torch.float64) / T + 0.008) / 1.008 * math.pi / 2) ** 2
    return (1.0 - alpha_bar[1:] / alpha_bar[:-1]).clamp(0.0, 0.999)


@pytest.mark.parametrize("objective", ["pred_noise", "pred_x0", "pred_v"])
def test_denoising_diffusion_pytorch(objective):
    torch.manual_seed(0)
    betas = cosine_betas()
    diffusion = Diffusion(objective, betas)
    model = load_denoising_diffusion(diffusion)
    alpha_bar = torch.cumprod(1.0 - betas, 0)
    np.testing.assert_allclose(model.denoiser.process.f[1:] ** 2, alpha_bar.numpy(), rtol=1e-6)
    t = torch.tensor([1, 12, 30])
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    with torch.no_grad():
        output = diffusion.model(x.float(), t - 1, None).double()
    a = column(alpha_bar[t - 1])
    expected = {
        "pred_noise": (1.0 / a).sqrt() * x - (1.0 / a - 1.0).sqrt() * output,
        "pred_x0": output,
        "pred_v": a.sqrt() * x - (1.0 - a).sqrt() * output,
    }[objective].clamp(-1.0, 1.0)
    torch.testing.assert_close(model.denoiser(x, t).x0_hat, expected, rtol=1e-5, atol=1e-5)


def test_denoising_diffusion_pytorch_takes_data_in_the_unit_interval():
    model = load_denoising_diffusion(Diffusion("pred_v", cosine_betas()))
    levels = torch.randint(0, 256, (3, 2, 4, 4), dtype=torch.uint8)
    by_floats = dpstride.estimate(model.denoiser, model.encode(levels.double() / 255.0), progress=False)
    by_bytes = dpstride.estimate(model.denoiser, model.encode(levels), progress=False)
    np.testing.assert_array_equal(by_floats.squared_error, by_bytes.squared_error)
    with pytest.raises(ValueError, match=r"images in \[0, 1\]"):
        model.encode(torch.randn(1, 2, 4, 4))
    assert load_denoising_diffusion(Diffusion("pred_v", cosine_betas(), auto_normalize=False)).encode is None


def test_denoising_diffusion_pytorch_variants_are_stated_or_refused():
    learned = load_denoising_diffusion(Diffusion("pred_noise", cosine_betas(), learned=True))
    assert learned.denoiser.variance == "learned_range"
    conditional = load_denoising_diffusion(Diffusion("pred_v", cosine_betas(), self_condition=True))
    assert "previous estimate" in conditional.warnings[0]
    with pytest.raises(UnsupportedModelError, match=r"objective must be .*not 'pred_score'"):
        load_denoising_diffusion(Diffusion("pred_score", cosine_betas()))
    with pytest.raises(UnsupportedModelError, match="not a GaussianDiffusion"):
        load_denoising_diffusion(SimpleNamespace(model=None))
