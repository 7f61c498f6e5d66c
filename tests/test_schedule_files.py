"""Files of schedules: round trips, and every way to damage one."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dpstride import (
    ForwardProcess,
    Schedule,
    ScheduleFileError,
    ScheduleSet,
    even_stride,
    schedules_from,
)
from dpstride.fitted import FACTOR_SIZE, Fitted
from dpstride.paths import LISTED
from gaussian import ideal_statistics
from schedule_sets import set_of

# --- files ------------------------------------------------------------------------------------------------------------


def assert_same(one: ScheduleSet, other: ScheduleSet) -> None:
    assert one.process.fingerprint == other.process.fingerprint
    assert (one.process.kind, one.process.name) == (other.process.kind, other.process.name)
    assert one.process.first_pair_variance == other.process.first_pair_variance
    assert one.budgets == other.budgets
    for budget in one.budgets:
        assert one[budget].steps == other[budget].steps
        assert one[budget].times == other[budget].times
        assert one[budget].bpd == other[budget].bpd  # bit for bit: JSON writes the shortest digits that read back
        assert one[budget].standard_error == other[budget].standard_error
    assert one.stride == other.stride
    assert dict(one.options) == dict(other.options)
    assert dict(one.provenance) == dict(other.provenance)
    for name in ("mean_squared_error", "decoder_variance", "learned_factor"):
        mine, theirs = getattr(one.fitted, name), getattr(other.fitted, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert np.array_equal(mine, theirs, equal_nan=True)


def test_round_trip_of_all_budgets(tmp_path: Path) -> None:
    # 600 budgets: those above 256 are written as bit masks.
    process = ForwardProcess.cosine(600)
    schedules = schedules_from(ideal_statistics(process, [0.3, 0.0], [0.1, 2.0]), "optimal", "optimal")
    assert schedules.fitted.mean_squared_error is not None
    # Real numbers as one sample gives them, except that one sample has no spread: NaN, which a file keeps as nothing.
    assert math.isnan(schedules[3].standard_error or 0.0)
    schedules.save(tmp_path / "schedules.json")
    document = json.loads((tmp_path / "schedules.json").read_text())
    assert all(("mask" in entry) == (entry["budget"] > LISTED) for entry in document["schedules"])
    loaded = ScheduleSet.load(tmp_path / "schedules.json")
    assert loaded[3].standard_error is None
    without_nan = dataclasses.replace(
        schedules, entries={K: (steps, bpd, None) for K, (steps, bpd, _) in schedules.entries.items()}
    )
    assert_same(loaded, without_nan)


@given(
    T=st.integers(1, 400),
    data=st.data(),
    kind=st.sampled_from(["linear", "cosine", "sub_vp", "rectified_flow", "ve"]),
    provenance=st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=5,
        ),
    ),
)
def test_any_schedule_survives_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, T: int, data: st.DataObject, kind: str, provenance: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    sigmas = np.concatenate([[0.0], np.geomspace(0.01, 50.0, T)])
    process = ForwardProcess.ve(sigmas) if kind == "ve" else getattr(ForwardProcess, kind)(T)
    # Up to the whole grid, so that masks occur too.
    chosen = data.draw(st.one_of(st.sets(st.integers(1, T), min_size=1), st.just(set(range(1, T + 1)))))
    number = st.floats(allow_nan=False, allow_infinity=False)
    schedule = Schedule(
        process,
        (*sorted(chosen, reverse=True), 0),
        stride=data.draw(st.text(min_size=1)),
        bpd=data.draw(st.none() | number),
        standard_error=data.draw(st.none() | number),
        options={"variance": "optimal"},
        fitted=Fitted(
            np.abs(np.resize(data.draw(st.lists(number, min_size=1, max_size=9)), T + 1)),
            learned_factor=np.resize(data.draw(st.lists(st.floats(0.0, 1e4), min_size=1)), (T + 1, FACTOR_SIZE)),
        ),
        provenance=provenance,
    )
    schedule.save(path)
    assert_same(ScheduleSet.load(path), ScheduleSet.of([schedule]))
    assert Schedule.load(path).steps == schedule.steps


def test_a_subset_grid_survives_a_round_trip(tmp_path: Path) -> None:
    process = ForwardProcess.linear(100).subset([5, 20, 80, 100])
    schedules = ScheduleSet.of([even_stride(process, K) for K in range(1, 5)])
    schedules.save(tmp_path / "deep" / "er" / "s.json")
    loaded = ScheduleSet.load(tmp_path / "deep" / "er" / "s.json")
    assert_same(loaded, schedules)
    assert loaded.process.origin.tolist() == [0, 5, 20, 80, 100]


def test_a_file_of_many_schedules_is_not_one_schedule(tmp_path: Path) -> None:
    set_of({1: None, 2: None}).save(tmp_path / "s.json")
    with pytest.raises(ScheduleFileError, match=r"holds 2 schedules; read it with ScheduleSet.load"):
        Schedule.load(tmp_path / "s.json")


def test_saving_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    schedules = set_of({1: None})
    broken = dataclasses.replace(schedules, provenance={"object": object()})
    schedules.save(tmp_path / "s.json")
    before = (tmp_path / "s.json").read_bytes()
    with pytest.raises(TypeError, match="not JSON serializable"):
        broken.save(tmp_path / "s.json")
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]
    assert (tmp_path / "s.json").read_bytes() == before


# --- files that are not -----------------------------------------------------------------------------------------------


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """What a good file holds: budgets 1, 3 and 300 (a mask) on a grid of 300, with fitted numbers."""
    process = ForwardProcess.linear(300)
    fitted = Fitted(np.full(301, 0.5), None)
    schedules = [dataclasses.replace(even_stride(process, K), fitted=fitted, bpd=2.0) for K in (1, 3, 300)]
    ScheduleSet.of(schedules).save(tmp_path / "good.json")
    found: dict[str, Any] = json.loads((tmp_path / "good.json").read_text())
    return found


def load_text(tmp_path: Path, text: str) -> ScheduleSet:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    return ScheduleSet.load(tmp_path / "bad.json")


def test_a_truncated_file_says_so(tmp_path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for length in (*range(40), *range(40, len(text), 997), len(text) - 1):
        with pytest.raises(ScheduleFileError, match=r"bad.json: not a whole JSON file .*Write it again"):
            load_text(tmp_path, text[:length])


def test_no_file_and_a_folder_and_bytes(tmp_path: Path) -> None:
    with pytest.raises(ScheduleFileError, match="there is no such file"):
        ScheduleSet.load(tmp_path / "none.json")
    with pytest.raises(ScheduleFileError, match="not a whole JSON file"):
        ScheduleSet.load(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00{}")
    with pytest.raises(ScheduleFileError, match="not a whole JSON file"):
        ScheduleSet.load(tmp_path / "bytes.json")


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, '{"format": ' + "9" * 5000 + "}"])
def test_deep_nesting_and_huge_numbers_are_not_crashes(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScheduleFileError, match="not a whole JSON file"):
        load_text(tmp_path, text)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"dpstride-schedules"', "{}", '{"format": "dpstride-statistics"}'])
def test_another_format_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScheduleFileError, match=r"format .* is not 'dpstride-schedules'"):
        load_text(tmp_path, text)


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.5, [1]])
def test_another_version_is_named(tmp_path: Path, document: dict[str, Any], version: Any) -> None:
    document["version"] = version
    with pytest.raises(
        ScheduleFileError, match="of the format is not 1; write it again with this version of dpstride, or"
    ):
        load_text(tmp_path, json.dumps(document))


def put(*where: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of the document: put(key, …, value)."""
    *keys, last, value = where

    def edit(document: Any) -> None:
        for key in keys:
            document = document[key]
        document[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("schedules", 1, "steps", [300, 200, 100]), "fall strictly from at most T = 300 to 0"),
        (put("schedules", 1, "steps", [300, 100, 200, 0]), "fall strictly"),
        (put("schedules", 1, "steps", [300, 200, 200, 0]), "fall strictly"),
        (put("schedules", 1, "steps", [301, 200, 100, 0]), "fall strictly"),
        (put("schedules", 1, "steps", [10**400, 200, 100, 0]), "a whole number of 1329 bits"),
        (put("schedules", 1, "steps", [300, 200.5, 100, 0]), "whole grid indices"),
        (put("schedules", 1, "steps", [300, math.nan, 100, 0]), "NaN is not JSON"),
        (put("schedules", 1, "steps", [300, math.inf, 100, 0]), "Infinity is not JSON"),
        (put("schedules", 1, "steps", [[300], 200, 100, 0]), "not a valid schedule file"),
        (put("schedules", 1, "budget", 4), "schedule of budget 4 has 3 steps"),
        (put("schedules", 1, "budget", "3"), "schedule of budget 3 has 3 steps"),
        (
            put("schedules", 0, {"budget": 3, "steps": [300, 2, 1, 0], "bpd": 1, "standard_error": 0}),
            "two schedules of",
        ),
        (put("schedules", 2, "mask", "f" * 1_000_000), "mask has 4000000 bits for a grid of 301 points"),
        (put("schedules", 2, "mask", "-1f"), "mask has"),
        (put("schedules", 2, "mask", "xyz"), "invalid literal"),
        (put("schedules", 2, "mask", 7), "not a valid schedule file"),
        (put("schedules", []), "holds no schedule"),
        (put("schedules", None), "not a valid schedule file"),
        (put("schedules", 1, "bpd", "cheap"), "not a valid schedule file"),
        (put("schedules", 1, "bpd", 10**400), "a whole number of 1329 bits"),
        (put("fitted", "mean_squared_error", [1.0]), "must have 301 entries"),
        (put("fitted", "mean_squared_error", {"a": 1}), "not a valid schedule file"),
        (put("fitted", "mean_squared_error", 1, -0.5), "not negative"),
        (put("fitted", "learned_factor", [[1.0]]), "must be a list of 301 rows"),
        (put("fitted", "learned_factor", [[1.0]] * 301), "must be 17 numbers, or null"),
        (put("fitted", "learned_factor", [[True] * 17] * 301), "must be 17 numbers, or null"),
        (put("fitted", "learned_factor", [[-1.0] * 17] * 301), "a range and logarithms"),
        (put("fitted", "decoder_variance", [1.0] * 300 + [0.0]), "above 0 where they are variances"),
        (put("fitted", None), "not a valid schedule file"),
        (put("process", "f", 0, math.nan), "NaN is not JSON"),
        (put("process", "f", 1, 2.0), "f must not rise along the grid"),
        (put("process", "g", 0, 0.5), "must be clean data"),
        (put("process", "g", [0.0]), "vectors of the same length"),
        (put("process", "origin", [0]), "origin"),
        (put("process", "origin", 1, 10**30), "not a valid schedule file"),
        (put("process", "origin", 1, 2**63), "origin must be whole numbers"),
        (put("process", "origin", 1, 1.5), "origin must be whole numbers, not float64"),
        (put("process", "f", 1, "0.5"), "f must be numbers"),
        (put("process", "kind", "quantum"), "kind must be 'discrete' or 'continuous', not 'quantum'"),
        (put("process", "name", {"a": 1}), "name of a process must be a string"),
        (put("process", "origin_T", 300.0), "origin_T must be a whole number"),
        (put("process", "first_pair_variance", -1.0), "first_pair_variance must be positive"),
        (put("process", "colour", "red"), "a missing or an unknown entry: 'colour'"),
        (put("process", "f_function", "print"), "a missing or an unknown entry: 'f_function'"),
        (put("stride", 3), "stride a string"),
        (put("process", None), "not a valid schedule file"),
        (put("options", 3), "not a valid schedule file"),
        (put("provenance", None), "not a valid schedule file"),
    ],
)
def test_a_wrong_value_is_found(
    tmp_path: Path, document: dict[str, Any], edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    edit(document)
    with pytest.raises(ScheduleFileError, match=f"bad.json: .*{message}"):
        load_text(tmp_path, json.dumps(document))


@pytest.mark.parametrize("key", ["format", "version", "options", "provenance", "process", "fitted", "schedules"])
def test_a_missing_key_is_named(tmp_path: Path, document: dict[str, Any], key: str) -> None:
    del document[key]
    with pytest.raises(ScheduleFileError, match=key):
        load_text(tmp_path, json.dumps(document))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data(), value=anything)
def test_no_edit_of_a_file_is_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, value: object
) -> None:
    # Any one value of the document replaced by any JSON: a set, or ScheduleFileError; never another exception.
    path = tmp_path_factory.getbasetemp() / "edited.json"
    ScheduleSet.of([even_stride(ForwardProcess.linear(5), K) for K in (1, 2, 5)]).save(path)
    edited = copy.deepcopy(json.loads(path.read_text()))
    node: Any = edited
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            node[key] = value
            break
        node = node[key]
    path.write_text(json.dumps(edited))
    with contextlib.suppress(ScheduleFileError):
        assert len(ScheduleSet.load(path)) >= 1
