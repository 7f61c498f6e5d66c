"""Unmasking schedules: hand-made ones, files, and what other tools take."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from joints import topics

import dpstride
from dpstride import (
    BinomialSchedule,
    MaskedProcess,
    MaskedSchedule,
    MaskedScheduleSet,
    MaskedStatistics,
    ScheduleFileError,
)


@given(st.integers(1, 300), st.data())
def test_hand_made_schedules_fall_from_all_to_none(length: int, data: st.DataObject) -> None:
    K = data.draw(st.integers(1, length))
    for rule in (dpstride.even_unmasking, dpstride.cosine_unmasking, dpstride.geometric_unmasking):
        schedule = rule(length, K)
        assert schedule.budget == K
        assert sum(schedule.tokens_per_round) == length
        assert min(schedule.tokens_per_round) >= 1
    even = dpstride.even_unmasking(length, K).tokens_per_round
    assert max(even) - min(even) <= 1
    if length >= 8 * K:  # where there is room, rounds of the cosine are the cosine's to one token
        masked = np.array(dpstride.cosine_unmasking(length, K).counts)
        assert np.abs(masked - length * np.cos(0.5 * math.pi * np.arange(K + 1) / K)).max() <= 1.0
        known = length - np.array(dpstride.geometric_unmasking(length, K).counts)
        # Rounds that would reveal less than a token reveal one, which puts those behind them off by as many at most.
        short = int((length ** (np.arange(1, K + 1) / K) < np.arange(1, K + 1)).sum())
        assert np.abs(known - length ** (np.arange(K + 1) / K))[1:].max() <= 1.0 + short


@given(st.lists(st.floats(0.01, 9.0), min_size=2, max_size=40), st.data())
def test_rounds_of_equal_information(c: list[float], data: st.DataObject) -> None:
    n = len(c)
    K = data.draw(st.integers(1, n))
    nats = np.append(0.0, c)[:, None]
    schedule = dpstride.entropy_unmasking(MaskedStatistics(MaskedProcess(n), nats, np.array([n]), np.array([0])), K)
    assert schedule.budget == K
    known = np.cumsum(nats[:, 0])
    if min(schedule.tokens_per_round) > 1:  # else whole tokens do not let rounds be equal
        ideal = known[-1] * np.arange(K, -1, -1) / K
        assert np.abs(known[list(schedule.counts)] - ideal).max() <= max(c)


def test_tokens_that_tell_little_are_revealed_together() -> None:
    """Of topics the first tokens settle everything: the best rounds begin small, and so do those of equal information."""
    joint = topics()
    statistics = MaskedStatistics(MaskedProcess(6), joint.c()[:, None], np.array([6]), np.array([0]))
    best = dpstride.masked_schedules(statistics)[3]
    assert best.tokens_per_round[0] < best.tokens_per_round[-1]
    assert best.bits < dpstride.score_masked(statistics, dpstride.even_unmasking(6, 3))[0]


def test_exports() -> None:
    schedule = MaskedSchedule(10, (10, 7, 3, 0))
    assert schedule.tokens_per_round == (3, 4, 3)
    assert schedule.fractions == (1.0, 0.7, 0.3, 0.0)
    assert schedule.times == (1.0, 0.7, 0.3)
    assert schedule.num_transfer_tokens().tolist() == [[3, 4, 3]]
    table = schedule.num_transfer_tokens([10, 5, 1])
    assert table.dtype == np.int64
    assert table.tolist() == [[3, 4, 3], [1, 2, 2], [0, 1, 0]]  # 3.5 → 4 and 1.5 → 2 are masked of five
    assert table.sum(axis=1).tolist() == [10, 5, 1]
    assert dpstride.linear_times(4).times == (1.0, 0.75, 0.5, 0.25, 0.0)


def test_files_give_back_what_was_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nats = np.append(np.zeros((1, 3)), rng.random((300, 3)), axis=0)
    statistics = MaskedStatistics(MaskedProcess(300), nats, np.full(3, 300), np.arange(3), {"model": {"name": "m"}})
    schedules = dpstride.masked_schedules(statistics)
    schedules.save(tmp_path / "schedules.json")
    loaded = MaskedScheduleSet.load(tmp_path / "schedules.json")
    assert loaded.budgets == list(range(1, 301))
    for budget in (1, 7, 299, 300):
        assert loaded[budget].counts == schedules[budget].counts
        assert loaded[budget].bits == schedules[budget].bits
    assert loaded.provenance["model"] == {"name": "m"}
    assert len(list(loaded)) == 300
    assert 301 not in loaded
    with pytest.raises(ValueError, match="no schedule of 301 rounds here; there are those of 1 to 300"):
        loaded[301]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "other"}, "format 'other'"),
        ({"version": 2}, "version 2"),
        ({"length": -1}, "length must be a number"),
        ({"schedules": []}, "it holds no schedule"),
        ({"schedules": [{"budget": 1, "bits": 1.0, "standard_error": None, "steps": [3, 0]}]}, "must begin with all 4"),
        (
            {"schedules": [{"budget": 2, "bits": 1.0, "standard_error": None, "steps": [4, 0]}]},
            "schedule of budget 2 has 1 steps",
        ),
        ({"provenance": []}, "provenance an object"),
    ],
)
def test_files_of_something_else_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "schedules.json"
    MaskedScheduleSet(4, {1: ((4, 0), 1.0, None)}).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ScheduleFileError, match=message):
        MaskedScheduleSet.load(path)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MaskedSchedule(4, (3, 0)), "begin with all 4 tokens masked"),
        (lambda: MaskedSchedule(4, (4, 4, 0)), "fall strictly"),
        (lambda: BinomialSchedule((0.9, 0.0)), "fall strictly from 1"),
        (lambda: BinomialSchedule((1.0, 0.5)), "fall strictly from 1"),
        (lambda: dpstride.even_unmasking(4, 5), "rounds from 1 to 4, not 5"),
        (lambda: dpstride.linear_times(0), "at least 1, not 0"),
    ],
)
def test_impossible_schedules_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
