"""Samples along any path against the closed form of the chain that makes them, which Gaussian data make linear."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from linear_chain import MEAN, VARIANCE, V, assert_moments, fitted_to, ideal

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    elbo_costs,
    estimate,
    even_stride,
    sample,
    schedules_from,
)
from gaussian import Array, GaussianNetwork, backward_step, gaussian_denoiser, ideal_statistics, posterior_of_clean


def chain_moments(
    process: ForwardProcess,
    path: Sequence[int],
    variance: str = "posterior",
    sampler: str = "ancestral",
    eta: float = 0.0,
) -> tuple[Array, Array]:
    """Mean and variance per dimension of what the chain makes of N(0, I) with the ideal denoiser of N(MEAN, VARIANCE).

    Every step is x_s = slope · x_t + constant + noise, so means and variances follow by hand.
    """
    f, g = process.f, process.g
    mean, spread = np.zeros(3), np.ones(3)
    for t, s in itertools.pairwise(path):
        gain, offset, remaining = posterior_of_clean(f[t], g[t], MEAN, VARIANCE)
        if s == 0:  # the last step returns x̂_0 itself
            return gain * mean + offset, gain**2 * spread
        a, b, posterior, g2_ts = backward_step(f[t], g[t], f[s], g[s])
        if sampler == "ddim":
            # Song et al. (2021), Eq. 12: f_s x̂_0 + sqrt(g_s² − σ²) (x_t − f_t x̂_0)/g_t + σ z, with σ² = eta² g̃².
            noise = eta**2 * posterior
            direction = np.sqrt(g[s] ** 2 - noise) / g[t]
            slope, constant = direction + (f[s] - direction * f[t]) * gain, (f[s] - direction * f[t]) * offset
        else:
            phi = (V + 1.0) / 2.0
            noise = {
                "posterior": posterior,
                "upper": g2_ts,
                "learned_range": g2_ts**phi * posterior ** (1.0 - phi),
                "optimal": posterior + b**2 * remaining.mean(),
            }[variance]
            slope, constant = a + b * gain, b * offset
        mean, spread = slope * mean + constant, slope**2 * spread + noise
    raise AssertionError("a path ends at 0")


VE = ForwardProcess.ve(np.concatenate([[0.0], np.geomspace(0.03, 60.0, 12)]))


# --- the chain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "path", "options"),
    [
        (ForwardProcess.linear(50), (50, 33, 20, 7, 1, 0), {"predicts": "eps"}),
        (ForwardProcess.cosine(50), (50, 49, 12, 5, 0), {"predicts": "v"}),
        (ForwardProcess.rectified_flow(20), (20, 13, 6, 1, 0), {"predicts": "flow", "time_input": "time"}),
        (ForwardProcess.sub_vp(times=[0.0, 0.07, 0.11, 0.5, 1.0]), (4, 3, 2, 0), {"time_input": "time"}),
        (VE, (12, 9, 5, 2, 0), {}),
        (VE, (12, 7, 3, 1, 0), {"time_input": "time"}),
    ],
)
@pytest.mark.parametrize("variance", ["posterior", "upper", "optimal", "learned_range"])
def test_samples_are_those_of_the_linear_chain(
    process: ForwardProcess, path: tuple[int, ...], options: dict[str, Any], variance: str
) -> None:
    denoiser = ideal(process, **options, v=V if variance == "learned_range" else None)
    schedule = Schedule(process, path, fitted=fitted_to(process))
    samples = sample(denoiser, schedule, n=2500, seed=1, variance=variance, batch_size=2500)  # type: ignore[arg-type]
    assert_moments(samples, *chain_moments(process, path, variance))


@pytest.mark.parametrize("process", [ForwardProcess.linear(50), ForwardProcess.rectified_flow(20), VE], ids=str)
def test_a_learned_variance_that_says_nothing_is_scaled_to_the_optimal_one(process: ForwardProcess) -> None:
    # With one φ for all, g̃² exp(φδ) · E (1 + Δ e²) exp(−φδ) is g̃² (1 + Δ m).
    denoiser = ideal(process, v=np.full(3, 0.4))
    data = MEAN + np.sqrt(VARIANCE) * np.random.default_rng(0).standard_normal((200, 3))
    statistics = estimate(denoiser, data, data_range="continuous", progress=False)
    path = (process.T, process.T - 1, process.T // 2, 3, 1, 0)
    scaled, optimal, learned = (
        sample(denoiser, elbo_costs(statistics, variance).schedule(path), n=50, seed=4)
        for variance in ("learned_optimal", "optimal", "learned_range")
    )
    torch.testing.assert_close(scaled, optimal, rtol=1e-4, atol=1e-4)
    assert (learned - optimal).abs().max() > 1e-2


@pytest.mark.parametrize("process", [ForwardProcess.linear(50), ForwardProcess.rectified_flow(50), VE])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_ddim_samples_are_those_of_its_linear_chain(process: ForwardProcess, eta: float) -> None:
    path = (process.T, process.T // 2, process.T // 5, 1, 0)
    samples = sample(ideal(process), Schedule(process, path), n=2500, seed=2, sampler="ddim", eta=eta, batch_size=2500)
    assert_moments(samples, *chain_moments(process, path, sampler="ddim", eta=eta))


def test_ddim_with_eta_1_is_ancestral_with_posterior_variance() -> None:
    # sqrt(g_s² − g̃²)/g_t = f_ts g_s²/g_t², so both put the same weights on x_t, x̂_0 and the noise.
    process = ForwardProcess.cosine(30)
    schedule = even_stride(process, 7)
    ancestral = sample(ideal(process), schedule, n=20, seed=3, variance="posterior")
    ddim = sample(ideal(process), schedule, n=20, seed=3, sampler="ddim", eta=1.0)
    assert torch.allclose(ancestral, ddim, rtol=1e-6, atol=1e-6)  # float32 of two roundings in float64


@pytest.mark.parametrize(("sampler", "eta"), [("ancestral", 0.0), ("ddim", 0.0), ("ddim", 0.5)])
def test_samples_approach_the_data_as_steps_grow(sampler: Any, eta: float) -> None:
    process = ForwardProcess.vp_linear(4096)
    # The chain starts from mean 0 instead of f_T · MEAN. Noise forgets that (f_T² is 4e-5); the deterministic chain does not.
    off = 1e-4 if sampler == "ancestral" else float(process.f[-1])
    misfit = {}
    for K in (16, 64, 256, 1024, 4096):
        mean, variance = chain_moments(process, even_stride(process, K).steps, sampler=sampler, eta=eta)
        assert np.abs(mean - MEAN).max() < off
        misfit[K] = np.abs(variance / VARIANCE - 1.0)
    # A scheme of first order for a differential equation, stochastic or not: its misfit falls as 1/K in the end.
    slope = np.polyfit(np.log([256, 1024, 4096]), [np.log(misfit[K].max()) for K in (256, 1024, 4096)], 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.2)
    assert misfit[4096].max() < 0.01
    # Samples against the truth: 5 standard errors, plus what so many steps are known to miss.
    for K in (16, 256):
        schedule = even_stride(process, K)
        samples = sample(ideal(process), schedule, n=500, seed=5, batch_size=500, sampler=sampler, eta=eta)
        x = samples.double().numpy()
        assert (np.abs(x.mean(axis=0) - MEAN) < 5.0 * np.sqrt(VARIANCE / 500) + off).all()
        assert (np.abs(x.var(axis=0, ddof=1) / VARIANCE - 1.0) < 5.0 * math.sqrt(2.0 / 500) + misfit[K]).all()
    assert misfit[256].max() < misfit[16].max() / 5.0


@pytest.mark.parametrize(("sampler", "eta", "variance"), [("ancestral", 0.0, "upper"), ("ddim", 0.4, "posterior")])
def test_correlated_data_keep_their_covariance(sampler: Any, eta: float, variance: Any) -> None:
    """Turned data: noise has no direction, so the chain's covariance turns with the data's."""
    process, path = ForwardProcess.cosine(50), (50, 31, 17, 6, 2, 0)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    straight, Q = GaussianNetwork(process, MEAN, VARIANCE), torch.from_numpy(turn)
    denoiser = Denoiser(lambda x, time: straight(x @ Q, time) @ Q.T, process, predicts="x0", clip=None, shape=(3,))
    samples = sample(
        denoiser, Schedule(process, path), n=3000, seed=6, variance=variance, batch_size=3000, sampler=sampler, eta=eta
    )
    mean, spread = chain_moments(process, path, variance, sampler, eta)
    assert_moments(samples.double() @ Q, mean, spread, dtype=torch.float64)
    covariance = np.cov(samples.double().numpy().T)
    assert np.abs(covariance - turn * spread @ turn.T).max() < 5.0 * spread.max() * math.sqrt(2.0 / 3000)
    assert np.abs(turn * spread @ turn.T)[0, 1] > 0.1  # that there is something to keep


def test_isotropic_data_and_optimal_variance_are_exact_but_for_the_last_mean() -> None:
    # Then every p(x_s given x_t) is q's own, so x_t1 is distributed as q says: the mean at the last step loses the remaining
    # variance of x_0 given x_t1, and nothing else, except for the prior's misfit f_T.
    process = ForwardProcess.rectified_flow(20)  # f_T = 0: no misfit
    schedules = schedules_from(ideal_statistics(process, np.zeros(2), np.full(2, 0.5)), "optimal", "optimal")
    denoiser = gaussian_denoiser(process, np.zeros(2), np.full(2, 0.5))
    for schedule in (schedules[1], schedules[3], schedules[20]):
        t1 = schedule.steps[-2]
        remaining = posterior_of_clean(process.f[t1], process.g[t1], 0.0, 0.5)[2]
        if schedule.budget == 1:  # x_T says nothing about x_0: every sample is the mean of the data
            assert torch.equal(sample(denoiser, schedule, n=4), torch.zeros(4, 2))
            continue
        samples = sample(denoiser, schedule, n=2000, seed=1, batch_size=2000)
        assert_moments(samples, np.zeros(2), np.full(2, 0.5 - remaining))
