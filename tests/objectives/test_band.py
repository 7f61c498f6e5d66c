"""The objective for samples: its sum over steps is the weighted sum of divergences that it is derived from."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from dpstride import Denoiser, ForwardProcess, Statistics, band_costs, elbo_costs, estimate, solve
from dpstride.objectives.band import Band, band_levels, data_deviation, relative_sigma
from gaussian import DirectChain, MixtureNetwork, ideal_statistics, mixture_data, paths_of

PROCESSES = {
    "discrete": ForwardProcess.linear(T=7),
    "continuous": ForwardProcess.vp_cosine(T=7),
    "flow": ForwardProcess.rectified_flow(T=7),
}
BANDS = [
    Band(1.0, 0.2, 6.0),
    Band(2.0, 0.5, 3.0),
    Band(0.0, 0.0, math.inf),
    Band(0.5, 0.0, math.inf),
    Band(1.3, 0.0, 2.0),
]


def mixture(process: ForwardProcess) -> tuple[Denoiser, Any]:
    means = np.array([[-1.0, 0.5], [1.0, -0.4], [0.2, 1.0]])
    network = MixtureNetwork(process, means, 0.05)
    data = mixture_data(means, 0.05, 64, seed=3)
    return Denoiser(network, process, predicts="x0", clip=None, shape=(2,)), data


def statistics_of(process: ForwardProcess) -> tuple[Statistics, DirectChain]:
    denoiser, data = mixture(process)
    statistics = estimate(denoiser, data, data_range="continuous", seed=5, progress=False)
    return statistics, DirectChain(denoiser, data, seed=5)


def gaussian(process: ForwardProcess, variances: Any) -> Statistics:
    """Statistics of the ideal denoiser of N(0, variances), with the data's deviation as `estimate` keeps it."""
    statistics = ideal_statistics(process, np.zeros(len(variances)), variances)
    return replace(statistics, data={**statistics.data, "deviation": math.sqrt(float(np.mean(variances)))})


def bound_at(chain: DirectChain, path: tuple[int, ...], level: int, variance: str) -> float:
    """B_τ without the prior, by its definition: divergences of the steps down to τ, the crossing one stopped at τ."""
    stopped = [*(t for t in path if t > level), level]
    return sum(float(chain.step(t, s, variance).mean()) for t, s in itertools.pairwise(stopped))


