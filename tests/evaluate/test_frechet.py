"""Fréchet and kernel distances against closed forms of Gaussians, brute-force sums and other algorithms."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from dpstride import frechet_distance, kernel_distance
from dpstride.evaluate.frechet import Moments, TooFewSamplesWarning

Array = NDArray[np.float64]
MANY = 10**6  # samples that a given covariance claims to come from, so that nothing warns


def rotation(d: int, seed: int = 0) -> Array:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def spd(d: int, seed: int) -> Array:
    factor = np.random.default_rng(seed).standard_normal((d, d))
    return factor @ factor.T


# --- Fréchet distance of known Gaussians ----------------------------------------------------------------------------------


def test_one_dimension_is_by_hand() -> None:
    # |m_a − m_b|² + (σ_a − σ_b)²
    assert frechet_distance(([1.0], [[4.0]], MANY), ([4.0], [[0.25]], MANY)) == pytest.approx(9.0 + 2.25, rel=1e-12)


def test_two_dimensions_are_by_hand() -> None:
    # The eigenvalues λ, μ of AB have √λ + √μ = √(tr AB + 2 √det AB).
    A, B, gap = spd(2, 1), spd(2, 2), np.array([0.3, -2.0])
    overlap = math.sqrt(np.trace(A @ B) + 2.0 * math.sqrt(np.linalg.det(A @ B)))
    expected = gap @ gap + np.trace(A + B) - 2.0 * overlap
    assert frechet_distance((gap, A, MANY), (np.zeros(2), B, MANY)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("zeros", [0, 3, 6])
def test_commuting_covariances_singular_or_not(zeros: int) -> None:
    # In their common basis the distance is Σ (√a − √b)²; the zeros of A and of B are in different places.
    Q, rng = rotation(12), np.random.default_rng(3)
    a, b = rng.uniform(0.1, 5.0, 12), rng.uniform(0.1, 5.0, 12)
    a[:zeros], b[12 - zeros :] = 0.0, 0.0
    A, B = Q * a @ Q.T, Q * b @ Q.T
    expected = np.square(np.sqrt(a) - np.sqrt(b)).sum()
    assert frechet_distance((np.zeros(12), A, MANY), (np.zeros(12), B, MANY)) == pytest.approx(expected, rel=1e-10)


def test_covariances_of_rank_one() -> None:
    # A = u uᵀ, B = v vᵀ: the only singular value of A^½ B^½ is |u·v|.
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal(30), rng.standard_normal(30)
    expected = u @ u + v @ v - 2.0 * abs(u @ v)
    found = frechet_distance((np.zeros(30), np.outer(u, u), MANY), (np.zeros(30), np.outer(v, v), MANY))
    assert found == pytest.approx(expected, rel=1e-10)


def test_a_point_mass_and_identical_sets() -> None:
    A = spd(5, 4)
    zero = (np.zeros(5), np.zeros((5, 5)), MANY)
    assert frechet_distance((np.ones(5), A, MANY), zero) == pytest.approx(5.0 + np.trace(A), rel=1e-12)
    assert frechet_distance(zero, zero) == 0.0
    low_rank = A[:, :1] @ A[:1]
    for covariance in (A, low_rank):
        same = (np.ones(5), covariance, MANY)
        assert frechet_distance(same, same) == pytest.approx(0.0, abs=1e-12 * np.trace(covariance))


@given(st.integers(1, 12), st.integers(0, 10**6))
def test_the_general_case_is_that_of_the_matrix_square_root(d: int, seed: int) -> None:
    """scipy's square root of the product, which is not symmetric, is another algorithm for the same number."""
    A, B = spd(d, seed) + 0.05 * np.eye(d), spd(d, seed + 1) + 0.05 * np.eye(d)
    gap = np.random.default_rng(seed).standard_normal(d)
    expected = gap @ gap + np.trace(A + B) - 2.0 * np.trace(scipy.linalg.sqrtm(A @ B)).real
    found = frechet_distance((gap, A, MANY), (np.zeros(d), B, MANY))
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert frechet_distance((np.zeros(d), B, MANY), (gap, A, MANY)) == pytest.approx(found, rel=1e-10, abs=1e-10)


