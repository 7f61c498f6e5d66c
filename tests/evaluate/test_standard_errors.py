"""Standard errors of bits/dim: from samples, from blocks, and over data and noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from likelihood_cases import CASES, make_case, options_of

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    bits_per_dim,
    elbo_costs,
    estimate,
    even_stride,
    schedules_from,
    score,
)
from gaussian import LN2, gaussian_denoiser, random_path

# --- standard errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_standard_errors_of_the_table_are_those_of_the_evaluator(name: str) -> None:
    # Nine samples are nine blocks, so both see the same nine totals; the table's decoder terms are interpolated from 12
    # nodes, and beyond the widest stored sigma (optimal decoder, poor network) scaled as 1/σ²: good enough for an error.
    case = CASES[name]
    T, statistics = case.denoiser.process.T, case.statistics(seed=3)
    rng = np.random.default_rng(8)
    for variance, decoder in options_of(case):
        table = elbo_costs(statistics, variance=variance, decoder=decoder)
        for path in (random_path(rng, T, 2), random_path(rng, T, 4), (T, 2, 1, 0)):
            schedule = table.schedule(path)
            ratio = (schedule.standard_error or 0.0) / case.direct(schedule, seed=3).standard_error
            allowed = 0.05 if decoder != "optimal" else 2.1 if name.startswith("2 levels") else 0.4
            assert 1.0 / (1.0 + allowed) < ratio < 1.0 + allowed, (variance, decoder, path)


def test_standard_errors_from_blocks_are_close_to_those_from_samples() -> None:
    # 32 blocks of 10 instead of 320 samples: the error of such an error is 1/sqrt(2 · 31) = 13 %, five of them 64 %.
    case = make_case(ForwardProcess.linear(6), "uint8", samples=320)
    statistics = case.statistics(seed=1)
    for variance, decoder in (("learned_range", "upper"), ("posterior", "optimal"), ("learned_range", "respaced")):
        schedule = elbo_costs(statistics, variance=variance, decoder=decoder).schedule((6, 4, 2, 1, 0))
        direct = case.direct(schedule, seed=1)
        assert schedule.standard_error == pytest.approx(direct.standard_error, rel=0.64)


def test_the_stated_error_is_the_spread_over_data_and_noise() -> None:
    # Scale differs from sample to sample, so a sample that is costly at one t is costly at every t: errors at different t
    # are correlated, and adding up their variances would understate the spread.
    process = ForwardProcess.from_alpha_bar(1.0 / (1.0 + np.exp(np.linspace(-2.0, 2.0, 5))))
    denoiser = gaussian_denoiser(process, np.zeros(12), np.full(12, 0.3))
    path, N = (5, 4, 3, 2, 1, 0), 30
    found, stated, tabled, added = [], [], [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x_0 = rng.standard_normal((N, 12)) * rng.choice([0.2, 1.0], size=(N, 1))
        table = elbo_costs(estimate(denoiser, x_0, seed=seed, data_range="continuous", progress=False))
        direct = bits_per_dim(denoiser, x_0, Schedule(process, path), seed=seed, data_range="continuous")
        found.append(direct.bpd)
        stated.append(direct.standard_error)
        tabled.append(table.schedule(path).standard_error)
        assert table.unit_terms is not None
        terms, _ = table.unit_terms(path)
        added.append(math.sqrt((terms.var(axis=0, ddof=1) / N).sum()) / (12 * LN2))
    assert tabled == pytest.approx(stated, rel=1e-9)  # everything is kept per sample here
    # The spread of 100 numbers is known to 1/sqrt(2 · 99) = 7 %; five of those are 36 %.
    spread = float(np.std(found, ddof=1))
    assert math.sqrt(np.mean(np.square(stated))) == pytest.approx(spread, rel=0.36)
    assert math.sqrt(np.mean(np.square(added))) < 0.64 * spread  # the wrong way would have been noticed


def test_standard_error_of_a_poor_network_with_optimal_decoder() -> None:
    # Residuals of 0.5 where g_t is 0.01: the fitted sigma lies far beyond what is stored for blocks.
    process = ForwardProcess.linear(1000).subset([1, 2, 5, 100, 500, 1000])
    values = np.random.default_rng(0).integers(0, 256, size=(20, 1, 16)).astype(np.uint8)
    denoiser = Denoiser(lambda x, time: 0.5 * x, process, predicts="x0")
    table = elbo_costs(estimate(denoiser, values, progress=False), "optimal", "optimal")
    for path in ((6, 5, 4, 3, 2, 1, 0), (6, 1, 0), (6, 4, 2, 0)):
        schedule = table.schedule(path)
        direct = bits_per_dim(denoiser, values, schedule, seed=0)
        assert schedule.standard_error == pytest.approx(direct.standard_error, rel=0.15)


@pytest.mark.parametrize("name", ["uint8, linear", "continuous, linear"])
def test_errors_of_all_budgets_at_once_are_those_of_each(name: str) -> None:
    statistics = CASES[name].statistics(seed=3)
    for variance, decoder in options_of(CASES[name]):
        table = elbo_costs(statistics, variance=variance, decoder=decoder)
        for schedule in schedules_from(statistics, variance, decoder):
            alone = table.schedule(schedule.steps).standard_error
            # Of the first_pair decoder some paths are known per sample and some per block, so a set is known per block;
            # here blocks are samples, and what differs is the interpolation.
            assert schedule.standard_error == pytest.approx(alone, rel=0.05 if decoder == "first_pair" else 1e-9)


def test_one_sample_has_no_standard_error() -> None:
    case = make_case(ForwardProcess.linear(5), "uint8", samples=1)
    schedule = elbo_costs(case.statistics(0)).schedule((5, 2, 0))
    assert math.isnan(schedule.standard_error or 0.0)
    assert math.isnan(case.direct(schedule, seed=0).standard_error)
    assert math.isnan(score(case.statistics(0), [schedule])[0].standard_error)


def test_samples_that_cost_the_same_have_an_error_of_zero() -> None:
    # Two times the same sample of zeros with a network that is always right: every total is the same number.
    process = ForwardProcess.linear(5)
    denoiser = Denoiser(lambda x, time: torch.zeros_like(x), process, predicts="x0")
    zeros = np.zeros((2, 1, 3))
    statistics = estimate(denoiser, zeros, data_range=("levels", 3, -1.0, 1.0), progress=False)
    [scored] = score(statistics, [even_stride(process, 3)])
    assert scored.standard_error == 0.0
