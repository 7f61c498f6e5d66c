"""Names and records of runs, and locks by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpstride import ScheduleSet
from dpstride.cli import _run
from dpstride.evaluate.comparison import Comparison
from dpstride.report.page.saved import Saved
from dpstride.runs.identity import differences, run_id
from dpstride.runs.lock import BusyError, Lock, ProgressError, check_free
from dpstride.runs.record import Run

pytestmark = pytest.mark.attack("two runs on one output")


def test_names_of_runs_depend_on_what_they_are_and_nothing_else() -> None:
    identity = {"seed": 0, "model": {"fingerprint": "a", "clip": [-1.0, 1.0]}}
    assert run_id(identity) == run_id(json.loads(json.dumps(dict(reversed(identity.items())))))
    assert run_id(identity) != run_id(identity | {"seed": 1})
    assert differences(identity, identity) == []
    assert differences(identity, {"model": {"fingerprint": "b", "clip": (-1.0, 1.0)}, "seed": 2}) == [
        "seed (there 0, here 2)",
        "model.fingerprint (there 'a', here 'b')",
    ]


def test_a_lock_of_hostile_text_is_shown_harmlessly(tmp_path: Path) -> None:
    with Lock(tmp_path / "out") as lock:
        lock.path.write_text("process 1\x1b[2J\nError: forged")
        with pytest.raises(BusyError, match=r"\(process 1\\x1b\[2J\\nError: forged\)"):
            check_free(tmp_path / "out")


def test_records_and_results_of_version_0_1_are_read(place: Path, out: Path) -> None:
    for name, parts in (("run.json", ("run", "identity")), ("comparison.json", ("run",)), ("adaptive.json", ("run",))):
        path = place / "out" / name
        document = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in document.items() if key not in parts}))
    schedules = ScheduleSet.load("out/schedules.json")
    provenance = {name: value for name, value in schedules.provenance.items() if name != "run"}
    ScheduleSet(
        schedules.process, schedules.entries, options=schedules.options, fitted=schedules.fitted, provenance=provenance
    ).save("out/schedules.json")
    assert Saved.read("out").run is not None
    assert Run.load("out/run.json").id is None
    assert Comparison.load("out/comparison.json").run is None
    assert _run(["report", "out"]) == 0


def test_an_unwritable_output_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProgressError, match=r"out: cannot be written"):
        Lock(tmp_path / "file" / "out")
