"""Objectives against textbook formulas, and samplers of t against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from dpstride.process import ForwardProcess
from dpstride.training.objectives import sample_losses
from dpstride.training.objectives.hybrid import WEIGHT as HYBRID_WEIGHT
from dpstride.training.objectives.terms import Coefficients, NoisedBatch, discretised_log_likelihood, vlb_terms
from dpstride.training.timesteps import HISTORY, UNIFORM_SHARE, LossAwareSampler, stratified, uniform_indices
from small_network import tiny_process


def lattice(n: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (n, 1, 4, 4), generator=generator).float() / 127.5 - 1.0


# --- objectives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [ForwardProcess.cosine(60), ForwardProcess.linear(60)], ids=lambda p: p.name)
def test_vlb_terms_are_the_gaussian_kl_of_the_textbook(process):
    T, generator = process.T, torch.Generator().manual_seed(1)
    t = torch.arange(2, T + 1)
    x0, eps = lattice(T - 1, generator), torch.randn(T - 1, 1, 4, 4, generator=generator)
    eps_hat = eps + 0.3 * torch.randn(eps.shape, generator=generator)
    v = 2.0 * torch.randn(eps.shape, generator=generator)
    at = Coefficients.at(process, t)
    found = vlb_terms(eps_hat, v, NoisedBatch(x0, eps, at, process.T)).double().numpy()

    for i, step in enumerate(t.tolist()):
        f, g, f_s, g_s = process.f[step], process.g[step], process.f[step - 1], process.g[step - 1]
        beta = 1.0 - (f / f_s) ** 2
        low = g_s**2 / g**2 * beta
        clean, noise, guess = (each[i].double().numpy() for each in (x0, eps, eps_hat))
        noisy = f * clean + g * noise

        def posterior_mean(estimate, f=f, g=g, f_s=f_s, g_s=g_s, beta=beta, noisy=noisy):
            return f_s * beta / g**2 * estimate + (f / f_s) * g_s**2 / g**2 * noisy

        phi = (v[i].double().numpy() + 1.0) / 2.0
        variance = np.exp(phi * np.log(beta) + (1.0 - phi) * np.log(low))
        gap = posterior_mean(clean) - posterior_mean((noisy - g * guess) / f)
        kl = 0.5 * (np.log(variance / low) + (low + gap**2) / variance - 1.0)
        # float32 inputs; weights of adjacent steps are themselves differences of order 1e-3
        assert found[i] == pytest.approx(kl.mean() / math.log(2.0), rel=3e-5)


def test_vlb_at_the_first_step_is_the_discretised_decoder():
    process, generator = ForwardProcess.cosine(50), torch.Generator().manual_seed(2)
    x0, eps = lattice(3, generator), torch.randn(3, 1, 4, 4, generator=generator)
    eps_hat, v = eps + 0.2 * torch.randn(eps.shape, generator=generator), torch.randn(eps.shape, generator=generator)
    at = Coefficients.at(process, torch.tensor([1, 7, 1]))
    found = vlb_terms(eps_hat, v, NoisedBatch(x0, eps, at, process.T))

    f, g = process.f[1], process.g[1]
    for i in (0, 2):
        clean, guess = x0[i].double().numpy(), eps_hat[i].double().numpy()
        mean = (f * clean + g * eps[i].double().numpy() - g * guess) / f
        phi = (v[i].double().numpy() + 1.0) / 2.0
        scale = np.exp(0.5 * (phi * np.log(g**2) + (1.0 - phi) * np.log(process.posterior_variance(2, 1))))
        upper = np.where(clean > 0.999, np.inf, clean + 1.0 / 255.0)
        lower = np.where(clean < -0.999, -np.inf, clean - 1.0 / 255.0)
        nats = -np.log(stats.norm.cdf((upper - mean) / scale) - stats.norm.cdf((lower - mean) / scale))
        assert float(found[i]) == pytest.approx(nats.mean() / math.log(2.0), rel=1e-4)


def test_discretised_likelihood_sums_to_one_and_keeps_its_gradient_in_the_tail():
    levels = torch.arange(256, dtype=torch.float64) / 127.5 - 1.0
    for mean, scale in ((0.0, 0.02), (0.97, 0.3), (-1.2, 0.001), (0.4, 2.0)):
        log_p = discretised_log_likelihood(levels, torch.tensor(mean), torch.tensor(scale, dtype=torch.float64).log())
        assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    mean = torch.tensor(0.9, requires_grad=True)
    far = discretised_log_likelihood(torch.tensor(-0.5), mean, torch.tensor(0.01).log())
    far.backward()
    assert math.isfinite(float(far.detach()))
    assert float(mean.grad) < -1e3  # d/dmean of -(x - mean)²/2σ² is (x - mean)/σ² = -14,000


def test_hybrid_stops_the_gradient_of_the_mean_in_the_bound():
    process, generator = ForwardProcess.cosine(30), torch.Generator().manual_seed(3)
    x0, eps = lattice(6, generator), torch.randn(6, 1, 4, 4, generator=generator)
    t = torch.tensor([1, 2, 5, 12, 25, 30])

    def gradient(objective: str) -> Tensor:
        output = (0.5 * torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(4))).requires_grad_()
        sample_losses(lambda x, time: output, process, objective, x0, t, eps).sum().backward()
        assert output.grad is not None
        return output.grad

    hybrid, vlb = gradient("hybrid"), gradient("vlb")
    output = (0.5 * torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(4)))[:, :1].requires_grad_()
    sample_losses(lambda x, time: output, process, "simple", x0, t, eps).sum().backward()
    assert torch.equal(hybrid[:, :1], output.grad)
    torch.testing.assert_close(hybrid[:, 1:], HYBRID_WEIGHT * vlb[:, 1:])
    assert bool((vlb[:, :1].flatten(1).abs().sum(dim=1) > 0).all())


@pytest.mark.parametrize("objective", ["simple", "continuous", "flow"])
def test_a_network_that_knows_the_clean_image_has_no_loss(objective):
    """The target is the quantity from which the Denoiser's own formula returns x_0."""
    from dpstride.denoiser import Denoiser

    process, generator = tiny_process(objective), torch.Generator().manual_seed(5)
    x0, eps = lattice(8, generator), torch.randn(8, 1, 4, 4, generator=generator)
    index = torch.arange(3, 11)
    t = index if process.kind == "discrete" else torch.from_numpy(process.times[index.numpy()])
    f, g = (torch.from_numpy(array[index.numpy()]).float().reshape(-1, 1, 1, 1) for array in (process.f, process.g))
    target = {"simple": eps, "continuous": f * eps - g * x0, "flow": eps - x0}[objective]
    seen = {}

    def network(x: Tensor, time: Tensor) -> Tensor:
        seen["time"] = time
        return target

    losses = sample_losses(network, process, objective, x0, t, eps)
    assert losses.shape == (8,)
    assert float(losses.max()) < 1e-10
    expected = index - 1 if process.kind == "discrete" else 1000.0 * t
    torch.testing.assert_close(seen["time"].double(), expected.double())
    predicts = {"simple": "eps", "continuous": "v", "flow": "flow"}[objective]
    denoiser = Denoiser(
        network,
        process,
        predicts=predicts,
        clip=None,
        time_input="index0" if process.kind == "discrete" else "time",
    )
    torch.testing.assert_close(denoiser(f * x0 + g * eps, index).x0_hat.float(), x0, rtol=1e-4, atol=1e-4)