@pytest.mark.parametrize("band", BANDS, ids=str)
@pytest.mark.parametrize("variance", ["posterior", "upper", "optimal"])
@pytest.mark.parametrize("name", PROCESSES)
def test_the_path_sum_is_the_weighted_sum_of_bounds(name: str, variance: Any, band: Band) -> None:
    process = PROCESSES[name]
    statistics, chain = statistics_of(process)
    costs = band_costs(statistics, band.exponent, (band.low, band.high), variance)
    sigma = process.g[1:] / np.maximum(process.f[1:], 1e-300) / data_deviation(statistics)
    w = np.array([0.0 if s < band.low else min(s, band.high) ** band.exponent for s in sigma])
    dw = np.diff(w, prepend=0.0)
    for K in range(1, process.T + 1):
        for path in paths_of(process.T, K):
            # No step crosses T, or ends there, so T itself adds nothing that depends on the path.
            expected = sum(dw[τ - 1] * bound_at(chain, path, τ, variance) for τ in range(1, process.T))
            assert costs.cost(path) == pytest.approx(expected, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_solver_finds_the_least_of_all_paths(name: str) -> None:
    statistics, _ = statistics_of(PROCESSES[name])
    for variance in ("posterior", "optimal"):
        costs = band_costs(statistics, 1.0, (0.2, 6.0), variance)  # type: ignore[arg-type]
        solution = solve(costs)
        for K in range(1, statistics.process.T + 1):
            least = min(costs.cost(path) for path in paths_of(statistics.process.T, K))
            assert solution.cost(K) == pytest.approx(least, rel=1e-12, abs=1e-13)
            assert costs.cost(solution.path(K)) == pytest.approx(least, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("name", PROCESSES)
def test_lines_are_the_table_of_the_posterior_divergences(name: str) -> None:
    # The general form, from the ELBO's own table by running sums, against the closed form in Φ.
    from dpstride.objectives.band import weighted_table

    statistics, _ = statistics_of(PROCESSES[name])
    band = Band(1.3, 0.1, 5.0)
    weights = band.weights(relative_sigma(statistics.process, data_deviation(statistics)))
    general = weighted_table(elbo_costs(statistics, "posterior").L, weights)
    closed = band_costs(statistics, band.exponent, (band.low, band.high)).L
    finite = np.isfinite(general)
    assert (finite == np.isfinite(closed)).all()
    np.testing.assert_allclose(closed[finite], general[finite], rtol=1e-10, atol=1e-12)


def test_exponent_0_is_the_elbo_without_its_decoder() -> None:
    statistics, _ = statistics_of(PROCESSES["discrete"])
    costs, elbo = band_costs(statistics, 0.0, (0.0, math.inf)), elbo_costs(statistics, "posterior")
    for path in paths_of(statistics.process.T, 3):
        # The step t → 0 counts as t → 1, the lowest level of the grid, and costs nothing from there.
        last = elbo.L[path[-2], 1] if path[-2] > 1 else 0.0
        assert costs.cost(path) == pytest.approx(elbo.step_costs(path)[:-1].sum() + last, rel=1e-10)


@pytest.mark.parametrize("band", [Band(1.0, 0.2, 6.0), Band(2.0, 0.1, 4.0), Band(1.5, 0.05, 10.0)], ids=str)
def test_levels_approach_the_integral_on_a_fine_grid(band: Band) -> None:
    # Φ(σ) = ∫_σ^∞ w |d u|, u = 1/σ²; a grid puts w at the lower end of each interval.
    sigmas = np.concatenate([[0.0], np.geomspace(0.02, 50.0, 20_000)])
    process = ForwardProcess.from_functions(
        lambda t: 1.0 / np.sqrt(1.0 + np.interp(t, np.linspace(0, 1, sigmas.size), sigmas) ** 2),
        lambda t: (
            np.interp(t, np.linspace(0, 1, sigmas.size), sigmas)
            / np.sqrt(1.0 + np.interp(t, np.linspace(0, 1, sigmas.size), sigmas) ** 2)
        ),
        np.linspace(0.0, 1.0, sigmas.size),
    )
    levels = band_levels(process, band, 1.0)

    def w(sigma: float) -> float:
        return 0.0 if sigma < band.low else min(sigma, band.high) ** band.exponent

    for at in (1, 4_000, 9_000, 15_000):
        pieces = sorted({sigmas[at], *(edge for edge in (band.low, band.high) if edge > sigmas[at]), 50.0})
        exact = w(50.0) * 50.0**-2 + sum(
            quad(lambda sigma: w(sigma) * 2.0 * sigma**-3, a, b)[0] for a, b in itertools.pairwise(pieces)
        )
        assert levels[at] == pytest.approx(exact, rel=2e-3)


def test_exponent_2_weighs_a_change_of_variance_as_the_squared_wasserstein_distance() -> None:
    # W2²(N(0, v), N(0, v + ε)) = (√(v + ε) − √v)². With dw = d(σ²) the sum is ∫ KL(N(0, v + u) ‖ N(0, v + ε + u)) du.
    v = 0.7
    for ε in (1e-2, 1e-3):

        def kl(u: float, ε: float = ε) -> float:
            ratio = (v + u) / (v + ε + u)
            return 0.5 * (ratio - 1.0 - math.log(ratio))

        integral = quad(kl, 0.0, np.inf)[0]
        assert integral == pytest.approx((math.sqrt(v + ε) - math.sqrt(v)) ** 2, rel=2.0 * ε)


def test_noise_is_measured_in_standard_deviations_of_the_data() -> None:
    # Data and errors three times as large, with the noise three times as large: the same law in other units.
    process = ForwardProcess.linear(T=50)
    small = gaussian(process, np.full(3, 0.04))
    scaled = ForwardProcess.from_functions(
        lambda t: np.interp(t, process.times, process.f),
        lambda t: 3.0 * np.interp(t, process.times, process.g),
        process.times,
    )
    large = replace(
        small, process=scaled, squared_error=9.0 * small.squared_error, data={**small.data, "deviation": 0.6}
    )
    first, second = (band_costs(each, 1.0, (0.2, 6.0)) for each in (small, large))
    finite = np.isfinite(first.L)
    np.testing.assert_allclose(first.L[finite], second.L[finite], rtol=1e-9)


def test_estimate_keeps_the_deviation_and_older_files_use_the_root_mean_square() -> None:
    process = PROCESSES["continuous"]
    denoiser, data = mixture(process)
    statistics = estimate(denoiser, data + 4.0, data_range="continuous", progress=False)
    expected = math.sqrt(np.asarray(data, dtype=np.float64).var(axis=0, ddof=1).mean())
    assert data_deviation(statistics) == pytest.approx(expected, rel=1e-9)
    older = replace(statistics, data={name: value for name, value in statistics.data.items() if name != "deviation"})
    with pytest.warns(UserWarning, match="root mean square"):
        found = data_deviation(older)
    assert found == pytest.approx(math.sqrt(np.square(np.asarray(data) + 4.0).mean()), rel=1e-6)


@pytest.mark.parametrize(
    ("exponent", "band", "rule"),
    [
        (-0.5, (0.1, 1.0), "at least 0"),
        (math.inf, (0.1, 1.0), "finite"),
        (math.nan, (0.1, 1.0), "must be a number"),
        (1.0, (1.0, 1.0), "begin below its end"),
        (1.0, (2.0, 1.0), "begin below its end"),
        (1.0, (-1.0, 1.0), "begin below its end"),
        (1.0, (0.1,), "a pair"),
        (1.0, "ab", "a pair"),
        ("1", (0.1, 1.0), "must be a number"),
        (2.0, (0.1, math.inf), "pure noise"),
    ],
)
def test_refusals(exponent: Any, band: Any, rule: str) -> None:
    statistics = gaussian(ForwardProcess.rectified_flow(T=10), np.ones(2))
    with pytest.raises(ValueError, match=rule):
        band_costs(statistics, exponent, band)


def test_data_that_do_not_vary_are_refused() -> None:
    statistics = gaussian(ForwardProcess.linear(T=10), np.ones(2))
    constant = replace(statistics, data={**statistics.data, "deviation": 0.0})
    with pytest.raises(ValueError, match="Give data that vary"):
        band_costs(constant)


def test_an_exponent_below_2_needs_no_end_of_the_band() -> None:
    statistics = gaussian(ForwardProcess.rectified_flow(T=10), np.ones(2))
    assert np.isfinite(solve(band_costs(statistics, 1.9, (0.1, math.inf))).costs[1:]).all()
    linear = gaussian(ForwardProcess.linear(T=10), np.ones(2))
    assert np.isfinite(solve(band_costs(linear, 2.0, (0.1, math.inf))).costs[1:]).all()
