"""A full disk at every file, and reports of folders that are written, read-only or mixed."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_commands import FIND, STUDY, contents, said

import dpstride.cli.report
from dpstride.cli import _run
from dpstride.runs.folder import claimed
from dpstride.runs.lock import Lock, ProgressError
from dpstride.runs.writing import write_json

pytestmark = pytest.mark.attack("two runs on one output")


def test_a_full_disk_at_any_file_names_it_and_loses_nothing(
    place: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fail at the first file, the second, …, until the run comes to its end; each time the same command goes on."""
    expected = contents(place / "out")
    shutil.rmtree(place / "out")
    works = os.replace
    for number in range(100):
        count = iter(range(1000))

        def sometimes(*arguments: Any, count: Iterator[int] = count, number: int = number) -> None:
            if next(count) == number:
                raise OSError(errno.ENOSPC, "No space left on device")
            works(*arguments)

        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", sometimes)
            code = _run([*FIND, "-q"])
        there = contents(place / "out") if (place / "out").exists() else {}
        for name, content in there.items():
            assert ".progress" in name or content == expected[name], name
        if code == 0:
            break
        assert code == 1
        assert re.search(r"out/?\S*: (finished work )?could not be written \(No space left on device\)", said(capsys))
    assert number >= 10  # files
    assert contents(place / "out") == expected


# --- report ----------------------------------------------------------------------------------------------------------


def test_report_waits_for_a_run_a_little_and_then_names_it(
    place: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    lock = Lock(place / "out")
    threading.Timer(0.3, lock.release).start()
    assert _run(["report", "out"]) == 0
    monkeypatch.setattr(dpstride.cli.report, "PATIENCE", 0.2)
    with Lock(place / "out"):
        for more in ([], ["-o", "elsewhere"]):
            assert _run(["report", "out", *more]) == 1
            assert f"out: another run is working on this output (process {os.getpid()}" in said(capsys)
    assert not (place / "elsewhere").exists()


def test_report_writes_elsewhere_what_it_would_write_here(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run([*STUDY, "-q"]) == 0
    before = contents(place / "out")
    assert _run(["report", "out", "-o", "elsewhere"]) == 0
    assert contents(place / "out") == before
    found = contents(place / "elsewhere")
    assert {"report.html", "tables.md", "figures/bits_per_dim.svg", "figures/samples.png"} <= found.keys()
    assert all(before[name] == content for name, content in found.items())
    assert _run([*FIND[:4], "third", *FIND[5:], "-q"]) == 0
    assert _run(["report", "out", "-o", "third"]) == 2
    assert "third: already holds results" in said(capsys)
    assert _run(["report", "nowhere"]) == 2
    assert "nowhere: there is no such folder" in said(capsys)
    assert not (place / "nowhere").exists()


def test_a_read_only_folder_is_reported_elsewhere(
    place: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the kernel's answer is played."""
    works = os.open

    def read_only(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_RDWR) and Path(path).resolve().is_relative_to(place / "out"):
            raise OSError(errno.EROFS, "Read-only file system")
        return works(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", read_only)
    assert _run(["report", "out"]) == 1
    message = said(capsys)
    assert "out: cannot be written (Read-only file system)" in message
    assert "To write the report elsewhere, name a folder with -o." in message
    assert _run(["report", "out", "-o", "elsewhere"]) == 0
    assert (place / "elsewhere" / "report.html").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("comparison.json", "adaptive.json", "schedules.json"),
        *("heldout.safetensors", "statistics.safetensors", "run.json"),
    ],
)
def test_report_names_the_files_of_another_run(
    place: Path, out: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another seed gives files of the same grid and budgets, which nothing but their run tells apart."""
    assert _run([*FIND[:4], "other", *FIND[5:], "--seed", "1", "-q"]) == 0
    shutil.copy(place / "other" / name, place / "out" / name)
    capsys.readouterr()
    assert _run(["report", "out"]) == 2
    message = said(capsys)
    assert "from another run than run.json" in message
    assert (name in message.partition(" of another")[0]) or name == "run.json"
    assert "Run the command that wrote them again." in message


def test_report_names_what_another_run_said_of_the_model(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(out / "check.json", {"format": "dpstride-check-1", "run": "0" * 16})
    assert _run(["report", "out"]) == 2
    assert "check.json is from another run than run.json" in said(capsys)


@pytest.mark.parametrize("again", [True, False])
def test_a_folder_that_is_removed_under_way_is_said_at_the_end(place: Path, again: bool) -> None:
    """What was written before was gone, run.json among it, and the run said that all of it was there."""

    def work() -> None:
        with claimed(Path("out")):
            write_json("out/run.json", {})
            shutil.rmtree("out")
            if again:
                write_json("out/schedules.json", {})

    with pytest.raises(ProgressError, match=r"out: the folder was removed or exchanged .* Run the same command again"):
        work()
