"""Discrepancies by all pairs against their double sums, and what they promise: no bias, honest paired errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from dpstride import energy_distance, kernel_distance

RANDOM = np.random.default_rng(5)


def double_sum(a: np.ndarray, b: np.ndarray) -> float:
    """2 E|x − y| − E|x − x'| − E|y − y'| as it is defined, over different samples."""
    within = [np.mean([math.dist(x, y) for x, y in itertools.permutations(s, 2)]) for s in (a, b)]
    across = np.mean([math.dist(x, y) for x in a for y in b])
    return float(2.0 * across - sum(within)) / math.sqrt(a.shape[1])


def test_the_energy_distance_and_its_jackknife_are_those_of_the_double_sum() -> None:
    a, b = RANDOM.normal(size=(7, 3)), RANDOM.normal(0.5, 1.3, size=(9, 3))
    found = energy_distance(a.reshape(7, 3, 1), torch.from_numpy(b))
    assert found.value == pytest.approx(double_sum(a, b), rel=1e-10)
    without = [
        [double_sum(np.delete(a, i, 0), b) for i in range(7)],
        [double_sum(a, np.delete(b, i, 0)) for i in range(9)],
    ]
    variance = sum((len(w) - 1) / len(w) * np.square(w - np.mean(w)).sum() for w in without)
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-8)


def test_samples_of_one_law_have_no_distance_on_average() -> None:
    values = [energy_distance(*RANDOM.normal(size=(2, 20, 4))).value for _ in range(200)]
    assert abs(np.mean(values)) < 5.0 * np.std(values, ddof=1) / math.sqrt(200)


def test_the_error_of_a_paired_difference_is_its_spread_over_draws() -> None:
    """Two shifts of the same noises: their difference is far surer than either distance."""
    drawn = []
    for _ in range(60):
        noise, real = RANDOM.normal(size=(60, 2)), RANDOM.normal(size=(80, 2))
        first, second = (energy_distance(noise + shift, real) for shift in (0.3, 0.5))
        drawn.append((*second.minus(first), second.standard_error))
    difference, error, alone = np.array(drawn).T
    assert np.std(difference, ddof=1) == pytest.approx(error.mean(), rel=0.3)
    assert error.mean() < 0.6 * alone.mean()


def test_sets_that_cannot_be_compared_are_refused() -> None:
    a = RANDOM.normal(size=(4, 3))
    with pytest.raises(ValueError, match="Give both in the same shape"):
        energy_distance(a, a[:, :2])
    with pytest.raises(ValueError, match="at least 2 samples"):
        energy_distance(a[:1], a)
    with pytest.raises(ValueError, match="the same number of samples"):
        energy_distance(a, a).minus(energy_distance(a[:3], a))
    assert math.isnan(energy_distance(a[:2], a).standard_error)
    assert math.isnan(kernel_distance(a[:2], a).standard_error)
