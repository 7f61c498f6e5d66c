"""Units of work: they cover what is asked for once, in full batches, and what is left of them is cut as before."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dpstride.statistics import units
from dpstride.statistics.artefact import block_of_sample
from dpstride.statistics.units import batches, cut, sample_ranges, steps_per_unit


@given(st.integers(1, 300_000))
def test_ranges_are_whole_blocks_and_not_too_long(samples: int) -> None:
    ranges = sample_ranges(samples)
    assert ranges[0].start == 0
    assert ranges[-1].stop == samples
    assert all(a.stop == b.start for a, b in itertools.pairwise(ranges))
    block = block_of_sample(samples)
    starts = set(np.flatnonzero(np.diff(block, prepend=-1)).tolist())
    assert all(found.start in starts for found in ranges)
    most = max(len(found) for found in ranges)
    assert most <= units.RANGE + 2 or len(ranges) == 32  # blocks differ by one sample
    assert len(ranges) == 1 or most > units.RANGE // 2 - 2  # no shorter than need be
    assert most - min(len(found) for found in ranges) <= 32


@given(st.integers(1, 10_000), st.integers(1, 300))
def test_batches_are_few_and_equal(total: int, batch_size: int) -> None:
    found = batches(total, batch_size)
    assert [i for part in found for i in range(part.start, part.stop)] == list(range(total))
    sizes = [part.stop - part.start for part in found]
    assert len(sizes) == -(-total // batch_size)
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 5000), st.integers(1, 300))
def test_units_have_some_batches_that_are_nearly_full(samples: int, batch_size: int) -> None:
    count = steps_per_unit(samples, batch_size)
    total = count * samples
    assert total >= 4 * batch_size
    assert total < 4 * batch_size + 17 * samples  # and are not long for that
    # Within 16 multiples of N one leaves little over, unless N is tiny beside the batch; then the batches are 4 or 5.
    assert total / (-(-total // batch_size) * batch_size) > (0.9 if 16 * samples >= batch_size else 0.79)


WORK = st.integers(1, 200).flatmap(
    lambda samples: st.tuples(
        st.just(samples),
        st.sets(st.integers(0, samples - 1)).map(sorted),
        st.sets(st.integers(1, 50), min_size=1).map(sorted),
        st.integers(1, 40),
        st.booleans(),
    )
)


@given(WORK, st.data())
def test_units_cover_the_work_once_and_what_is_left_is_cut_as_before(work: Any, data: st.DataObject) -> None:
    """Whatever units are done, cutting the rest gives the other units: resumed work repeats the same batches."""
    samples, skipped, steps, batch_size, mixed = work
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "RANGE", 20)
        ranges = sample_ranges(samples)
    whole = cut([steps] * len(ranges), ranges, skipped, batch_size, mixed)
    covered = Counter((t, n) for unit in whole for t in unit.steps for n in ranges[unit.range] if n not in unit.skipped)
    assert covered == Counter((t, n) for t in steps for n in range(samples) if n not in skipped)
    assert mixed or all(len(unit.steps) == 1 for unit in whole)
    done = data.draw(st.sets(st.sampled_from(whole))) if whole else set()
    missing = [
        [t for t in steps if not any(t in unit.steps and unit.range == number for unit in done)]
        for number in range(len(ranges))
    ]
    assert cut(missing, ranges, skipped, batch_size, mixed) == [unit for unit in whole if unit not in done]
