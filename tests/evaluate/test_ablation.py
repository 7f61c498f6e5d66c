"""The Monte Carlo ablation against experiments that are really made with fewer samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dpstride import (
    Denoiser,
    ForwardProcess,
    bits_per_dim,
    elbo_costs,
    estimate,
    schedules_from,
    score,
    solve,
)
from dpstride.evaluate.ablation import ablate, weighted_tables
from dpstride.objectives.engine import ElboEngine
from dpstride.options import CostOptions
from dpstride.statistics.artefact import Statistics
from dpstride.statistics.data import Samples
from gaussian import LN2, MixtureNetwork, gaussian_denoiser, mixture_data

PROCESS = ForwardProcess.linear(24)
MEANS = np.array([[0.7, -0.2, 0.1], [-0.6, 0.5, 0.0], [0.0, -0.7, 0.6]])


def levels(count: int, seed: int) -> Samples:
    x = np.clip(mixture_data(MEANS, 0.01, count, seed), -1.0, 1.0)
    return Samples.read(np.round((x + 1.0) * 127.5).astype(np.uint8))


def model(learned: bool) -> Denoiser:
    if learned:
        v = np.array([0.4, -0.2, 0.9])
        return gaussian_denoiser(PROCESS, np.zeros(3), np.full(3, 0.2), v=v)
    return Denoiser(MixtureNetwork(PROCESS, MEANS, 0.01), PROCESS, predicts="x0", clip=None, shape=(3,))


@pytest.fixture(scope="module", params=[False, True], ids=["fixed", "learned"])
def both(request: pytest.FixtureRequest) -> tuple[Denoiser, Samples, Statistics, Statistics]:
    denoiser, data = model(request.param), levels(100, 0)
    return denoiser, data, *(estimate(denoiser, part, progress=False) for part in (data, levels(64, 1)))


def options_of(denoiser: Denoiser, variance: Any, decoder: Any) -> CostOptions:
    return CostOptions(variance or denoiser.variance, decoder)


@pytest.mark.parametrize(
    ("variance", "decoder"),
    [
        (None, "upper"),
        ("optimal", "upper"),
        ("upper", "optimal"),
        ("learned_optimal", "optimal"),
        (None, "first_pair"),
        (None, "respaced"),
    ],
)
def test_all_samples_are_the_ordinary_schedules(both: Any, variance: Any, decoder: Any) -> None:
    denoiser, _, statistics, heldout = both
    if variance == "learned_optimal" and denoiser.variance != "learned_range":
        pytest.skip("there is no learned variance to scale")
    options = options_of(denoiser, variance, decoder)
    found = ablate(statistics, heldout, options, [2, 4, 9], repeats=2)
    schedules = schedules_from(statistics, variance, decoder, max_budget=9)
    expected = [each.bpd for each in score(heldout, [schedules[K] for K in (2, 4, 9)])]
    np.testing.assert_allclose(found.bpd[-1][0], expected, rtol=1e-9)
    assert found.sizes[-1] == 100
    assert [len(repeats) for repeats in found.bpd[:-1]] == [2] * (len(found.sizes) - 1)
    assert found.excess(100, 4) == [0.0]


def test_a_subset_is_the_experiment_with_those_samples() -> None:
    """Costs, paths, fitted numbers and scores of estimate() on the same samples with the same noise."""
    denoiser, data = model(learned=False), levels(96, 0)
    statistics, heldout = estimate(denoiser, data, progress=False), estimate(denoiser, levels(40, 1), progress=False)
    few = estimate(denoiser, data, samples=8, progress=False)  # the first 8, whose noise is that of the first 8 of 96
    weights = np.where(np.arange(96) < 8, 1.0 / 8.0, 0.0)
    for variance in ("posterior", "upper", "optimal"):
        options = options_of(denoiser, variance, "upper")
        L, _, fitted = weighted_tables(statistics, options).table(weights)
        costs = elbo_costs(few, variance, "upper")  # type: ignore[arg-type]
        np.testing.assert_allclose(L, costs.L, rtol=1e-10)
        if variance == "optimal":
            np.testing.assert_allclose(fitted.mean_squared_error[1:], costs.fitted.mean_squared_error[1:], rtol=1e-12)
        schedule = solve(costs, 5).schedule(5)
        nats = ElboEngine(heldout, options, fitted).path_nats(schedule.steps)
        assert nats / (heldout.dims * LN2) == pytest.approx(score(heldout, [schedule])[0].bpd, rel=1e-10)
    direct = bits_per_dim(denoiser, levels(40, 1), schedule, seed=0)
    assert score(heldout, [schedule])[0].bpd == pytest.approx(direct.bpd, rel=1e-6)


def test_a_block_subset_is_the_experiment_with_that_block() -> None:
    """Learned variance is kept by block: the first block alone is estimate() on its samples, to three digits."""
    denoiser, data = model(learned=True), levels(96, 0)
    statistics = estimate(denoiser, data, progress=False)
    few = estimate(denoiser, data, samples=24, progress=False)  # 8 of the 32 blocks of 3
    options = options_of(denoiser, None, "upper")
    tables = weighted_tables(statistics, options)
    assert (tables.units.sizes.size, tables.units.by_sample) == (32, False)
    L, _, _ = tables.table(np.where(np.arange(32) < 8, 1.0 / 8.0, 0.0))
    expected = elbo_costs(few).L
    below = np.tril_indices(PROCESS.T + 1, -1)
    np.testing.assert_allclose(L[below], expected[below], rtol=2e-3)
    assert np.abs(L[below] - elbo_costs(statistics).L[below]).max() > 0.05 * expected[below].mean()


def test_few_samples_lose_on_average_and_more_lose_less() -> None:
    denoiser = model(learned=False)
    statistics = estimate(denoiser, levels(256, 0), progress=False)
    heldout = estimate(denoiser, levels(256, 1), progress=False)
    found = ablate(statistics, heldout, options_of(denoiser, None, "upper"), [3, 6], repeats=12)
    assert found.sizes == (8, 32, 128, 256)
    assert (found.unit, found.unit_samples, found.note) == ("sample", 1.0, "")
    losses = [np.mean([np.mean(found.excess(size, K)) for K in (3, 6)]) for size in found.sizes]
    assert losses[0] > losses[1] > losses[2] > -1e-3
    again = ablate(statistics, heldout, options_of(denoiser, None, "upper"), [3, 6], repeats=12)
    assert again == found
    other = ablate(statistics, heldout, options_of(denoiser, None, "upper"), [3, 6], repeats=12, seed=1)
    assert other.bpd[0] != found.bpd[0]
    assert other.bpd[-1] == found.bpd[-1]


def test_sizes_are_those_that_blocks_allow(both: Any) -> None:
    denoiser, _, statistics, heldout = both
    found = ablate(statistics, heldout, options_of(denoiser, None, "first_pair"), [3], repeats=1)
    assert found.unit == "block"
    assert found.unit_samples == 100 / 32  # blocks of 3 and of 4
    assert found.sizes == (9, 31, 100)


def test_statistics_of_another_grid_are_refused() -> None:
    denoiser = model(learned=False)
    statistics = estimate(denoiser, levels(8, 0), progress=False)
    other = ForwardProcess.cosine(24)
    network = lambda x, time: torch.zeros_like(x)
    heldout = estimate(Denoiser(network, other, predicts="x0"), levels(8, 1), progress=False)
    with pytest.raises(ValueError, match="were estimated on the process"):
        ablate(statistics, heldout, options_of(denoiser, None, "upper"), [3])
