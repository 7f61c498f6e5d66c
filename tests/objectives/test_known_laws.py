"""Paths for samples where the law of finished samples is known: the laws against samples, then the paths by the laws."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    band_costs,
    elbo_costs,
    estimate,
    even_stride,
    quadratic_stride,
    sample,
    schedules_from,
    solve,
)
from dpstride.objectives.band import SamplesPlan
from dpstride.strides import karras_stride
from gaussian import gaussian_denoiser, ideal_statistics

BUDGETS = (8, 16, 32)
COUNT = 4000


def _benchmark(name: str) -> Any:
    """A module of benchmarks/ with which the page's tables are made."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


laws, mixtures = _benchmark("laws"), _benchmark("mixtures")
chains = pytest.mark.parametrize("chain", list(laws.CHAINS), ids=laws.CHAINS.values())


def line_denoiser(line: Any) -> Denoiser:
    def network(x: Any, time: Any) -> Any:
        return torch.from_numpy(line.posterior(x.numpy().astype(np.float64).ravel(), int(time[0]) + 1)[0])[:, None]

    return Denoiser(network, line.process, predicts="x0", clip=None, shape=(1,))


def six_steps(statistics: Any, chain: Any) -> Schedule:
    """Even steps, with the sampler and fitted variance of schedules for samples."""
    return schedules_from(statistics, chain.variance, plan=SamplesPlan(sampler=chain.sampler)).adopt(
        even_stride(statistics.process, 6)
    )


def drawn(denoiser: Denoiser, schedule: Schedule) -> Any:
    return sample(denoiser, schedule, COUNT, seed=1, batch_size=COUNT).double().numpy()


@chains
def test_the_law_of_gaussian_samples_is_theirs(chain: Any) -> None:
    toy = laws.Gaussian(ForwardProcess.linear(T=50), np.array([0.5, 0.05, 0.002]))
    statistics = toy.statistics()
    np.testing.assert_allclose(
        statistics.squared_error, ideal_statistics(toy.process, np.zeros(3), toy.variances).squared_error, rtol=1e-10
    )
    schedule = six_steps(statistics, chain)
    x = drawn(gaussian_denoiser(toy.process, np.zeros(3), toy.variances), schedule)
    expected = toy.finished(statistics, schedule.steps, chain)
    assert (np.abs(x.var(axis=0) - expected) < 5.0 * expected * math.sqrt(2.0 / COUNT)).all()


@chains
def test_the_law_of_samples_on_a_line_is_theirs(chain: Any) -> None:
    line = laws.Line.of_three_modes(T=50)
    statistics = line.statistics()
    schedule = six_steps(statistics, chain)
    x = np.sort(drawn(line_denoiser(line), schedule)[:, 0])
    expected = np.interp(x, line.finished(statistics, schedule.steps, chain), laws.SHARES, left=0.0, right=1.0)
    # Kolmogorov: √n times the largest difference is beyond 2.5 once in 100,000 times.
    assert math.sqrt(COUNT) * np.abs(expected - (np.arange(COUNT) + 0.5) / COUNT).max() < 2.5


def test_errors_on_a_line_are_those_of_its_data() -> None:
    line, rng = laws.Line.of_three_modes(T=12), np.random.default_rng(0)
    mode = rng.choice(3, size=COUNT, p=line.weights)
    data = (line.means[mode] + line.deviations[mode] * rng.standard_normal(COUNT))[:, None]
    measured = estimate(
        line_denoiser(line), data, data_range="continuous", batch_size=COUNT, progress=False, check=False
    )
    exact = line.statistics()
    error = measured.squared_error.std(axis=1) / math.sqrt(COUNT)
    assert (np.abs(measured.squared_error.mean(axis=1) - exact.squared_error[:, 0]) <= 5.0 * error).all()
    assert measured.data["deviation"] == pytest.approx(exact.data["deviation"], rel=5.0 / math.sqrt(COUNT))
    quantiles = np.quantile(data, [0.1, 0.25, 0.6, 0.9])
    np.testing.assert_allclose(np.interp([0.1, 0.25, 0.6, 0.9], laws.SHARES, line.quantiles()), quantiles, atol=0.03)


@chains
def test_all_steps_of_a_fine_grid_give_the_data(chain: Any) -> None:
    # Nothing to choose: the distance that remains is that of the process' own steps.
    toy = laws.Gaussian.of_falling_spectrum(dims=16)
    distance = toy.squared_wasserstein(toy.statistics(), range(toy.process.T, -1, -1), chain)
    assert distance < 2e-3 * toy.variances.sum()


@pytest.fixture(scope="module")
def spectrum() -> tuple[Any, Any]:
    toy = laws.Gaussian.of_falling_spectrum()
    return toy, toy.statistics()


@chains
def test_exponent_2_gives_gaussian_samples_that_are_closest_by_wasserstein(spectrum: Any, chain: Any) -> None:
    toy, statistics = spectrum
    ours = solve(band_costs(statistics, 2.0, (0.05, 20.0)), max(BUDGETS))
    elbo = solve(elbo_costs(statistics, chain.variance or "posterior"), max(BUDGETS))
    for K in BUDGETS:
        others = [stride(toy.process, K).steps for stride in (even_stride, quadratic_stride, karras_stride)]
        distances = [toy.squared_wasserstein(statistics, path, chain) for path in (elbo.path(K), *others)]
        assert toy.squared_wasserstein(statistics, ours.path(K), chain) < min(distances)


@pytest.mark.parametrize(
    "toy", [laws.Gaussian.of_falling_spectrum(), laws.Line.of_three_modes(T=250)], ids=["Gaussian", "line"]
)
def test_the_default_is_closest_with_posterior_variance(toy: Any) -> None:
    statistics, chain = toy.statistics(), laws.Chain("ancestral", "posterior")
    ours, elbo = (solve(costs, 32) for costs in (band_costs(statistics), elbo_costs(statistics)))
    for K in (4, 8):
        others = [stride(toy.process, K).steps for stride in (even_stride, quadratic_stride, karras_stride)]
        distances = [toy.squared_wasserstein(statistics, path, chain) for path in (elbo.path(K), *others)]
        assert toy.squared_wasserstein(statistics, ours.path(K), chain) < min(distances)


@pytest.mark.parametrize("kind", ["points", "signals", "columns"])
def test_denoisers_of_mixtures_are_ideal(kind: str) -> None:
    # E[x_0 given x_t] is what leaves an error that no function of x_t correlates with.
    mixture = getattr(mixtures, kind)()
    denoiser, x_0 = mixture.denoiser(), mixture.draw(1000, seed=5)
    generator = np.random.default_rng(6)
    for t in (50, 400):
        f, g = denoiser.process.f[t], denoiser.process.g[t]
        x = f * x_0 + g * generator.standard_normal(x_0.shape)
        x0_hat = denoiser(torch.from_numpy(x), t).x0_hat.double().numpy()
        for function in (np.ones_like(x), x, np.tanh(3.0 * x), x0_hat):
            product = ((x_0 - x0_hat) * function).sum(axis=1)
            assert abs(product.mean()) < 5.0 * product.std() / math.sqrt(1000)
