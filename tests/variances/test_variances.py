"""Costs of steps with every reverse variance, against the textbook's divergence of two Gaussians."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import dpstride
from dpstride import Denoiser, ForwardProcess, Statistics, elbo_costs, estimate
from dpstride.variances.learned_optimal import factor
from gaussian import (
    Array,
    backward_step,
    gaussian_kl,
    ideal_statistics,
)

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


# --- learned variances ------------------------------------------------------------------------------------------------


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
