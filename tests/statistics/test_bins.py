"""Bins with Chebyshev moments against the sums that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from dpstride import ForwardProcess
from dpstride.statistics.artefact import (
    DataRange,
    decoder_log_sigma_range,
    fraction_mesh,
    fraction_range,
    residual_mesh,
)
from dpstride.statistics.bins import (
    MOMENTS,
    BinnedRows,
    EvenMesh,
    GradedMesh,
    chebyshev_matrix,
    chebyshev_nodes,
    moments_of,
    to_node_weights,
)
from dpstride.statistics.decoder import decoder_nats

Array = NDArray[Any]


def binned(mesh: GradedMesh | EvenMesh, values: Array, weights: Array | None = None) -> tuple[Array, Array]:
    """Nodes and node weights that stand for ``values``: Σ w h(node) should be Σ weights h(values)."""
    index, z = mesh.locate(torch.from_numpy(values))
    sums = moments_of(index, z, None if weights is None else torch.from_numpy(weights), mesh.bins).T
    kept = np.unique(index.numpy())
    return mesh.points(kept), to_node_weights(sums[kept])


# --- residuals --------------------------------------------------------------------------------------------------------

HALVES = {"8 bits": 1.0 / 255.0, "16 bits": 1.0 / 65535.0, "2 levels": 0.5}


def spread(half_bin: float, sigma: float, edge: bool) -> Array:
    """Residuals of all sizes, dense around the half-bin, where −ln p bends."""
    q = np.concatenate(
        [np.geomspace(1e-8, 4.0, 400), half_bin + sigma * np.linspace(-9, 9, 201), np.linspace(0, 4 * half_bin, 100)]
    )
    return np.concatenate([q, -q]) if edge else np.abs(q)


@pytest.mark.parametrize("edge", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 1.7, 16.0, 300.0, 1e5])
@pytest.mark.parametrize("fineness", [1 / 16, 1e-2, 1e-4])
@pytest.mark.parametrize("levels", HALVES)
def test_decoder_costs_from_bins_are_those_of_the_residuals(
    levels: str, fineness: float, ratio: float, edge: bool
) -> None:
    """Each residual alone, so that no error can hide in a sum: 1e-9 of its cost, or of a thousandth of a nat."""
    half_bin = HALVES[levels]
    least = half_bin * fineness
    mesh, sigma = GradedMesh(half_bin, least), least * ratio
    q = spread(half_bin, least, edge)
    index, z = mesh.locate(torch.from_numpy(q))
    moments = np.cos(np.arange(MOMENTS) * np.arccos(z.numpy())[:, None])  # T_n(z) by its definition
    points = mesh.points(index.numpy())
    found = (to_node_weights(moments) * decoder_nats(points, np.full(points.shape, edge), half_bin, sigma)).sum(1)
    direct = decoder_nats(q, np.full(q.shape, edge), half_bin, sigma)
    np.testing.assert_allclose(found, direct, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.floats(-4, 0), st.floats(0, 1))
def test_sums_over_many_residuals(seed: int, log10_scale: float, place: float) -> None:
    """The sum, at any decoder variance that any option uses, to 1e-9 and 1e-13 nats per element."""
    process, data_range = ForwardProcess.linear(1000), DataRange(256)
    t = 1 + seed % 1000
    low, high = decoder_log_sigma_range(process, data_range, t)
    sigma = float(np.exp(low + place * (high - low)))
    q = np.abs(np.random.default_rng(seed).standard_normal(5000)) * 10.0**log10_scale
    points, weights = binned(residual_mesh(process, data_range, t), q)
    found = (weights * decoder_nats(points, np.zeros(points.shape, dtype=bool), data_range.half_bin, sigma)).sum()
    direct = decoder_nats(q, np.zeros(q.shape, dtype=bool), data_range.half_bin, sigma).sum()
    assert found == pytest.approx(direct, rel=1e-9, abs=1e-13 * q.size)


@pytest.mark.parametrize("name", ["linear", "cosine", "rectified_flow"])
def test_residual_bins_are_fine_enough_for_the_least_variance_of_every_option(name: str) -> None:
    """Options: g_t², the first pair's, g̃² of any second step above t (least for t + 1)."""
    process = getattr(ForwardProcess, name)(200)
    for grid in (process, process.subset(range(1, 201, 7)), process.subset([1, 200])):
        for t in range(1, grid.T + 1):
            least = residual_mesh(grid, DataRange(256), t).sigma ** 2
            used = [grid.g[t] ** 2, *(float(grid.posterior_variance(t2, t)) for t2 in range(t + 1, grid.T + 1))]
            if grid.origin[t] == 1 and grid.first_pair_variance is not None:
                used.append(grid.first_pair_variance)
            assert least <= min(used) * (1 + 1e-12)