def test_features_that_are_shifted_and_scaled() -> None:
    x = np.random.default_rng(5).standard_normal((400, 6)) @ spd(6, 6)
    shift = np.arange(6.0)
    assert frechet_distance(x, x + shift) == pytest.approx(shift @ shift, rel=1e-9)
    # 3 x has covariance 9 A, which commutes with A: (3 − 1)² tr A, and the mean moves by 2 m.
    expected = 4.0 * np.trace(np.cov(x.T)) + 4.0 * np.square(x.mean(axis=0)).sum()
    assert frechet_distance(torch.from_numpy(x), 3.0 * x) == pytest.approx(expected, rel=1e-9)


def test_fewer_samples_than_features_warn_and_are_exact() -> None:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((9, 40)), rng.standard_normal((50, 40)) + 0.5
    centred_a, centred_b = (a - a.mean(0)) / math.sqrt(8), (b - b.mean(0)) / math.sqrt(49)
    # The covariances are Xᵀ X of the centred samples X, so A^½ B^½ has the singular values of X_a X_bᵀ: no square root.
    overlap = scipy.linalg.svdvals(centred_a @ centred_b.T).sum()
    gap = a.mean(0) - b.mean(0)
    expected = gap @ gap + np.square(centred_a).sum() + np.square(centred_b).sum() - 2.0 * overlap
    with pytest.warns(TooFewSamplesWarning, match="9 samples are too few for features of 40 dimensions"):
        assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)
    with pytest.warns(TooFewSamplesWarning, match="40 samples are too few"):
        frechet_distance(b, (np.zeros(40), np.eye(40), 40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frechet_distance(b, b[:41])


# --- moments --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 10**6))
def test_moments_of_parts_are_those_of_the_whole(sizes: list[int], seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((sum(sizes) + 2, 3)) * [1.0, 10.0, 0.1] + [1e6, 0.0, -5.0]
    cuts = [0, *itertools.accumulate(sizes), len(x)]
    merged = Moments.merged(Moments.of(x[i:j]) for i, j in itertools.pairwise(cuts))
    assert merged.count == len(x)
    np.testing.assert_allclose(merged.mean, x.mean(axis=0), rtol=1e-12, atol=1e-12)
    # A mean of 1e6 leaves 1e-10 of a standard deviation of 1 in float64; summed squares would leave nothing.
    np.testing.assert_allclose(merged.covariance, np.cov(x.T), rtol=1e-8, atol=1e-8)


def test_float32_features_are_summed_in_float64() -> None:
    x = (np.random.default_rng(0).standard_normal((10_000, 2)) + 1000.0).astype(np.float32)
    np.testing.assert_allclose(Moments.of(x).covariance, np.cov(x.astype(np.float64).T), rtol=1e-9)
    assert frechet_distance(Moments.of(x), x) == pytest.approx(0.0, abs=1e-9)


# --- kernel distance --------------------------------------------------------------------------------------------------------


def brute_force(a: Array, b: Array) -> float:
    """The definition: means of the kernel over pairs of different samples, and over pairs of the two sets."""

    def k(x: Array, y: Array) -> float:
        return float((x @ y / len(x) + 1.0) ** 3)

    within = [
        sum(k(x[i], x[j]) for i in range(len(x)) for j in range(len(x)) if i != j) / (len(x) * (len(x) - 1))
        for x in (a, b)
    ]
    across = sum(k(x, y) for x in a for y in b) / (len(a) * len(b))
    return within[0] + within[1] - 2.0 * across


def test_the_kernel_distance_and_its_jackknife_are_those_of_the_double_sum() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((7, 4)), rng.standard_normal((5, 4)) + 0.4
    found = kernel_distance(a, torch.from_numpy(b))
    assert found.value == pytest.approx(brute_force(a, b), rel=1e-11)
    assert (found.samples, found.subsets) == ((7, 5), 1)
    without_a = np.array([brute_force(np.delete(a, i, 0), b) for i in range(7)])
    without_b = np.array([brute_force(a, np.delete(b, i, 0)) for i in range(5)])
    variance = (
        6 / 7 * np.square(without_a - without_a.mean()).sum() + 4 / 5 * np.square(without_b - without_b.mean()).sum()
    )
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-9)


def test_many_rows_are_summed_in_parts() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((1500, 2)), rng.standard_normal((2100, 2))
    gram = [((x @ y.T) / 2 + 1.0) ** 3 for x, y in ((a, a), (b, b), (a, b))]
    off = [(g.sum() - np.trace(g)) / (len(g) * (len(g) - 1)) for g in gram[:2]]
    assert kernel_distance(a, b).value == pytest.approx(off[0] + off[1] - 2.0 * gram[2].mean(), rel=1e-9, abs=1e-12)


def shifted_value(c: float) -> float:
    """MMD² of N(0, 1) and N(c, 1) in one dimension: E (xy + 1)³ by the moments 1, m, m² + 1, m³ + 3m."""

    def mean_kernel(m: float, n: float) -> float:
        moments = [(1.0, z, z**2 + 1.0, z**3 + 3.0 * z) for z in (m, n)]
        return sum(math.comb(3, i) * moments[0][i] * moments[1][i] for i in range(4))

    return mean_kernel(0.0, 0.0) + mean_kernel(c, c) - 2.0 * mean_kernel(0.0, c)


@pytest.mark.parametrize("subset_size", [None, 10])
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_the_kernel_distance_is_unbiased_with_an_honest_error(shift: float, subset_size: int | None) -> None:
    rng = np.random.default_rng(3)
    found = [
        kernel_distance(rng.standard_normal((40, 1)), rng.standard_normal((60, 1)) + shift, subset_size, seed=i)
        for i in range(600)
    ]
    values = np.array([each.value for each in found])
    assert abs(values.mean() - shifted_value(shift)) < 5.0 * values.std(ddof=1) / math.sqrt(len(values))
    # The jackknife is conservative; a mean of few subsets has an error that is right on average.
    claimed = math.sqrt(np.mean([each.standard_error**2 for each in found]))
    assert 0.7 < claimed / values.std(ddof=1) < 1.6
    assert {each.subsets for each in found} == ({1} if subset_size is None else {4})


# --- bad input --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((3, 4, 5)), r"Features must be numbers of shape \[samples, dimensions\], not float64 \(3, 4, 5\)"),
        (np.array([[1.0], [np.nan]]), "those of sample 1 are not"),
        (np.zeros((1, 1)), "at least 2 samples"),
        (np.zeros((0, 1)), "no features|at least 2 samples"),
        (np.zeros((4, 2)), "2 and 1 features|1 and 2 features"),
    ],
)
@pytest.mark.parametrize("distance", [frechet_distance, kernel_distance])
def test_bad_features_are_refused(distance: Any, features: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distance(features, np.arange(4.0)[:, None])


def test_bad_moments_are_refused() -> None:
    good = (np.zeros(2), np.eye(2), MANY)
    for bad, message in [
        ((np.zeros(2), np.eye(2)), "triple"),
        ((np.zeros(2), np.eye(3), MANY), r"\[d, d\], not \(2,\) and \(3, 3\)"),
        ((np.zeros(2), np.array([[1.0, 0.5], [0.0, 1.0]]), MANY), "not symmetric"),
        ((np.zeros(2), np.diag([1.0, -0.1]), MANY), "no negative eigenvalue, but one is -0.1"),
        ((np.array([0.0, np.inf]), np.eye(2), MANY), "must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            frechet_distance(bad, good)
    with pytest.raises(ValueError, match="Features of 1 and of 2 dimensions"):
        Moments.merged([Moments.of(np.zeros((2, 1))), Moments.of(np.zeros((2, 2)))])
    with pytest.raises(ValueError, match="at least 20 samples of each set, but there are 12 and 40"):
        kernel_distance(np.zeros((12, 1)), np.zeros((40, 1)), subset_size=10)
    with pytest.raises(ValueError, match="subset_size must be a whole number of at least 2"):
        kernel_distance(np.zeros((12, 1)), np.zeros((40, 1)), subset_size=1)
