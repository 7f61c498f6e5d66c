"""Imputation of correlated Gaussian columns by the exact denoiser: its bits/dim, its samples and its best paths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import Denoiser, ForwardProcess, bits_per_dim, check, estimate, even_stride, sample, schedules_from
from dpstride.adaptive.loop import estimate_adaptively
from dpstride.evaluate.ablation import weighted_tables
from dpstride.objectives.engine import ElboEngine, Units
from dpstride.options import SAMPLERS, CostOptions
from gaussian import LN2
from imputed import NAMES, Array, ConditionalGaussian, told

COVARIANCE = np.array([[1.0, 0.9, 0.5], [0.9, 1.0, 0.6], [0.5, 0.6, 0.8]])
MASKS = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=bool)


def gaussian_rows(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Rows x and masks: which elements are given varies, and so does how many."""
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(3), COVARIANCE, size=count)
    return x, MASKS[np.arange(count) % len(MASKS)]


def as_data(x: Array, mask: Array) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    values = torch.from_numpy(x)
    return values, told(values, torch.from_numpy(mask))


def test_bits_per_dim_approach_the_conditional_entropy() -> None:
    # Many small steps: the bound is tight up to the first one, whose decoder is a Gaussian as wide as its noise.
    process = ForwardProcess.from_alpha_bar(1.0 / (1.0 + np.exp(np.linspace(-9.0, 7.0, 150))))
    model = ConditionalGaussian(COVARIANCE, process)
    x, mask = gaussian_rows(300)
    statistics = estimate(model.denoiser(), as_data(x, mask), data_range="continuous", progress=False)
    schedule = schedules_from(statistics, "optimal", "optimal")[150]
    exact = np.array([model.nats(*row) for row in zip(x, mask, strict=True)])
    counts = mask.sum(axis=1)
    entropy = sum(
        0.5
        * float(np.linalg.slogdet(2.0 * math.pi * math.e * model.of_predicted(~each, np.zeros((~each).sum()))[1])[1])
        for each in MASKS
    ) / (MASKS.sum() * LN2)
    # On these rows first, whose own likelihood is known; then the entropy, within the error of 300 rows.
    assert schedule.bpd is not None
    assert schedule.standard_error is not None
    assert schedule.bpd == pytest.approx(exact.sum() / counts.sum() / LN2, abs=0.03)
    assert abs(schedule.bpd - entropy) < 5.0 * schedule.standard_error


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_have_the_conditional_law_and_what_is_given_stays(sampler: Any) -> None:
    process, mask, known, n = (
        ForwardProcess.linear(T=400),
        np.array([True, False, True]),
        np.array([0.0, 1.3, 0.0]),
        4000,
    )
    model = ConditionalGaussian(COVARIANCE, process)
    _, conditioning = as_data(np.tile(known, (n, 1)), np.tile(mask, (n, 1)))
    path = even_stride(process, 200)
    drawn = sample(model.denoiser(), path, n=n, conditioning=conditioning, sampler=sampler, batch_size=2000)
    assert (drawn[:, 1] == torch.tensor(1.3)).all()
    found = drawn[:, mask].double().numpy()
    mean, covariance = model.of_predicted(~mask, known[~mask])
    spread = np.sqrt(np.diag(covariance))
    # Five standard errors, and what 200 steps leave of the law: a few percent of its spread.
    np.testing.assert_allclose((found.mean(axis=0) - mean) / spread, 0.0, atol=5.0 / math.sqrt(n) + 0.03)
    error = math.sqrt(2.0 / n)
    np.testing.assert_allclose(
        np.cov(found.T) / np.outer(spread, spread), covariance / np.outer(spread, spread), atol=5 * error + 0.07
    )


