"""Noise depends on its name only, and is standard normal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from dpstride.statistics.noise import standard_normal

# --- noise ------------------------------------------------------------------------------------------------------------

SEEDS = st.one_of(st.integers(0, 100), st.sampled_from([2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]))


@given(SEEDS, st.sampled_from(["forward", "prior", "reverse"]), st.integers(0, 4000), st.integers(0, 10**6))
def test_noise_depends_on_its_name_only(seed: int, purpose: Any, step: int, first: int) -> None:
    """Philox with key (seed, step) and counter (·, ·, purpose, sample), drawn afresh for each sample."""
    batch = standard_normal(seed, purpose, step, first, 3, (2, 5))
    number = {"forward": 0, "prior": 1, "reverse": 2}[purpose]
    for row in range(3):
        key = np.array([seed, step], dtype=np.uint64)
        bits = np.random.Philox(key=key, counter=np.array([0, 0, number, first + row], dtype=np.uint64))
        np.testing.assert_array_equal(batch[row].flatten(), np.random.Generator(bits).standard_normal(10))


def test_noise_has_the_bits_of_numpys_generator() -> None:
    """Some 4 million numbers: 1,000 of the tail and 40,000 at the edge of a layer, at every place in a block of words."""
    for seed, step, first, count, dims in (
        (0, 1, 0, 300, 12288),
        (2**64 - 1, 4000, 10**6, 5000, 7),
        (9, 2, 5, 3, 100_003),
    ):
        made = standard_normal(seed, "reverse", step, first, count, (dims,)).numpy()
        for row in range(count):
            key, counter = (np.array(each, dtype=np.uint64) for each in ((seed, step), (0, 0, 2, first + row)))
            drawn = np.random.Generator(np.random.Philox(key=key, counter=counter)).standard_normal(dims)
            np.testing.assert_array_equal(made[row].view(np.uint64), drawn.view(np.uint64))


def test_no_two_streams_are_alike() -> None:
    names = [
        (seed, purpose, step, sample)
        for seed in (0, 1, 2**63, 2**63 + 1, 2**64 - 1)
        for purpose in ("forward", "prior", "reverse")
        for step in (0, 1, 1000)
        for sample in (0, 1, 70000)
    ]
    draws = [standard_normal(seed, purpose, step, sample, 1, (2,)) for seed, purpose, step, sample in names]  # type: ignore[arg-type]
    assert len({tuple(draw.flatten().tolist()) for draw in draws}) == len(names)


def test_noise_is_standard_normal_and_uncorrelated_between_samples_and_steps() -> None:
    """n = 200,000: means within 5/sqrt(n), squares within 5 sqrt(2/n), correlations of neighbours within 5/sqrt(n)."""
    here = standard_normal(7, "forward", 3, 0, 2000, (100,)).numpy()
    above = standard_normal(7, "forward", 4, 0, 2000, (100,)).numpy()
    n = here.size
    assert abs(here.mean()) < 5 / math.sqrt(n)
    assert abs((here**2).mean() - 1.0) < 5 * math.sqrt(2 / n)
    assert abs((here[1:] * here[:-1]).mean()) < 5 / math.sqrt(n)
    assert abs((here * above).mean()) < 5 / math.sqrt(n)
