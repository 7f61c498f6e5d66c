"""The ELBO's table on Gaussian data whose ELBO is known, its terms by sample, and options that do not fit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpstride import Denoiser, ForwardProcess, elbo_costs, estimate, solve
from dpstride.options import Variance
from gaussian import (
    backward_step,
    entropy,
    gaussian_denoiser,
    gaussian_kl,
    ideal_statistics,
    posterior_of_clean,
    random_path,
)
from small_images import learned_network, small_images

VARIANCES = ("posterior", "upper", "learned_range", "optimal", "learned_optimal")


# --- Gaussian data ----------------------------------------------------------------------------------------------------

MEAN, VARIANCE = np.array([0.3, -0.5, 0.0, 1.0]), np.array([0.2, 1.0, 0.05, 2.0])


@pytest.mark.parametrize("kind", ["linear", "cosine", "sub_vp", "rectified_flow"])
@pytest.mark.parametrize("variance", ["posterior", "upper", "optimal"])
def test_ideal_table_in_closed_form(kind: str, variance: str) -> None:
    # With the ideal denoiser p and q differ in mean by b·e, and E e_d² is the remaining variance of x_0 given x_t.
    process = getattr(ForwardProcess, kind)(24)
    table = elbo_costs(ideal_statistics(process, MEAN, VARIANCE), variance=variance, decoder="upper")
    f, g = process.f, process.g
    for t in range(1, 25):
        e2 = posterior_of_clean(f[t], g[t], MEAN, VARIANCE)[2]
        for s in range(1, t):
            _, b, q_variance, g2_ts = backward_step(f[t], g[t], f[s], g[s])
            p_variance = {"posterior": q_variance, "upper": g2_ts, "optimal": q_variance + b**2 * e2.mean()}[variance]
            exact = gaussian_kl(b * np.sqrt(e2), q_variance, 0.0, p_variance).sum()
            assert table.L[t, s] == pytest.approx(exact, rel=1e-10, abs=1e-12 * 4)  # float64 oracle: 1e-12, not 1e-13
        decoder = 0.5 * (math.log(2.0 * math.pi * g[t] ** 2) + e2 / g[t] ** 2).sum()
        assert table.L[t, 0] == pytest.approx(decoder, rel=1e-12)
    prior = 0.5 * (f[-1] ** 2 * (VARIANCE + MEAN**2) + g[-1] ** 2 - 1.0 - math.log(g[-1] ** 2)).sum()
    assert table.prior_nats == pytest.approx(prior, rel=1e-10, abs=1e-13 * 4)


@pytest.mark.parametrize("kind", ["linear", "sub_vp", "rectified_flow"])
def test_monte_carlo_table_agrees_with_the_ideal_one(kind: str) -> None:
    process = getattr(ForwardProcess, kind)(12)
    x_0 = MEAN + np.sqrt(VARIANCE) * np.random.default_rng(1).standard_normal((400, 4))
    denoiser = gaussian_denoiser(process, MEAN, VARIANCE)
    statistics = estimate(denoiser, x_0, data_range="continuous", progress=False)
    ideal = ideal_statistics(process, MEAN, VARIANCE)
    off = np.abs(statistics.mean_squared_error - ideal.mean_squared_error)[1:]
    assert (off < 5.0 * statistics.standard_error[1:]).all()
    for variance in ("posterior", "upper", "optimal"):
        exact = elbo_costs(ideal, variance=variance)
        found = elbo_costs(statistics, variance=variance, fitted=exact.fitted)
        # A path of two steps holds one step cost, one decoder cost and the prior; its own error judges their sum.
        for t in range(1, 12):
            path = (12, t, 0)
            nats = found.step_nats(path).sum() - exact.step_nats(path).sum() + found.prior_nats - exact.prior_nats
            error = found.schedule(path).standard_error
            assert error is not None
            assert abs(nats) < 5.0 * error * 4 * math.log(2.0)


def marginal_prior_nats(process: ForwardProcess, mean: float, variance: float, dims: int) -> float:
    """KL(q(x_T) ‖ N(0, I)), where q(x_T) = N(f mean, f² variance + g²) for Gaussian data."""
    f, g = process.f[-1], process.g[-1]
    return dims * float(gaussian_kl(f * mean, f**2 * variance + g**2, 0.0, 1.0))


@pytest.mark.parametrize("kind", ["linear", "cosine", "sub_vp", "rectified_flow", "vp_linear", "vp_cosine"])
@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (0.4, 0.25), (-0.2, 3.0), (0.0, 1e-3)])
def test_isotropic_gaussian_reaches_its_entropy_on_every_path(kind: str, mean: float, variance: float) -> None:
    # For isotropic Gaussian data q(x_s given x_t) is an isotropic Gaussian, which is what p becomes with the ideal
    # denoiser, optimal variance and optimal decoder. Then p(x_0, …) = q(x_0, … given x_T) N(x_T), and the negative ELBO
    # E ln q(x_1 … given x_0) − ln p(x_0, …) = −E ln q(x_0) + E ln q(x_T)/N(x_T) = entropy + KL(q(x_T) ‖ N), path or not.
    process, dims = getattr(ForwardProcess, kind)(30), 3
    statistics = ideal_statistics(process, np.full(dims, mean), np.full(dims, variance))
    table = elbo_costs(statistics, variance="optimal", decoder="optimal")
    exact = entropy(variance, dims) + marginal_prior_nats(process, mean, variance, dims)
    rng = np.random.default_rng(0)
    for K in range(1, 31):
        path = random_path(rng, 30, K)
        assert table.step_nats(path).sum() + table.prior_nats == pytest.approx(exact, abs=1e-10)
    solution = solve(table)
    for K in range(1, 31):
        assert solution.bpd(K) * dims * math.log(2.0) == pytest.approx(exact, abs=1e-10)


def even_log_snr(T: int, most: float = 8.0, least: float = -8.0) -> ForwardProcess:
    """Variance-preserving grid whose log-SNR falls evenly from ``most`` at index 1 to ``least`` at T."""
    return ForwardProcess.from_alpha_bar(1.0 / (1.0 + np.exp(-np.linspace(most, least, T))))


@pytest.mark.parametrize("variance", [1.0, 0.3])
def test_posterior_variance_loses_in_proportion_to_1_over_T(variance: float) -> None:
    # A step of log-SNR width h loses ½[Δm − ln(1 + Δm)] ≈ ¼(Δm)² with Δm of order h; T steps of h = 16/T lose of order 1/T.
    sizes = np.array([200, 400, 800, 1600])
    gaps = []
    for T in sizes:
        process = even_log_snr(int(T))
        table = elbo_costs(ideal_statistics(process, 0.0, variance), variance="posterior", decoder="optimal")
        full = table.step_nats(range(int(T), -1, -1)).sum() + table.prior_nats
        gaps.append(full - entropy(variance) - marginal_prior_nats(process, 0.0, variance, 1))
    slope = np.polyfit(np.log(sizes), np.log(gaps), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.05)


def full_path_nats(process: ForwardProcess, mean: float, variance: float) -> float:
    """Negative ELBO of all T steps, `posterior` variance and `upper` decoder, by tables of 100 neighbouring steps."""
    nats = []
    for first in range(0, process.T, 100):
        window = process.subset(range(first, min(first + 100, process.T) + 1))
        table = elbo_costs(ideal_statistics(window, mean, variance), variance="posterior", decoder="upper")
        skipped = 1 if first == 0 else 2  # the clean point 0 belongs to the first window only
        nats += [table.L[t, t - 1] for t in range(skipped, window.T + 1)]
    return math.fsum(nats) + table.prior_nats


def test_time_uniform_grid_with_posterior_variance_never_reaches_the_entropy() -> None:
    # N(0, 1) data, linear process: near clean data g_t² ≈ c t, so the step t → t − 1 has Δm = 1/(t − 1) and loses
    # ½[1/n − ln(1 + 1/n)], n = t − 1. The sum over n ≥ 1 is half Euler's constant, and c, that is T, has dropped out.
    # The decoder loses nothing: with unit variance `upper` is the optimal one.
    gaps = []
    for T in (2000, 4000, 8000):
        process = ForwardProcess.linear(T)
        ideal = entropy(1.0) + marginal_prior_nats(process, 0.0, 1.0, 1)
        gaps.append(full_path_nats(process, 0.0, 1.0) - ideal)
    # The rest of the grid adds (A + B ln T)/T. Twice the gap at 2T less the one at T leaves B ln 2/T, and the same once
    # more leaves nothing of it. beta doubles within T/200 steps, so the next order is (200/T)²: 6e-4 at T = 8000.
    without_A = [2.0 * gaps[1] - gaps[0], 2.0 * gaps[2] - gaps[1]]
    assert 2.0 * without_A[1] - without_A[0] == pytest.approx(0.5 * np.euler_gamma, abs=2e-3)
    assert gaps[0] > gaps[1] > gaps[2] > 0.5 * np.euler_gamma


# --- the table itself -------------------------------------------------------------------------------------------------


def test_a_subset_grid_has_the_rows_of_the_full_one() -> None:
    process = ForwardProcess.cosine(20)
    x_0 = np.random.default_rng(0).standard_normal((12, 3))
    denoiser = gaussian_denoiser(process, np.zeros(3), np.ones(3))
    kept = [0, 2, 3, 9, 14, 20]
    full = elbo_costs(estimate(denoiser, x_0, data_range="continuous", progress=False), "upper")
    thin = estimate(denoiser.on_grid(process.subset(kept)), x_0, data_range="continuous", progress=False)
    # Same f, g, noise and network inputs, so the same float operations.
    assert np.array_equal(elbo_costs(thin, "upper").L, full.L[np.ix_(kept, kept)])


def test_terms_per_sample_add_up_to_the_table() -> None:
    process, values = ForwardProcess.linear(9), small_images(1)
    denoiser = Denoiser(learned_network, process, predicts="x0", variance="learned_range")
    statistics = estimate(denoiser, values, progress=False)
    for variance, decoder in itertools.product(VARIANCES, ("upper", "first_pair", "respaced", "optimal")):
        table = elbo_costs(statistics, variance=variance, decoder=decoder)
        assert table.unit_terms is not None
        for path in ((9, 7, 4, 2, 0), (9, 5, 1, 0), (9, 1, 0)):
            terms, sizes = table.unit_terms(path)
            assert terms.shape == (10, len(path))
            assert (sizes == 1.0).all()  # fewer samples than blocks: every sample is its own
            exact = [*table.step_nats(path), table.prior_nats]
            # Some columns are interpolated from 12 nodes, for standard errors only, where 1 % is plenty.
            assert terms.mean(axis=0) == pytest.approx(exact, rel=1e-2, abs=1e-6 * table.dims)


@pytest.mark.parametrize("variance", ["learned_range", "learned_optimal"])
def test_learned_terms_add_up_at_the_first_steps_of_a_fine_grid(variance: Variance) -> None:
    # There the learned decoder asks for larger δ than any step does, and what blocks keep reaches as far.
    process = ForwardProcess.cosine(4000).subset(range(1, 10))
    denoiser = Denoiser(learned_network, process, predicts="x0", variance="learned_range")
    table = elbo_costs(estimate(denoiser, small_images(1), progress=False), variance)
    assert table.unit_terms is not None
    for path in ((3, 2, 1, 0), (9, 5, 2, 1, 0)):
        terms, _ = table.unit_terms(path)
        assert terms.mean(axis=0)[:-2] == pytest.approx(table.step_nats(path)[:-1], rel=1e-4)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variance": "small"}, "variance must be one of 'posterior', .*not 'small'"),
        ({"decoder": "exact"}, "decoder must be one of 'upper', .*not 'exact'"),
        ({"cdf": "erf"}, "cdf must be one of 'exact', 'tanh', not 'erf'"),
        ({"cdf": "x" * 9999}, "cdf must be one of 'exact', 'tanh', not 'x{79}\\.$"),
        ({"variance": "learned_range"}, "needs a model with a learned variance.*Use 'posterior'"),
        ({"variance": "learned_optimal"}, "needs a model with a learned variance.*Use 'posterior'"),
        ({"decoder": "first_pair"}, "first_pair' is defined by steps 2 → 1 of a discrete training grid.*Use 'upper'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], message: str) -> None:
    statistics = ideal_statistics(ForwardProcess.rectified_flow(5), 0.0, 1.0)
    with pytest.raises(ValueError, match=message):
        elbo_costs(statistics, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("option", "name"), [("variance", "mean_squared_error"), ("decoder", "decoder_variance")])
def test_fitted_numbers_of_another_grid_are_refused(option: str, name: str) -> None:
    statistics = ideal_statistics(ForwardProcess.linear(6), 0.0, 1.0)
    other = elbo_costs(ideal_statistics(ForwardProcess.linear(5), 0.0, 1.0), "optimal", "optimal").fitted
    with pytest.raises(ValueError, match=rf"{option}='optimal' needs fitted.{name} for every grid index \(T \+ 1 = 7"):
        elbo_costs(statistics, **{option: "optimal"}, fitted=other)  # type: ignore[arg-type]