def test_an_eps_network_with_learned_variance_leaves_what_is_given() -> None:
    # Its output at given elements is whatever it is, as in CSDI, which is never trained on them.
    process = ForwardProcess.linear(T=30)

    def network(x: torch.Tensor, time: torch.Tensor, mask: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
        assert x.abs().max() < 10.0  # given elements keep the law of noised values, whatever comes out for them
        eps = torch.where(mask == 1, x, 30.0 * torch.sin(100.0 * x))
        return torch.cat([eps, torch.where(mask == 1, torch.tanh(x), 900.0)], dim=1)

    model = Denoiser(network, process, predicts="eps", variance="learned_range", shape=(3,), clip=None, **NAMES)
    x, mask = gaussian_rows(6)
    conditioning = as_data(x, mask)[1]
    given = torch.from_numpy(~mask)
    for batch_size in (2, 6):
        drawn = sample(model, even_stride(process, 10), n=6, conditioning=conditioning, batch_size=batch_size)
        assert torch.equal(drawn[given], torch.from_numpy(x).float()[given])
        assert torch.isfinite(drawn).all()
    with pytest.raises(ValueError, match="by the entries 'mask' and 'observed' of the conditioning"):
        sample(model, even_stride(process, 10), n=6)


def test_an_adaptive_estimate_finds_paths_that_are_as_good_as_it_believes() -> None:
    model = ConditionalGaussian(COVARIANCE, ForwardProcess.linear(T=300)).denoiser()
    x, mask = gaussian_rows(64)
    how: dict[str, Any] = {"data_range": "continuous", "progress": False}
    few, report = estimate_adaptively(model, as_data(x, mask), budgets=(8, 16), tolerance=0.02, check=False, **how)
    every = estimate(model, as_data(x, mask), **how)
    assert len(report.steps) < 100
    assert few.dims == every.dims == mask.sum() / 64.0
    best, engine = schedules_from(every), ElboEngine(every, CostOptions("posterior"))
    for K in (8, 16):
        regret = engine.path_nats(schedules_from(few)[K].steps) - engine.path_nats(best[K].steps)
        assert 0.0 <= regret / (every.dims * LN2) <= report.regret[K].high


def test_replicates_count_as_many_elements_as_the_data() -> None:
    # Costs per element of any choice of samples are those of an estimate on these samples alone.
    model, (x, mask) = ConditionalGaussian(COVARIANCE, ForwardProcess.linear(T=20)).denoiser(), gaussian_rows(10)
    how: dict[str, Any] = {"data_range": "continuous", "progress": False}
    whole, part = (estimate(model, as_data(x[:n], mask[:n]), **how) for n in (10, 3))
    for variance, decoder in (("posterior", "upper"), ("upper", "upper"), ("optimal", "optimal")):
        options = CostOptions(variance, decoder)
        weights = np.where(np.arange(10) < 3, 1.0 / 3.0, 0.0)
        L, _, fitted = weighted_tables(whole, options).table(weights)
        expected = ElboEngine(part, options)
        np.testing.assert_allclose(L / whole.dims, expected.table()[0] / part.dims, rtol=1e-10, atol=1e-12)
        for name in ("mean_squared_error", "decoder_variance"):
            if getattr(fitted, name) is not None:
                np.testing.assert_allclose(getattr(fitted, name)[1:], getattr(expected.fitted, name)[1:], rtol=1e-10)
    units = Units(whole, by_sample=False)
    np.testing.assert_allclose(units.dims, mask.sum(axis=1))


def test_the_check_counts_what_is_predicted() -> None:
    process = ForwardProcess.linear(T=100)
    exact = ConditionalGaussian(COVARIANCE, process)
    x, mask = gaussian_rows(128)

    def eps(x_t: torch.Tensor, time: torch.Tensor, mask: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
        f, g = (torch.from_numpy(each[(time + 1).long().numpy()])[:, None] for each in (process.f, process.g))
        noise = (x_t - f * exact(x_t, time, mask, observed)) / g
        return torch.where(mask == 1, noise, 40.0)

    names: Any = {"clip": None, "shape": (3,), **NAMES}
    right, wrong = (Denoiser(eps, process, predicts=predicts, **names) for predicts in ("eps", "x0"))
    found = check(right, as_data(x, mask), data_range="continuous", progress=False)
    assert found.ok, found.sentence
    assert check(wrong, as_data(x, mask), data_range="continuous", progress=False).changes == ("predicts='eps'",)


def test_bits_per_dim_of_samples_of_many_given_elements_have_the_error_of_a_ratio() -> None:
    model, (x, mask) = ConditionalGaussian(COVARIANCE, ForwardProcess.linear(T=20)).denoiser(), gaussian_rows(40)
    schedule = schedules_from(estimate(model, as_data(x, mask), data_range="continuous", progress=False, seed=3))[5]
    direct = bits_per_dim(model, as_data(x, mask), schedule, data_range="continuous", seed=3)
    assert schedule.bpd == pytest.approx(direct.bpd, rel=1e-10)
    assert schedule.standard_error == pytest.approx(direct.standard_error, rel=1e-10)
