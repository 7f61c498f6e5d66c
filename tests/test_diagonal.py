"""One reverse variance per dimension and step, against the textbook's Gaussians and exact denoisers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import ForwardProcess, Schedule, elbo_costs, estimate, sample, solve
from dpstride.costs.diagonal import diagonal_costs, fit_diagonal, step_costs
from dpstride.statistics.artefact import DataRange
from dpstride.statistics.diagonal import DiagonalErrors, estimate_diagonal
from dpstride.statistics.noise import standard_normal
from gaussian import (
    Array,
    backward_step,
    gaussian_denoiser,
    gaussian_kl,
    ideal_statistics,
    posterior_of_clean,
)

MEAN, VARIANCE = np.array([0.4, -0.8, 0.0]), np.array([0.25, 1.0, 0.01])
PROCESS = ForwardProcess.linear(30)


def data_of(count: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(MEAN + np.sqrt(VARIANCE) * rng.standard_normal((count, 3)))


def ideal_errors(process: ForwardProcess) -> DiagonalErrors:
    """What infinitely many samples would give: the remaining variance of each dimension."""
    rows = np.zeros((process.T + 1, 3))
    for t in range(1, process.T + 1):
        rows[t] = posterior_of_clean(process.f[t], process.g[t], MEAN, VARIANCE)[2]
    return DiagonalErrors(process, np.stack([rows, rows]), (10**9, 10**9), DataRange(None), 0)


def test_errors_are_those_of_each_dimension() -> None:
    denoiser = gaussian_denoiser(PROCESS, MEAN, VARIANCE)
    x = data_of(7, 0)
    found = estimate_diagonal(denoiser, x, seed=3, batch_size=2, data_range="continuous")
    for t in (1, 11, 30):
        noise = standard_normal(3, "forward", t, 0, 7, (3,)).numpy()
        gain, offset, _ = posterior_of_clean(PROCESS.f[t], PROCESS.g[t], MEAN, VARIANCE)
        e = x.numpy() - (gain * (PROCESS.f[t] * x.numpy() + PROCESS.g[t] * noise) + offset)
        assert np.allclose(found.halves[0, t], (e[:4] ** 2).mean(axis=0), rtol=1e-10)
        assert np.allclose(found.halves[1, t], (e[4:] ** 2).mean(axis=0), rtol=1e-10)
        assert np.allclose(found.mean[t], (e**2).mean(axis=0), rtol=1e-10)
    statistics = estimate(denoiser, x, seed=3, data_range="continuous", progress=False)
    assert np.allclose(found.mean.mean(axis=1), statistics.mean_squared_error, rtol=1e-10)


def test_rows_between_evaluated_ones_are_interpolated() -> None:
    """The remaining variance is smooth in the noise coordinate, so few rows give the others nearly."""
    process = ForwardProcess.linear(400)
    denoiser, x = gaussian_denoiser(process, MEAN, VARIANCE), data_of(2000, 1)
    steps = np.unique(np.round(np.geomspace(1, 400, 40)).astype(int))
    found = estimate_diagonal(denoiser, x, seed=0, batch_size=2000, data_range="continuous", steps=steps)
    exact = ideal_errors(process).mean
    error = np.abs(np.log(found.mean[1:] / exact[1:])).max()
    assert error < 5.0 * np.sqrt(2.0 / 2000) + 0.02
    with pytest.raises(ValueError, match="steps must hold 1 and T = 400"):
        estimate_diagonal(denoiser, x, data_range="continuous", steps=[1, 5])


def test_costs_are_divergences_of_gaussians() -> None:
    """The fitted variances are those that the textbook's divergence is least for, on fitted and on other data."""
    denoiser = gaussian_denoiser(PROCESS, MEAN, VARIANCE)
    x, other = data_of(6, 0), data_of(5, 1)
    fit_errors, test_errors = (
        estimate_diagonal(denoiser, y, seed=seed, data_range="continuous") for y, seed in ((x, 0), (other, 1))
    )
    statistics = estimate(denoiser, other, seed=1, data_range="continuous", progress=False)
    m, kappa = fit_diagonal(fit_errors)
    table = diagonal_costs(statistics, test_errors, m)
    assert np.allclose(
        m[1:], (6 * fit_errors.mean[1:] + kappa * fit_errors.mean[1:].mean(axis=1)[:, None]) / (6 + kappa)
    )
    f, g = PROCESS.f, PROCESS.g
    for t, s in ((30, 29), (30, 1), (17, 9), (2, 1)):
        noise = standard_normal(1, "forward", t, 0, 5, (3,)).numpy()
        x_t = f[t] * other.numpy() + g[t] * noise
        x0_hat = denoiser(torch.from_numpy(x_t), t).x0_hat.numpy()
        a, b, variance, _ = backward_step(f[t], g[t], f[s], g[s])
        kl = gaussian_kl(a * x_t + b * other.numpy(), variance, a * x_t + b * x0_hat, variance + b**2 * m[t])
        assert table.L[t, s] == pytest.approx(kl.sum() / 5, rel=1e-9)
    assert np.array_equal(table.L[:, 0], elbo_costs(statistics, "posterior").L[:, 0])