def test_continuous_time_takes_any_f_and_g():
    process = ForwardProcess.from_functions(lambda t: (1.0 - t) ** 2, lambda t: t**3, np.linspace(0.0, 1.0, 5))
    at = Coefficients.at(process, torch.tensor([0.25, 0.3], dtype=torch.float64))
    np.testing.assert_allclose(at.f.numpy(), [0.5625, 0.49], rtol=1e-6)
    np.testing.assert_allclose(at.g.numpy(), [0.015625, 0.027], rtol=1e-6)


def test_wrong_process_or_channels_are_refused():
    x0, eps, t = torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 4), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="needs a discrete process, but 'rectified_flow' is continuous"):
        sample_losses(lambda x, time: x, ForwardProcess.rectified_flow(4), "simple", x0, t, eps)
    with pytest.raises(ValueError, match="2 output channels, but it returned 1"):
        sample_losses(lambda x, time: x, ForwardProcess.cosine(4), "vlb", x0, t, eps)
    with pytest.raises(ValueError, match="objective must be one of 'simple', 'hybrid'"):
        sample_losses(lambda x, time: x, ForwardProcess.cosine(4), "elbo", x0, t, eps)


# --- how t is drawn -------------------------------------------------------------------------------------------------


def test_stratified_points_have_one_in_every_interval():
    generator = torch.Generator().manual_seed(0)
    points = stratified(16, generator).sort().values
    assert bool(((points > 0.0) & (points <= 1.0)).all())
    assert torch.equal(torch.ceil(points * 16), torch.arange(1.0, 17.0, dtype=torch.float64))
    assert sorted(uniform_indices(16, 16, generator).tolist()) == list(range(1, 17))


def test_uniform_indices_are_uniform_when_the_batch_does_not_divide_T():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([uniform_indices(10, 4, generator) for _ in range(5000)])
    share = torch.bincount(drawn[:, 0], minlength=11)[1:].double() / 5000
    assert float((share - 0.1).abs().max()) < 5 * math.sqrt(0.1 * 0.9 / 5000)


def test_importance_sampler_follows_the_root_of_the_second_moment():
    T, generator = 6, torch.Generator().manual_seed(0)
    sampler = LossAwareSampler(T)
    history = np.random.default_rng(0).exponential(size=(HISTORY + 3, T)) * np.arange(1, T + 1)
    for row in history[:-4]:
        sampler.update(torch.arange(1, T + 1), torch.from_numpy(row))
    np.testing.assert_array_equal(sampler.probabilities, 1.0 / T)  # 9 losses each: still uniform
    for row in history[-4:]:
        sampler.update(torch.arange(1, T + 1), torch.from_numpy(row))

    size = np.sqrt((history[-HISTORY:] ** 2).mean(axis=0))
    expected = (1.0 - UNIFORM_SHARE) * size / size.sum() + UNIFORM_SHARE / T
    np.testing.assert_allclose(sampler.probabilities, expected, rtol=1e-12)
    t, weights = sampler.draw(60_000, generator)
    shares = np.bincount(t.numpy(), minlength=T + 1)[1:] / 60_000
    np.testing.assert_allclose(shares, expected, atol=2 / 60_000)  # stratified: a count is off by less than 2
    np.testing.assert_allclose(weights.numpy(), 1.0 / (T * expected[t.numpy() - 1]), rtol=1e-6)
    # Unbiased: the weighted mean of any function of t is its mean over uniform t.
    assert float((weights * t).mean()) == pytest.approx((T + 1) / 2, rel=1e-3)

    copy = LossAwareSampler(T)
    copy.load_state_dict(sampler.state_dict())
    np.testing.assert_array_equal(copy.probabilities, sampler.probabilities)
