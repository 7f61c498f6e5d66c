"""The lock of a verb: one run at a time on one output."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_commands import FIND, command, contents, environment, passes, said

from dpstride.cli import _run
from dpstride.runs.lock import BusyError, Lock

pytestmark = pytest.mark.attack("two runs on one output")


def test_a_second_find_is_refused_at_once_while_the_first_scores(place: Path, out: Path) -> None:
    """Two real processes; the second asks for other options, which once overwrote schedules.json under the first."""
    expected = contents(out)
    shutil.rmtree(out)
    (place / "slowly").touch()
    with subprocess.Popen(command(*FIND, "-q"), env=environment(place), stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        while not (place / "scoring").exists():
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.01)
        second = subprocess.run(
            command(*FIND, "--variance", "upper", "--overwrite"), env=environment(place), capture_output=True, text=True
        )
        assert first.poll() is None  # it was refused while the first worked
        assert second.returncode == 1
        owner = rf"process {first.pid} on {re.escape(socket.gethostname())} since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        assert re.search(
            rf"out: another run is working on this output \({owner}\)\. Wait for it, stop it", second.stderr
        )
        _, errors = first.communicate(timeout=300)
        assert first.returncode == 0, errors
    found = contents(place / "out")
    for name in found.keys() | expected.keys():  # run.json and the page say the command, which began with another word
        assert found.get(name) == expected.get(name), name


def test_a_killed_run_leaves_no_lock_and_the_same_command_goes_on(place: Path) -> None:
    assert _run([*FIND, "-q"]) == 0
    expected, needed = contents(place / "out"), passes()
    shutil.rmtree(place / "out")
    (place / "slowly").touch()
    with subprocess.Popen(command(*FIND, "-q"), env=environment(place)) as first:
        while not (place / "scoring").exists():
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
    assert (place / "out" / "lock").exists()  # the file, which nobody holds
    (place / "slowly").unlink()
    assert _run([*FIND, "-q"]) == 0
    assert contents(place / "out") == expected
    assert passes() < 3 * needed


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (FIND, "out"),
        (["study", "runs_model:model", "data.npy", "-o", "out"], "out"),
        (["demo", "mixture", "-o", "out"], "out"),
        (["estimate", "runs_model:model", "data.npy", "-o", "out/s.safetensors"], "out"),
        (["estimate", "runs_model:model", "data.npy", "-o", "s.safetensors"], "s.safetensors"),
        (["solve", "data.npy", "-o", "s.json"], "s.json"),
        (["sample", "runs_model:model", "data.npy", "-k", "4", "-o", "s.npy"], "s.npy"),
    ],
)
def test_every_verb_that_writes_is_refused_before_it_does_anything(
    place: Path, words: list[str], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = Lock(place / "out") if output == "out" else Lock.of_file(place / output)
    with lock:
        assert _run(words) == 1
    assert f"{output}: another run is working on this output (process {os.getpid()}" in said(capsys)
    assert passes() == 0
    assert not (place / "out").exists()


def test_files_in_one_folder_are_written_side_by_side_but_not_beside_a_run_of_the_folder(place: Path) -> None:
    first, second = Lock.of_file(place / "out" / "a"), Lock.of_file(place / "out" / "b")
    with first, second, pytest.raises(BusyError, match=r"out/(a|b): another run"):
        Lock(place / "out")
    with Lock(place / "out"), pytest.raises(BusyError, match=r"out: another run"):
        Lock.of_file(place / "out" / "a")
    assert not (place / "out").exists()
    (place / "out").mkdir()
    Lock(place / "out").release()
    assert (place / "out").is_dir()  # which somebody else has made


def test_what_cannot_be_written_is_said_before_any_work(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "file").write_text("in the way")
    estimate = ["estimate", "runs_model:model", "data.npy", "-o"]
    for words, reason in (
        ([*FIND[:4], "file/out", *FIND[5:]], r"file/out: cannot be written \((Not a directory|File exists)\)"),
        ([*FIND[:4], "/proc/dpstride/out", *FIND[5:]], r"/proc/dpstride/out: cannot be written"),
        ([*estimate, "file/s.safetensors"], r"file/s\.safetensors: cannot be written"),
    ):
        assert _run(words) == 1
        assert re.search(reason, said(capsys))
    for words in ([*FIND[:4], "x" * 300, *FIND[5:]], [*estimate, "x" * 250]):
        assert _run(words) == 2
        assert "bytes, and at most 215 can be used here. Give a shorter one" in said(capsys)
    assert passes() == 0
    assert "runs_model" not in sys.modules  # not even the model was loaded


def test_a_dry_run_claims_nothing(place: Path) -> None:
    with Lock(place / "out"):
        assert _run([*FIND, "--dry-run", "-q"]) == 0