def test_interpolated_rows_are_the_exact_ones() -> None:
    rng = np.random.default_rng(0)
    m, test = rng.lognormal(-6.0, 3.0, 40), rng.lognormal(-6.0, 3.0, 40)
    Delta = np.sort(rng.lognormal(3.0, 5.0, 500))
    exact = 0.5 * (np.log1p(np.outer(Delta, m)) + np.outer(Delta, test - m) / (1.0 + np.outer(Delta, m))).sum(axis=1)
    assert np.allclose(step_costs(Delta, m, test), exact, rtol=1e-6, atol=1e-9)


def test_diagonal_is_below_scalar_and_reaches_the_entropy() -> None:
    """For Gaussian data with the ideal denoiser every variance is right, so any path's bound is the entropy itself."""
    process = ForwardProcess.linear(200)
    statistics = ideal_statistics(process, MEAN, VARIANCE)
    table = diagonal_costs(statistics, ideal_errors(process))
    scalar = elbo_costs(statistics, "optimal")
    below = np.tri(201, k=-1, dtype=bool)
    below[:, 0] = False
    assert (table.L[below] <= scalar.L[below] + 1e-9).all()
    # Chain rule: prior + steps + −E ln p(x_0 given x_1) with the true conditional is the entropy, for every path.
    _, _, remaining = posterior_of_clean(process.f[1], process.g[1], MEAN, VARIANCE)
    entropy = 0.5 * np.log(2.0 * np.pi * np.e * VARIANCE).sum()
    last = 0.5 * np.log(2.0 * np.pi * np.e * remaining).sum()
    for path in ((200, 1), (200, 90, 13, 1), tuple(range(200, 0, -1))):
        steps = sum(table.L[t, s] for t, s in itertools.pairwise(path))
        # The prior term is a divergence from N(0, I), larger than the entropy needs by that of q(x_T) itself.
        spread = process.f[-1] ** 2 * VARIANCE + process.g[-1] ** 2
        surplus = gaussian_kl(process.f[-1] * MEAN, spread, 0.0, 1.0).sum()
        assert steps + last + table.prior_nats == pytest.approx(entropy + surplus, rel=1e-7)
    assert solve(table, 5).cost_nats(5) <= solve(scalar, 5).cost_nats(5)


def test_few_samples_are_drawn_to_the_mean_and_many_are_not() -> None:
    rng = np.random.default_rng(1)
    true = np.exp(rng.normal(-3.0, 1.0, 200))
    alike = np.full(200, 0.05)
    kappas: dict[str, Any] = {}
    for name, variance in (("different", true), ("alike", alike)):
        rows = np.stack([(rng.standard_normal((16, 200)) ** 2 * variance).mean(axis=0) for _ in range(2 * 40)])
        halves = np.concatenate([np.zeros((2, 1, 200)), rows.reshape(2, 40, 200)], axis=1)
        errors = DiagonalErrors(ForwardProcess.linear(40), halves, (16, 16), DataRange(None), 0)
        m, kappas[name] = fit_diagonal(errors)
        held_out = np.log1p(m[1:] / 0.05) + (variance - m[1:]) / 0.05 / (1.0 + m[1:] / 0.05)
        plain = errors.mean[1:]
        unshrunk = np.log1p(plain / 0.05) + (variance - plain) / 0.05 / (1.0 + plain / 0.05)
        assert held_out.sum() < unshrunk.sum()
    assert kappas["different"] < 16 < kappas["alike"]


def test_samples_have_the_fitted_variance_of_each_dimension() -> None:
    process, path = ForwardProcess.linear(50), (50, 20, 0)
    m = np.zeros((51, 3))
    m[1:] = [0.5, 0.1, 0.02]
    denoiser = gaussian_denoiser(process, MEAN, VARIANCE)
    found = sample(denoiser, Schedule(process, path), n=4000, seed=0, batch_size=4000, diagonal=m).numpy()
    a, b, posterior, _ = backward_step(process.f[50], process.g[50], process.f[20], process.g[20])
    gain, _, _ = posterior_of_clean(process.f[50], process.g[50], MEAN, VARIANCE)
    last, _, _ = posterior_of_clean(process.f[20], process.g[20], MEAN, VARIANCE)
    variance: Array = last**2 * ((a + b * gain) ** 2 + posterior + b**2 * m[50])
    assert np.allclose(found.var(axis=0), variance, rtol=5.0 * np.sqrt(2.0 / 4000))
