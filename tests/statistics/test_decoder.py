"""The discretised decoder: a probability over levels, right in the deepest tail, and a density in the limit."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st
from numpy.typing import NDArray

from dpstride.statistics.artefact import DataRange
from dpstride.statistics.bins import GradedMesh
from dpstride.statistics.decoder import decoder_nats, gaussian_nats, residual_costs, signed_residual

Array = NDArray[Any]
HALF = 1.0 / 255.0


def level_nats(data_range: DataRange, mean: float, sigma: float, cdf: Any = "exact") -> Array:
    """−ln p of every level of a range, by way of the library's two functions."""
    assert data_range.levels is not None
    x = data_range.low + data_range.step * np.arange(data_range.levels)
    number = np.arange(data_range.levels)
    low, edge = number == 0, (number == 0) | (number == data_range.levels - 1)
    return np.asarray(decoder_nats(signed_residual(x - mean, low, edge), edge, data_range.half_bin, sigma, cdf))


def true_nats(q: float, edge: bool, half_bin: float, sigma: float) -> mpmath.mpf:
    """−ln of the Gaussian's mass between q − half_bin and q + half_bin (or beyond, at an edge), in 400 digits.

    At the edge the level's bin is everything outward of q − half_bin: mass Φ((half_bin − q)/sigma) by symmetry.
    """
    with mpmath.workdps(400):
        low, high = mpmath.mpf(q) - mpmath.mpf(half_bin), mpmath.mpf(q) + mpmath.mpf(half_bin)
        scale = mpmath.sqrt(2) * mpmath.mpf(sigma)
        above = mpmath.erfc(low / scale) / 2
        return -mpmath.log(above if edge else above - mpmath.erfc(high / scale) / 2)


# --- a probability ----------------------------------------------------------------------------------------------------


@given(st.floats(-3, 3), st.floats(-4, 1.5))
def test_probabilities_of_the_256_levels_sum_to_1(mean: float, log10_sigma: float) -> None:
    """exp and a sum of 256 numbers of at most 1: 256 roundings."""
    nats = level_nats(DataRange(256), mean, 10.0**log10_sigma)
    assert (nats >= 0.0).all()
    assert math.fsum(np.exp(-nats)) == pytest.approx(1.0, abs=256 * 2.3e-16)


@given(st.integers(2, 1000), st.floats(-5, 5), st.floats(1e-3, 50), st.floats(-1e6, 1e6), st.floats(-6, 6))
def test_probabilities_sum_to_1_for_any_levels_and_for_means_far_outside(
    n: int, low: float, width: float, mean: float, log10_sigma: float
) -> None:
    """q/sigma of 1e12 has q² / sigma² / 2 nats with a relative error of 1e-15; only its exp is summed."""
    nats = level_nats(DataRange(n, low, low + width), mean, 10.0**log10_sigma)
    assert np.isfinite(nats).all()
    assert math.fsum(np.exp(-nats)) == pytest.approx(1.0, abs=1e-10)


def test_the_bins_of_neighbouring_levels_meet() -> None:
    """The mass of levels i … j is that of their union: sums of p are differences of one CDF at the bin borders."""
    from scipy.stats import norm

    mean, sigma = 0.1234, 0.05
    p = np.exp(-level_nats(DataRange(256), mean, sigma))
    borders = -1.0 + 2.0 * HALF * np.arange(255) + HALF
    np.testing.assert_allclose(np.cumsum(p)[:-1], norm.cdf(borders, mean, sigma), rtol=1e-10, atol=1e-15)


def test_the_two_edges_mirror_each_other() -> None:
    for mean in (-1.7, -1.0, -0.3, 0.0, 0.6):
        np.testing.assert_allclose(
            level_nats(DataRange(256), mean, 0.2), level_nats(DataRange(256), -mean, 0.2)[::-1], rtol=1e-13
        )


# --- tails ------------------------------------------------------------------------------------------------------------


@given(st.floats(-4, 4), st.booleans(), st.floats(-5, 1), st.sampled_from([HALF, 1.0 / 65535.0, 0.5]))
def test_costs_are_right_to_the_deepest_tail(q: float, edge: bool, log10_sigma: float, half_bin: float) -> None:
    """Against 400 digits. 1e-11: narrow bins under a wide Gaussian lose half_bin/sigma ≈ 1e-6 of 1e-16 in Φ − Φ."""
    sigma = 10.0**log10_sigma
    q = q if edge else abs(q)
    assume((abs(q) + half_bin) / sigma < 40.0)  # 400 digits hold erfc down to e^−920
    found = float(decoder_nats(np.array([q]), np.array([edge]), half_bin, sigma)[0])
    expected = true_nats(q, edge, half_bin, sigma)
    rounding = 1e-16 * sigma / half_bin
    assert abs(found - expected) <= 1e-11 * abs(expected) + 1e-14 + 4 * rounding


@pytest.mark.parametrize("edge", [False, True])
def test_costs_stay_finite_where_the_probability_underflows(edge: bool) -> None:
    """p < e^−1e9 is no float64. Φ(−u) → φ(u)/u (1 − 1/u²), and an interior bin's far border does not count there."""
    q, sigma = np.array([0.5, 1.0, 2.0]), 2e-5
    u = (q - HALF) / sigma
    expected = 0.5 * u**2 + np.log(u) + 0.5 * math.log(2.0 * math.pi) - np.log1p(-1.0 / u**2)
    np.testing.assert_allclose(decoder_nats(q, np.full(3, edge), HALF, sigma), expected, rtol=1e-13)