def test_a_decoder_narrower_than_the_bins_has_nothing_to_gain() -> None:
    """A residual of half a half-bin, at the least sigma: what lies outside its level is Φ(−8) = 6e-16 or less."""
    for option in (DataRange(256), DataRange(12, 0.0, 5.0)):
        half_bin, least = option.half_bin, residual_mesh(ForwardProcess.linear(1), option, 1).sigma
        assert float(decoder_nats(np.array([half_bin / 2]), np.array([False]), half_bin, least)[0]) < 1e-15


@given(st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=30), st.sampled_from([1e-5, 1e-2]))
def test_every_residual_is_in_its_bin(q: list[float], sigma: float) -> None:
    """z and the bin together say q again: T_1 is the position itself. Bins reach 1e10 sigma."""
    mesh = GradedMesh(0.25, sigma)
    index, z = mesh.locate(torch.tensor(q, dtype=torch.float64))
    assert ((index >= 0) & (index < mesh.bins)).all()
    assert (z.abs() <= 1.0).all()
    nodes = mesh.points(index.numpy())
    position = np.cos(np.pi * (np.arange(MOMENTS) + 0.5) / MOMENTS)
    slope = (nodes[:, 0] - nodes[:, -1]) / (position[0] - position[-1])
    np.testing.assert_allclose(
        nodes[:, 0] + slope * (z.numpy() - position[0]), q, rtol=1e-10, atol=1e-10 * sigma + 1e-15
    )


# --- fractions --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.floats(0, 16), st.sampled_from(["uniform", "narrow", "two"]))
def test_moment_generating_functions_of_wide_fractions(seed: int, delta: float, kind: str) -> None:
    """Σ exp(−φδ) and Σ e² exp(−φδ), φ spread over [−3, 4] and δ up to 16: the terms span e^112."""
    rng = np.random.default_rng(seed)
    phi = {
        "uniform": rng.uniform(-3, 4, 4000),
        "narrow": rng.normal(rng.uniform(-3, 4), 1e-4, 4000),
        "two": rng.choice([-3.0, 4.0], 4000),
    }[kind]
    e2 = rng.standard_normal(4000) ** 2
    mesh = EvenMesh(1.0 / 16.0)
    for weights in (None, e2):
        points, found = binned(mesh, phi, weights)
        direct = ((1.0 if weights is None else weights) * np.exp(-phi * delta)).sum()
        assert (found * np.exp(-points * delta)).sum() == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("name", ["linear", "cosine", "rectified_flow"])
def test_fraction_bins_are_narrow_enough_for_every_delta_of_the_row(name: str) -> None:
    """δ = ln(g_t²/g_s²) of the steps, and ln(g_t²/g̃²(t, t2)) of the learned decoder: exp(−φδ) varies by e in a bin."""
    process = getattr(ForwardProcess, name)(300)
    for t in range(1, process.T + 1):
        steps = 2.0 * np.log(process.g[t] / process.g[1:t])
        decoder = np.log(process.g[t] ** 2 / process.posterior_variance(np.arange(t + 1, process.T + 1), t))
        most = max([0.0, *steps, *decoder])
        assert fraction_mesh(process, t).width * most <= 1.0 + 1e-12
        assert fraction_range(process, t)[1] >= most * (1 - 1e-12)


