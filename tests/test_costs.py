"""The ELBO table against the textbook: divergences of Gaussians, and Gaussian data whose ELBO is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import dpstride
from dpstride import Denoiser, ForwardProcess, Statistics, elbo_costs, estimate, solve
from dpstride.options import Variance
from dpstride.variances.learned_optimal import factor
from gaussian import (
    Array,
    DirectChain,
    backward_step,
    discretised_nats,
    entropy,
    gaussian_denoiser,
    gaussian_kl,
    ideal_statistics,
    paths_of,
    posterior_of_clean,
    random_path,
)

Network = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
VARIANCES = ("posterior", "upper", "learned_range", "optimal", "learned_optimal")
# Learned costs go through bins, and the factors through curves; an error of a factor counts only by its square.
TOLERANCES = {"learned_range": 1e-8, "learned_optimal": 1e-5}


def adjacent_and_far(T: int, rng: np.random.Generator) -> list[int]:
    """Steps of a fine grid whose pairs are both adjacent and far apart: both ends, and runs in between."""
    starts = [1, T - 4, *rng.integers(1, T - 4, size=8)]
    return sorted({int(start + i) for start in starts for i in range(5)})


def fine(process: ForwardProcess, seed: int) -> ForwardProcess:
    return process.subset(adjacent_and_far(process.T, np.random.default_rng(seed)))


GRIDS = {
    "linear": ForwardProcess.linear(60),
    "cosine": ForwardProcess.cosine(60),
    "sub_vp": ForwardProcess.sub_vp(60),
    "rectified_flow": ForwardProcess.rectified_flow(60),  # f_T = 0
    "ve": ForwardProcess.ve(np.concatenate([[0.0], np.geomspace(0.02, 80.0, 60)])),
    "linear of 1000": fine(ForwardProcess.linear(1000), 1),
    "cosine of 4000": fine(ForwardProcess.cosine(4000), 2),
    "linear of 4000": fine(ForwardProcess.linear(4000), 3),
    "sub_vp of 1000": fine(ForwardProcess.sub_vp(1000), 4),
    "rectified_flow of 4000": fine(ForwardProcess.rectified_flow(4000), 5),
}


class Recited:
    """A network whose answers were written down beforehand, so that a test knows every residual and every φ.

    x̂_0 and φ at each t are drawn at random; with ``correlated`` a large φ comes with a large residual, as when a network
    knows where it errs.
    """

    def __init__(self, process: ForwardProcess, x_0: Array, spread: tuple[float, float], correlated: bool) -> None:
        rng = np.random.default_rng(11)
        shape = (process.origin_T + 1, *x_0.shape)
        self.fraction = rng.uniform(*spread, size=shape)
        # Residuals shrink with the noise, as those of real networks do, and are never quite of its size.
        size = np.zeros(process.origin_T + 1)
        size[process.origin] = process.g
        size = size.reshape(-1, *[1] * x_0.ndim)
        low, high = spread
        scale = 1.0 + 3.0 * (self.fraction - low) / (high - low) if correlated else 1.0
        self.x0_hat = x_0 + 0.7 * size * scale * rng.standard_normal(shape)

    def __call__(self, x: torch.Tensor, time: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
        at = time.long().numpy() + 1, sample.numpy()
        return torch.from_numpy(np.concatenate([self.x0_hat[at], 2.0 * self.fraction[at] - 1.0], axis=1))


def recited(
    process: ForwardProcess, spread: tuple[float, float] = (0.0, 1.0), correlated: bool = True
) -> tuple[Recited, Array, Statistics]:
    """The network, the data, and its statistics: 6 samples of 4 dimensions in one pass per t."""
    x_0 = np.random.default_rng(5).standard_normal((6, 4))
    network = Recited(process, x_0, spread, correlated)
    denoiser = Denoiser(network, process, predicts="x0", variance="learned_range", clip=None, dtype=torch.float64)
    data = (x_0, {"sample": torch.arange(6)})
    return network, x_0, estimate(denoiser, data, data_range="continuous", batch_size=6, progress=False)


def textbook_rows(
    process: ForwardProcess, network: Recited, x_0: Array, variance: str
) -> tuple[Array, list[tuple[int, int]]]:
    """KL of every step 0 < s < t, summed over dimensions and averaged over samples, in long double.

    x_t does not matter, because both means hold the same multiple of it; it is drawn all the same.
    """
    f, g = process.f.astype(np.longdouble), process.g.astype(np.longdouble)
    x_t = np.random.default_rng(9).standard_normal(x_0.shape).astype(np.longdouble)
    clean, pairs, costs = x_0.astype(np.longdouble), [], []
    for s, t in itertools.combinations(range(1, process.T + 1), 2):
        x0_hat = network.x0_hat[process.origin[t]].astype(np.longdouble)
        phi = network.fraction[process.origin[t]].astype(np.longdouble)
        a, b, q_variance, g2_ts = backward_step(f[t], g[t], f[s], g[s])
        learned = np.exp(phi * np.log(g2_ts) + (1 - phi) * np.log(q_variance))
        squares = q_variance + b**2 * (clean - x0_hat) ** 2  # E (x_s − mean of p)² given x_t and x_0
        p_variance = {
            "posterior": q_variance,
            "upper": g2_ts,
            "learned_range": learned,
            "optimal": squares.mean(),
            "learned_optimal": learned * (squares / learned).mean(),
        }[variance]
        kl = gaussian_kl(a * x_t + b * clean, q_variance, a * x_t + b * x0_hat, p_variance)
        pairs.append((t, s))
        costs.append(kl.sum(axis=1).mean())
    return np.array(costs), pairs


def assert_rows_match(table: dpstride.CostTable, exact: Array, pairs: list[tuple[int, int]], tolerance: float) -> None:
    """Relative tolerance, plus a thousandth of it ·dims nats because adjacent steps can cost 1e-14 (style.md)."""
    found = table.L[tuple(np.array(pairs).T)]
    allowed = tolerance * np.abs(exact) + (1e-13 if tolerance < 1e-9 else 1e-12) * table.dims
    worst = int((np.abs(found - exact) / allowed).argmax())
    assert (np.abs(found - exact) <= allowed).all(), (pairs[worst], found[worst], exact[worst])


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="the oracle needs long doubles longer than float64")
@pytest.mark.parametrize("grid", GRIDS)
def test_every_step_cost_is_the_textbook_divergence(grid: str) -> None:
    process = GRIDS[grid]
    network, x_0, statistics = recited(process)
    for variance in VARIANCES:
        exact, pairs = textbook_rows(process, network, x_0, variance)
        table = elbo_costs(statistics, variance=variance)
        assert_rows_match(table, exact, pairs, TOLERANCES.get(variance, 1e-10))
        assert np.isinf(table.L[np.triu_indices(process.T + 1)]).all()


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="the oracle needs long doubles longer than float64")
@pytest.mark.parametrize("grid", ["linear", "cosine", "rectified_flow", "cosine of 4000", "rectified_flow of 4000"])
@pytest.mark.parametrize("correlated", [False, True])
def test_learned_rows_with_fractions_far_outside_0_to_1(grid: str, correlated: bool) -> None:
    process = GRIDS[grid]
    network, x_0, statistics = recited(process, spread=(-3.0, 4.0), correlated=correlated)
    exact, pairs = textbook_rows(process, network, x_0, "learned_range")
    assert_rows_match(elbo_costs(statistics, variance="learned_range"), exact, pairs, 1e-8)


@given(
    data=st.data(),
    T=st.integers(2, 12),
    kind=st.sampled_from(["linear", "cosine", "sub_vp", "rectified_flow"]),
    factor=st.sampled_from([0.5, 0.9, 0.99, 1.01, 1.1, 2.0]),
)
def test_no_other_variance_beats_the_optimal_one(data: st.DataObject, T: int, kind: str, factor: float) -> None:
    # The average over samples of KL(q ‖ N(·, c · optimal)) is least at c = 1, whatever the residuals.
    process = getattr(ForwardProcess, kind)(T)
    t = data.draw(st.integers(2, T))
    s = data.draw(st.integers(1, t - 1))
    e = np.array(data.draw(st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=6)))
    statistics = with_squared_errors(process, np.full((T + 1, 1), (e**2).sum()), dims=e.size)
    found = elbo_costs(statistics, variance="optimal").L[t, s]
    _, b, q_variance, _ = backward_step(process.f[t], process.g[t], process.f[s], process.g[s])
    other = gaussian_kl(b * e, q_variance, 0.0, factor * (q_variance + b**2 * (e**2).mean())).sum()
    assert found <= other + 1e-12 * e.size


def with_squared_errors(
    process: ForwardProcess, squared_error: Array, dims: int, mean_square: float = 1.0
) -> Statistics:
    """Statistics of continuous data with these Σ e² per sample."""
    ideal = ideal_statistics(process, np.zeros(dims), np.ones(dims))
    samples = squared_error.shape[1]
    return dpstride.Statistics(
        **(vars(ideal) | {"squared_error": squared_error, "data_square": np.full(samples, dims * mean_square)})
    )


@given(
    m_fit=st.floats(0.0, 3.0),
    m_test=st.floats(0.0, 3.0),
    kind=st.sampled_from(["linear", "cosine", "sub_vp", "rectified_flow"]),
)
def test_optimal_variance_on_other_data_keeps_its_fitted_numbers(m_fit: float, m_test: float, kind: str) -> None:
    # method.md: ½ dims [ln(1 + Δ m_fit) + (1 + Δ m_test)/(1 + Δ m_fit) − 1]
    process, dims = getattr(ForwardProcess, kind)(8), 5
    fitted = elbo_costs(
        with_squared_errors(process, np.full((9, 1), dims * m_fit), dims), variance="optimal", decoder="upper"
    ).fitted
    test = with_squared_errors(process, np.full((9, 1), dims * m_test), dims)
    table = elbo_costs(test, variance="optimal", decoder="upper", fitted=fitted)
    refitted = elbo_costs(test, variance="optimal", decoder="upper")
    for s, t in itertools.combinations(range(1, 9), 2):
        Delta = float((process.f[s] / process.g[s]) ** 2 - (process.f[t] / process.g[t]) ** 2)
        one, two = 1.0 + Delta * m_fit, 1.0 + Delta * m_test
        exact = 0.5 * dims * (math.log(one) + two / one - 1.0)
        # ln and the difference of two numbers near 1 lose what 1 + Δm loses: 1e-16 · dims, well below 1e-13 · dims.
        assert table.L[t, s] == pytest.approx(exact, rel=1e-10, abs=1e-13 * dims)
        assert refitted.L[t, s] <= table.L[t, s] + 1e-13 * dims  # fitting on the scored data can only flatter


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


# --- the decoder ------------------------------------------------------------------------------------------------------


def small_images(seed: int, levels: int = 256) -> Array:
    """Level numbers [10, 2, 3], both edge levels among them."""
    values = np.random.default_rng(seed).integers(0, levels, size=(10, 2, 3))
    values[0, 0, 0], values[1, 0, 0] = 0, levels - 1
    return values.astype(np.uint8)


def rough_network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """A smooth float64 network that is far from ideal."""
    return torch.tanh(0.8 * x + 0.02 * time.reshape(-1, 1, 1) + 0.1)


def blurry_network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """A network that is poor at low noise: its residuals stay large where g_t is small."""
    return 0.5 * x


@pytest.mark.parametrize("network", [rough_network, blurry_network])
@pytest.mark.parametrize("kind", ["linear", "cosine", "rectified_flow"])
@pytest.mark.parametrize("data_range", ["uint8", ("levels", 5, 0.0, 1.0)])
def test_optimal_decoder_variance_minimises_the_direct_cost(network: Network, kind: str, data_range: object) -> None:
    levels, low, high = (256, -1.0, 1.0) if data_range == "uint8" else (5, 0.0, 1.0)
    # Ten steps of a fine grid, the cleanest among them.
    process = getattr(ForwardProcess, kind)(1000).subset([1, 2, 3, 10, 50, 200, 400, 600, 800, 1000])
    values = small_images(3, levels)
    denoiser = Denoiser(network, process, predicts="x0", clip=(low, high))
    statistics = estimate(denoiser, values, data_range=data_range, seed=4, progress=False)
    table = elbo_costs(statistics, decoder="optimal")
    chain = DirectChain(denoiser, low + values * (high - low) / (levels - 1), data_range, seed=4)
    assert table.fitted.decoder_variance is not None
    for t in range(1, 11):

        def cost(log_sigma: float, t: int = t) -> float:
            x_0, mean = chain.x_0, chain.x0_hat[t]
            return float(discretised_nats(x_0, mean, math.exp(log_sigma), low, high, levels).sum() / 10)

        starts = np.linspace(-8.0, 3.0, 45)
        at = starts[int(np.argmin([cost(start) for start in starts]))]
        best = minimize_scalar(cost, bounds=(at - 0.3, at + 0.3), method="bounded", options={"xatol": 1e-8})
        # Near a minimum the cost is flat: 1e-9 relative is what a search with steps of 1e-7 in ln sigma must reach.
        assert table.L[t, 0] == pytest.approx(best.fun, rel=1e-9)
        assert cost(0.5 * math.log(table.fitted.decoder_variance[t])) == pytest.approx(best.fun, rel=1e-9)


# --- respaced ---------------------------------------------------------------------------------------------------------


def learned_network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """`rough_network` with a fraction φ that differs from pixel to pixel and leaves [0, 1]."""
    return torch.cat([rough_network(x, time), 1.4 * torch.sin(3.0 * x)], dim=1)


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("data_range", ["uint8", "continuous"])
def test_respaced_optimum_against_every_path_of_the_respaced_chain(variance: str, data_range: str) -> None:
    process, values = ForwardProcess.linear(7), small_images(8)
    x_0 = values / 127.5 - 1.0
    denoiser = Denoiser(learned_network, process, predicts="x0", variance="learned_range")
    data = values if data_range == "uint8" else x_0
    statistics = estimate(denoiser, data, data_range=data_range, seed=2, progress=False)
    table = elbo_costs(statistics, variance=variance, decoder="respaced")
    solution = solve(table)
    chain = DirectChain(denoiser, x_0, data_range, seed=2)
    for K in range(2, 8):
        costs = {path: chain.bpd(path, variance, "respaced", table.fitted) for path in paths_of(7, K)}
        best = min(costs, key=lambda path: costs[path])
        assert solution.bpd(K) == pytest.approx(costs[best], abs=1e-9)
        assert costs[tuple(solution.path(K))] == pytest.approx(costs[best], abs=1e-9)
    with pytest.raises(ValueError, match=r"Budget 1 is undefined\. The respaced decoder takes"):
        solution.path(1)


def test_respaced_table_refuses_a_path_of_one_step() -> None:
    statistics = ideal_statistics(ForwardProcess.linear(5), np.zeros(2), np.ones(2))
    table = elbo_costs(statistics, decoder="respaced")
    assert np.isinf(table.L[:, 0]).all()
    with pytest.raises(ValueError, match="a path needs two steps"):
        table.step_nats((5, 0))


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


@pytest.mark.parametrize("spread", [(0.0, 1.0), (-3.0, 4.0)])
def test_learned_factors_are_the_best_ones(spread: tuple[float, float]) -> None:
    # The mean over samples of KL(q ‖ N(·, c · learned)) is ln c + E[…]/c, least where c is the mean of squares / learned.
    process = ForwardProcess.cosine(60)
    network, x_0, statistics = recited(process, spread)
    fitted = elbo_costs(statistics, "learned_optimal").fitted
    for t, s in ((2, 1), (7, 6), (30, 12), (59, 3), (60, 59), (60, 1)):
        _, b, q_variance, g2_ts = backward_step(process.f[t], process.g[t], process.f[s], process.g[s])
        phi = network.fraction[process.origin[t]]
        learned = np.exp(phi * np.log(g2_ts) + (1 - phi) * np.log(q_variance))
        best = ((q_variance + b**2 * (x_0 - network.x0_hat[process.origin[t]]) ** 2) / learned).mean()
        delta, Delta = (
            np.log(g2_ts / q_variance),
            (process.f[s] / process.g[s]) ** 2 - (process.f[t] / process.g[t]) ** 2,
        )
        assert factor(fitted, t, delta, Delta) == pytest.approx(best, rel=1e-2 if spread[0] else 1e-3)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variance": "small"}, "variance must be one of 'posterior', .*not 'small'"),
        ({"decoder": "exact"}, "decoder must be one of 'upper', .*not 'exact'"),
        ({"cdf": "erf"}, "cdf must be one of 'exact', 'tanh', not 'erf'"),
        ({"cdf": "x" * 9999}, "cdf must be one of 'exact', 'tanh', not 'x{79}\\.$"),
        ({"variance": "learned_range"}, "a model without a learned variance .*Use 'posterior'"),
        ({"variance": "learned_optimal"}, "a model without a learned variance .*Use 'posterior'"),
        ({"decoder": "first_pair"}, "first_pair' is defined by steps 2 → 1 of a discrete training grid.*Use 'upper'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], message: str) -> None:
    statistics = ideal_statistics(ForwardProcess.rectified_flow(5), 0.0, 1.0)
    with pytest.raises(ValueError, match=message):
        elbo_costs(statistics, **options)  # type: ignore[arg-type]


def test_respaced_needs_two_grid_steps() -> None:
    with pytest.raises(ValueError, match="takes its variance from a second step; this grid has only one"):
        elbo_costs(ideal_statistics(ForwardProcess.linear(1), 0.0, 1.0), decoder="respaced")


@pytest.mark.parametrize(("option", "name"), [("variance", "mean_squared_error"), ("decoder", "decoder_variance")])
def test_fitted_numbers_of_another_grid_are_refused(option: str, name: str) -> None:
    statistics = ideal_statistics(ForwardProcess.linear(6), 0.0, 1.0)
    other = elbo_costs(ideal_statistics(ForwardProcess.linear(5), 0.0, 1.0), "optimal", "optimal").fitted
    with pytest.raises(ValueError, match=rf"{option}='optimal' needs fitted.{name} for every grid index \(T \+ 1 = 7"):
        elbo_costs(statistics, **{option: "optimal"}, fitted=other)  # type: ignore[arg-type]