def test_numpy_and_torch_agree() -> None:
    q = np.concatenate([np.linspace(-2, 2, 101), HALF * np.linspace(-3, 3, 31)])
    for sigma in (1e-4, 1e-2, 1.0):
        for edge in (np.zeros(q.size, dtype=bool), np.ones(q.size, dtype=bool)):
            values = q if edge[0] else np.abs(q)
            for cdf in ("exact", "tanh"):
                by_numpy = decoder_nats(values, edge, HALF, sigma, cdf)
                by_torch = decoder_nats(torch.from_numpy(values), torch.from_numpy(edge), HALF, sigma, cdf)
                np.testing.assert_allclose(by_torch.numpy(), by_numpy, rtol=1e-12, atol=1e-15)
    e = np.linspace(-1, 1, 7)
    low, edge = e < -0.5, np.abs(e) > 0.5
    by_torch = signed_residual(torch.from_numpy(e), torch.from_numpy(low), torch.from_numpy(edge))
    np.testing.assert_array_equal(by_torch.numpy(), signed_residual(e, low, edge))


def test_sigma_may_differ_per_element() -> None:
    q, sigma = torch.linspace(0, 1, 20, dtype=torch.float64), torch.linspace(0.01, 0.5, 20, dtype=torch.float64)
    edge = torch.arange(20) % 2 == 0
    together = decoder_nats(q, edge, HALF, sigma)
    alone = [float(decoder_nats(q[i : i + 1], edge[i : i + 1], HALF, float(sigma[i]))) for i in range(20)]
    np.testing.assert_allclose(together.numpy(), alone, rtol=1e-14)


# --- continuous limit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [0.0, 0.5, 2.0, 4.0])
def test_fine_levels_tend_to_the_density_times_the_bin(z: float) -> None:
    """Midpoint rule: ln p = ln(2h density) + (z² − 1) h²/(6 sigma²) + O(h⁴), z = q/sigma."""
    sigma = 0.7
    from scipy.stats import norm

    for h in (1e-2, 2e-3):
        found = -float(decoder_nats(np.array([z * sigma]), np.array([False]), h, sigma)[0])
        density = norm.logpdf(z * sigma, 0.0, sigma) + math.log(2.0 * h)
        assert found - density == pytest.approx((z**2 - 1.0) * h**2 / (6.0 * sigma**2), rel=0.01, abs=2e-13)


@given(st.integers(1, 5000), st.floats(0, 1e3), st.floats(-8, 3))
def test_continuous_data_has_the_gaussian_density(dims: int, squared_error: float, log10_variance: float) -> None:
    """The textbook: Σ over dims of ½ ln(2π σ²) + e²/(2σ²); numbers and tensors alike."""
    from scipy.stats import norm

    variance = 10.0**log10_variance
    # one residual carries all of Σ e², the others are 0
    expected = -norm.logpdf(math.sqrt(squared_error), 0.0, math.sqrt(variance)) - (dims - 1) * norm.logpdf(
        0.0, 0.0, math.sqrt(variance)
    )
    assert gaussian_nats(dims, squared_error, variance) == pytest.approx(expected, rel=1e-12, abs=1e-11 * dims)
    tensor = gaussian_nats(dims, torch.tensor(squared_error, dtype=torch.float64), torch.tensor(variance).double())
    assert float(tensor) == pytest.approx(expected, rel=1e-6, abs=1e-6 * dims)


# --- improved-diffusion's approximation -------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.004, 0.05, 0.5])
def test_tanh_is_the_stated_formula(sigma: float) -> None:
    """Nichol and Dhariwal's code: cdf(u) = ½ (1 + tanh(sqrt(2/π) (u + 0.044715 u³))); first level cdf(plus), last
    1 − cdf(minus), else cdf(plus) − cdf(minus), where plus/minus = (x ± 1/255 − mean)/sigma; at least 1e-12.

    Compared as probabilities: the approximation itself is a difference of numbers near 1.
    """
    x, mean = np.linspace(-1.0, 1.0, 256), 0.2

    def cdf(u: Array) -> Array:
        return np.asarray(0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (u + 0.044715 * u**3))))

    plus, minus = cdf((x + HALF - mean) / sigma), cdf((x - HALF - mean) / sigma)
    p = plus - minus
    p[0], p[-1] = plus[0], 1.0 - minus[-1]
    found = np.exp(-level_nats(DataRange(256), mean, sigma, "tanh"))
    np.testing.assert_allclose(found, np.maximum(p, 1e-12), rtol=1e-9, atol=4e-16)
    assert found.min() == pytest.approx(1e-12, rel=1e-12) or sigma == 0.5


# --- the nodes of bins ------------------------------------------------------------------------------------------------


def test_residual_costs_are_those_of_the_nodes_interior_first() -> None:
    mesh = GradedMesh(HALF, HALF / 16)
    negative = mesh.SIDE + 3  # between q = 0 and the half-bin, so interior residuals are there too
    bins, sigma = np.array([0, 7, negative, mesh.bins + 7, mesh.bins + negative]), np.array([0.001, 0.1])
    costs = residual_costs(mesh, bins, HALF, sigma)
    for i, number in enumerate(bins):
        edge = number >= mesh.bins
        points = mesh.points(np.array([number % mesh.bins]))[0]
        for j, scale in enumerate(sigma):
            np.testing.assert_array_equal(
                costs[i, :, j], decoder_nats(points, np.full(points.shape, edge), HALF, float(scale))
            )