def test_fractions_at_the_borders_of_the_mesh() -> None:
    mesh = EvenMesh(0.25)
    phi = np.array([-32.0, 32.0, 0.0, 0.25, -0.25])
    points, weights = binned(mesh, phi)
    assert (weights * points).sum() == pytest.approx(phi.sum(), abs=1e-10)
    assert (weights * points**2).sum() == pytest.approx((phi**2).sum(), rel=1e-12)


# --- moments ----------------------------------------------------------------------------------------------------------


def test_moments_are_sums_of_chebyshev_polynomials() -> None:
    rng = np.random.default_rng(0)
    index, z, w = rng.integers(0, 5, 200), rng.uniform(-1, 1, 200), rng.standard_normal(200)
    found = moments_of(torch.from_numpy(index), torch.from_numpy(z), torch.from_numpy(w), 7)
    assert found.shape == (MOMENTS, 7)
    for order in range(MOMENTS):
        for number in range(7):
            here = index == number
            expected = (w[here] * np.cos(order * np.arccos(z[here]))).sum()
            assert found[order, number] == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(-2, 2), min_size=MOMENTS, max_size=MOMENTS), st.integers(0, 2**32 - 1))
def test_polynomials_below_the_number_of_moments_are_summed_exactly(coefficients: list[float], seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-1, 1, 300)
    points, weights = binned(EvenMesh(1.0), values)
    polynomial = np.polynomial.Polynomial(coefficients)
    assert (weights * polynomial(points)).sum() == pytest.approx(polynomial(values).sum(), rel=1e-11, abs=1e-9)


def test_rows_of_bins_come_back() -> None:
    rng = np.random.default_rng(1)
    rows = [(np.arange(n, dtype=np.int64) * 3, rng.standard_normal((n, 2, MOMENTS))) for n in (0, 4, 0, 1)]
    stored = BinnedRows.from_rows(rows)
    for t, (bins, moments) in enumerate(rows):
        found, weights = stored.row(t)
        np.testing.assert_array_equal(found, bins)
        np.testing.assert_array_equal(weights, to_node_weights(moments))


# --- interpolation ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 16), st.floats(-5, 5), st.floats(0.1, 10), st.lists(st.floats(-1, 1), min_size=16, max_size=16))
def test_interpolation_is_exact_for_polynomials(
    count: int, low: float, width: float, coefficients: list[float]
) -> None:
    """Degree count − 1 through count nodes; the basis is Chebyshev's, so that nothing is ill-conditioned."""
    polynomial = np.polynomial.Chebyshev(coefficients[:count], domain=[low, low + width])
    at = np.linspace(low, low + width, 33)
    nodes = chebyshev_nodes(low, low + width, count)
    found = chebyshev_matrix(low, low + width, count, at) @ polynomial(nodes)
    np.testing.assert_allclose(found, polynomial(at), atol=1e-11)
    assert (np.diff(nodes) > 0).all()
    assert ((nodes > low) & (nodes < low + width)).all()


def test_interpolation_of_an_analytic_function_converges_geometrically() -> None:
    """1/(1 + x²) has poles at ±i, so the error falls as (1 + √2)^−n."""
    at = np.linspace(-1, 1, 201)
    errors = [
        np.abs(chebyshev_matrix(-1, 1, n, at) @ (1 / (1 + chebyshev_nodes(-1, 1, n) ** 2)) - 1 / (1 + at**2)).max()
        for n in (10, 20, 30)
    ]
    slope = np.polyfit([10, 20, 30], np.log(errors), 1)[0]
    assert slope == pytest.approx(-np.log(1 + np.sqrt(2)), rel=0.03)


def test_an_empty_interval_interpolates_a_constant() -> None:
    np.testing.assert_allclose(chebyshev_matrix(0.0, 0.0, 5, [0.0, 0.0]) @ np.full(5, 2.5), [2.5, 2.5], rtol=1e-14)
