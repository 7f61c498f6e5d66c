"""Samples depend on their seed and on nothing else; noise, conditioning and schedules reach them as asked."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from linear_chain import MEAN, VARIANCE, V, assert_moments, fitted_to, ideal
from torch import Tensor

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    even_stride,
    optimise,
    quadratic_stride,
    sample,
    schedules_from,
)
from gaussian import backward_step, ideal_statistics

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
        ({"sampler": "euler"}, "sampler must be one of 'ancestral', 'ddim', 'dpmpp_2m', 'heun', not 'euler'"),
        ({"eta": 1.5}, r"eta must lie in \[0, 1\], not 1\.5"),
        ({"eta": math.nan}, r"eta must lie in \[0, 1\], not nan"),
        ({"variance": "small"}, "variance must be one of .*not 'small'"),
        ({"variance": "learned_range"}, "needs a model with a learned variance"),
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


def test_a_schedule_tells_the_shape_of_its_samples() -> None:
    process, data = ForwardProcess.linear(8), torch.zeros(4, 2)
    schedules = optimise(Denoiser(Recorder(), process, predicts="x0"), data, data_range="continuous", progress=False)
    fresh = Denoiser(Recorder(), process, predicts="x0")
    assert sample(fresh, schedules[3], n=5).shape == (5, 2)
    other = Denoiser(Recorder(), ForwardProcess.cosine(8), predicts="x0")
    with pytest.raises(ValueError, match="which is not a subset of this model"):
        sample(other, schedules[3])
    assert other.shape is None  # a schedule of another model says nothing


def test_a_schedule_of_another_process_is_refused() -> None:
    with pytest.raises(ValueError, match="which is not a subset of this model"):
        sample(ideal(ForwardProcess.linear(8)), even_stride(ForwardProcess.cosine(8), 3))
