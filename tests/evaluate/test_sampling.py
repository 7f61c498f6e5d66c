"""Samples along any path against the closed form of the chain that makes them, which Gaussian data make linear."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    elbo_costs,
    estimate,
    even_stride,
    quadratic_stride,
    sample,
    schedules_from,
)
from dpstride.fitted import Fitted
from gaussian import Array, GaussianNetwork, backward_step, gaussian_denoiser, ideal_statistics, posterior_of_clean

MEAN, VARIANCE = np.array([0.4, -0.8, 0.0]), np.array([0.25, 1.0, 0.05])
V = np.array([-0.6, 0.3, 1.4])  # a network's constant v, so φ = (v + 1)/2 is 0.2, 0.65 and 1.2


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


def assert_moments(samples: Tensor, mean: Array, variance: Array, dtype: torch.dtype = torch.float32) -> None:
    """Mean and covariance within 5 of their own standard errors; dimensions are independent."""
    x, n = samples.double().numpy(), len(samples)
    assert samples.dtype == dtype
    assert (np.abs(x.mean(axis=0) - mean) < 5.0 * np.sqrt(variance / n)).all()
    # Of Gaussian samples, cov[i, j] has variance (v_i v_j + cov²)/n, where cov² is v_i² on the diagonal and 0 elsewhere.
    error = np.sqrt(np.outer(variance, variance) * (1.0 + np.eye(len(variance))) / n)
    assert (np.abs(np.cov(x.T) - np.diag(variance)) < 5.0 * error).all()


def ideal(process: ForwardProcess, **options: Any) -> Denoiser:
    return gaussian_denoiser(process, MEAN, VARIANCE, **options)


def fitted_to(process: ForwardProcess) -> Fitted:
    """The numbers that `optimal` would fit on infinitely many samples."""
    return Fitted(ideal_statistics(process, MEAN, VARIANCE).mean_squared_error)


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


# --- what a sample is made of ----------------------------------------------------------------------------------------------


class Recorder:
    """A network that remembers what it was fed."""

    def __init__(self, answer: Any = None) -> None:
        self.inputs: list[Tensor] = []
        self.times: list[float] = []
        self.conditioning: list[Any] = []
        self.answer = answer

    def __call__(self, x: Tensor, time: Tensor, conditioning: Any = None) -> Tensor:
        self.inputs.append(x.clone())
        self.times += [float(t) for t in time.unique()]
        self.conditioning.append(conditioning)
        return 0.5 * x if self.answer is None else self.answer(x, conditioning)


def test_the_last_step_returns_the_mean() -> None:
    process, network = ForwardProcess.linear(10), Recorder()
    denoiser = Denoiser(network, process, predicts="x0", clip=(-1.0, 1.0), shape=(1, 2))
    samples = sample(denoiser, even_stride(process, 4), n=30, seed=0, batch_size=30)
    assert len(network.inputs) == 4
    assert torch.equal(samples, (0.5 * network.inputs[-1]).clamp(-1.0, 1.0).float())
    assert samples.shape == (30, 1, 2)


def test_one_step_maps_the_prior_noise_alone() -> None:
    process, network = ForwardProcess.linear(10), Recorder()
    denoiser = Denoiser(network, process, predicts="x0", clip=None, shape=(3,))
    samples = sample(denoiser, even_stride(process, 1), n=2000, seed=4, batch_size=2000)
    assert torch.equal(samples, (0.5 * network.inputs[0]).float())
    assert_moments(samples, np.zeros(3), np.full(3, 0.25))


@pytest.mark.parametrize(("sampler", "eta"), [("ancestral", 0.0), ("ddim", 0.0), ("ddim", 0.7)])
def test_samples_depend_on_the_seed_and_on_nothing_else(sampler: Any, eta: float) -> None:
    process = ForwardProcess.cosine(20)
    schedule = even_stride(process, 5)

    def draw(n: int, seed: int, batch_size: int) -> Tensor:
        return sample(ideal(process), schedule, n=n, seed=seed, batch_size=batch_size, sampler=sampler, eta=eta)

    whole = draw(13, 7, 64)
    for batch_size in (1, 4, 13):
        assert torch.equal(draw(13, 7, batch_size), whole)
    assert torch.equal(draw(5, 7, 64), whole[:5])  # more samples are the same samples, and more
    assert not torch.equal(draw(13, 8, 64), whole)
    assert len(torch.unique(whole, dim=0)) == 13


def test_two_strides_of_one_seed_start_from_the_same_noise() -> None:
    process = ForwardProcess.linear(40)
    starts = []
    for schedule in (even_stride(process, 3), quadratic_stride(process, 9), even_stride(process, 40)):
        network = Recorder()
        sample(Denoiser(network, process, predicts="x0", shape=(2,)), schedule, n=6, seed=11)
        starts.append(network.inputs[0])
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(starts[0], starts[2])


def test_noise_of_different_steps_is_independent() -> None:
    # With x̂_0 = 0 the chain is x_s = a x_t + noise; take the noise of each step out and look for correlation.
    process, path = ForwardProcess.linear(10), (10, 7, 4, 2, 0)
    network = Recorder(lambda x, _: 0.0 * x)
    denoiser = Denoiser(network, process, predicts="x0", shape=(1,))
    sample(denoiser, Schedule(process, path), n=3000, seed=0, variance="posterior", batch_size=3000)
    noises = [network.inputs[0][:, 0].numpy()]
    for step, (t, s) in enumerate(itertools.pairwise(path[:-1])):
        a, _, variance, _ = backward_step(process.f[t], process.g[t], process.f[s], process.g[s])
        noise = (network.inputs[step + 1] - a * network.inputs[step])[:, 0].numpy() / math.sqrt(variance)
        noises.append(noise)
    correlation = np.corrcoef(noises)
    assert (np.abs(correlation - np.eye(4)) < 5.0 / math.sqrt(3000)).all()
    assert (np.abs(np.var(noises, axis=1) - 1.0) < 5.0 * math.sqrt(2.0 / 3000)).all()


@pytest.mark.parametrize("eta", [0.25, 0.5])
def test_ddim_noise_has_the_variance_that_eta_says(eta: float) -> None:
    # The distribution of samples hardly depends on eta; the noise of one step does. With x̂_0 = 0 it can be taken out.
    process, (t, s) = ForwardProcess.linear(10), (10, 6)
    network = Recorder(lambda x, _: 0.0 * x)
    denoiser = Denoiser(network, process, predicts="x0", shape=(1,))
    sample(denoiser, Schedule(process, (t, s, 0)), n=3000, sampler="ddim", eta=eta, batch_size=3000)
    posterior = backward_step(process.f[t], process.g[t], process.f[s], process.g[s])[2]
    before, after = (x[:, 0].numpy() for x in network.inputs)
    noise = after - math.sqrt(process.g[s] ** 2 - eta**2 * posterior) / process.g[t] * before
    assert abs(noise.var() / (eta**2 * posterior) - 1.0) < 5.0 * math.sqrt(2.0 / 3000)
    assert abs(np.corrcoef(noise, before)[0, 1]) < 5.0 / math.sqrt(3000)


def test_the_network_is_fed_its_own_times() -> None:
    network = Recorder()
    flow = ForwardProcess.rectified_flow(times=[0.0, 0.013, 0.4, 0.77, 1.0])
    denoiser = Denoiser(network, flow, predicts="x0", shape=(1,), time_input="time")
    sample(denoiser, Schedule(flow, (4, 3, 1, 0)), n=2)
    assert network.times == [1.0, 0.77, 0.013]
    network = Recorder()
    thinned = ForwardProcess.linear(100).subset([10, 40, 100])
    sample(Denoiser(network, thinned, predicts="x0", shape=(1,)), Schedule(thinned, (3, 1, 0)), n=2)
    assert network.times == [99.0, 9.0]  # training steps, 0-based


@pytest.mark.parametrize("variance", ["posterior", "upper", "learned_range", "optimal"])
def test_a_subset_schedule_gives_the_same_samples_on_the_full_grid(variance: Any) -> None:
    process = ForwardProcess.linear(100)
    thin = process.subset([1, 5, 20, 50, 90, 100])
    denoiser = ideal(process, v=V if variance == "learned_range" else None)
    for schedule in (
        Schedule(thin, (6, 4, 2, 1, 0), fitted=fitted_to(thin)),
        Schedule(thin, (5, 3, 0), fitted=fitted_to(thin)),
    ):
        on_full = sample(denoiser, schedule, n=8, seed=3, variance=variance)
        on_thin = sample(denoiser.on_grid(thin), schedule, n=8, seed=3, variance=variance)
        full_schedule = Schedule(process, [int(time) for time in schedule.times], fitted=fitted_to(process))  # type: ignore[arg-type]
        assert torch.equal(on_full, on_thin)
        assert torch.equal(on_full, sample(denoiser, full_schedule, n=8, seed=3, variance=variance))


def test_the_schedules_own_variance_is_the_default() -> None:
    process = ForwardProcess.linear(20)
    schedules = schedules_from(ideal_statistics(process, MEAN, VARIANCE), "optimal", "upper")
    denoiser = ideal(process)
    assert torch.equal(
        sample(denoiser, schedules[4], n=5, seed=0),
        sample(denoiser, schedules[4], n=5, seed=0, variance="optimal"),
    )
    # A stride made by hand has none: the model's.
    stride = even_stride(process, 4)
    upper = Denoiser(denoiser.network, process, predicts="x0", variance="upper", clip=None, shape=(3,))
    assert torch.equal(
        sample(upper, stride, n=5, seed=0),
        sample(denoiser, stride, n=5, seed=0, variance="upper"),
    )


# --- conditioning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "conditioning",
    [torch.arange(7), np.arange(7), {"conditioning": torch.arange(7)}, {"conditioning": np.arange(7)}],
)
def test_conditioning_reaches_the_network_sample_by_sample(conditioning: Any) -> None:
    process = ForwardProcess.linear(8)
    network = Recorder(lambda x, label: label[:, None].to(x) + 0.0 * x)
    denoiser = Denoiser(network, process, predicts="x0", clip=None, shape=(2,))
    samples = sample(denoiser, even_stride(process, 3), n=7, conditioning=conditioning, batch_size=3)
    assert torch.equal(samples, torch.arange(7.0)[:, None].expand(7, 2))
    assert [len(batch) for batch in network.conditioning] == [3, 3, 3, 3, 3, 3, 1, 1, 1]


def test_conditioning_of_the_wrong_length_is_refused() -> None:
    process, network = ForwardProcess.linear(8), Recorder()
    denoiser = Denoiser(network, process, predicts="x0", shape=(2,))
    with pytest.raises(ValueError, match="one entry per sample: 7 samples, but 6 entries"):
        sample(denoiser, even_stride(process, 3), n=7, conditioning=torch.arange(6))
    with pytest.raises(ValueError, match="one entry per sample: 7 samples, but a single value"):
        sample(denoiser, even_stride(process, 3), n=7, conditioning=3)
    assert network.inputs == []


# --- bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must be a whole number of samples, at least 1, not 0"),
        ({"n": 2.0}, "n must be a whole number of samples"),
        ({"n": True}, "n must be a whole number of samples"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
        ({"batch_size": -3}, "batch_size must be a whole number of at least 1, not -3"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"sampler": "euler"}, "sampler must be one of 'ancestral', 'ddim', 'dpmpp_2m', not 'euler'"),
        ({"eta": 1.5}, r"eta must lie in \[0, 1\], not 1\.5"),
        ({"eta": math.nan}, r"eta must lie in \[0, 1\], not nan"),
        ({"variance": "small"}, "variance must be one of .*not 'small'"),
        ({"variance": "learned_range"}, "a model without a learned variance"),
        ({"variance": "optimal"}, "variance='optimal' needs numbers fitted on the data that chose the path"),
    ],
)
def test_bad_arguments_are_refused_before_the_network_runs(options: dict[str, Any], message: str) -> None:
    process, network = ForwardProcess.linear(8), Recorder()
    denoiser = Denoiser(network, process, predicts="x0", shape=(2,))
    with pytest.raises(ValueError, match=message):
        sample(denoiser, even_stride(process, 3), **options)
    assert network.inputs == []


def test_a_denoiser_must_know_its_shape() -> None:
    process = ForwardProcess.linear(8)
    with pytest.raises(ValueError, match="sample shape is not known: pass shape= to Denoiser"):
        sample(Denoiser(Recorder(), process), even_stride(process, 3))


def test_a_schedule_of_another_process_is_refused() -> None:
    with pytest.raises(ValueError, match="of which that is not a subset"):
        sample(ideal(ForwardProcess.linear(8)), even_stride(ForwardProcess.cosine(8), 3))
