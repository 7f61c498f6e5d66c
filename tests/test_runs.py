"""One folder, one run: the lock of a verb, what a folder holds of other runs, and files that belong together."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstride.cli.report
from dpstride import ScheduleSet, Statistics
from dpstride.cli import _run
from dpstride.evaluate.comparison import Comparison
from dpstride.report.page.saved import Saved
from dpstride.runs.identity import differences, run_id
from dpstride.runs.lock import BusyError, Lock, ProgressError, check_free
from dpstride.runs.record import Run
from dpstride.statistics.probes import PASSES
from dpstride.zoo.mixture import mixture_data

pytestmark = pytest.mark.attack("two runs on one output")

# The exact denoiser of a mixture: counts what it is asked, and waits at the first pass on held-out data when told to.
MODEL = """
import time
from pathlib import Path

import dpstride
from dpstride.zoo.mixture import mixture_denoiser

def made(T):
    inner = mixture_denoiser(T=T)
    def network(x, t):
        with open("passes", "ab", buffering=0) as file:
            file.write(b"1\\n")
        if Path("out/schedules.json").exists() and Path("slowly").exists():
            Path("scoring").touch()
            time.sleep(0.05)
        return inner.network(x, t)
    return dpstride.Denoiser(network, inner.process, predicts=inner.predicts, clip=inner.clip, shape=inner.shape, name="m")

def model():
    return made(40)

def longer():
    return made(50)
"""
FIND = [
    "find",
    "runs_model:model",
    "data.npy",
    "-o",
    "out",
    "--samples",
    "12",
    "--heldout-samples",
    "12",
    "--budgets",
    "4,8",
]


def write_inputs(folder: Path) -> None:
    (folder / "runs_model.py").write_text(MODEL)
    np.save(folder / "data.npy", mixture_data(30, seed=0).numpy())
    np.save(folder / "other.npy", mixture_data(30, seed=5).numpy())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which FIND has run."""
    folder = tmp_path_factory.mktemp("done")
    write_inputs(folder)
    subprocess.run(command(*FIND, "-q"), cwd=folder, env=environment(folder), check=True, capture_output=True)
    return folder / "out"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("runs_model", None)
    yield tmp_path
    sys.modules.pop("runs_model", None)


@pytest.fixture
def out(place: Path, done: Path) -> Path:
    """A copy of it."""
    shutil.copytree(done, place / "out")
    return place / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def passes() -> int:
    return len(Path("passes").read_bytes()) // 2 if Path("passes").exists() else 0


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "dpstride", *words]


def environment(place: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{Path(dpstride.__file__).parents[1]}:{place}", "OMP_NUM_THREADS": "1"}


# --- the lock of a verb ----------------------------------------------------------------------------------------------


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


# --- what a folder holds of other runs -------------------------------------------------------------------------------


def test_the_same_options_go_on_and_leave_the_same_bytes(place: Path, out: Path) -> None:
    before, done = contents(place / "out"), passes()
    assert _run([*FIND, "-q"]) == 0
    assert _run([*FIND, "--overwrite", "-q"]) == 0
    assert contents(place / "out") == before
    # Of two runs: probes of three rounds that choose and one that scores, and spot checks, of the last of the three twice.
    assert passes() - done == 2 * (4 * PASSES + 5)
    names = {
        name: json.loads(before[name]) for name in ("run.json", "comparison.json", "adaptive.json", "schedules.json")
    }
    ids = {names["schedules.json"]["provenance"]["run"], *(document.get("run") for document in names.values())} - {None}
    assert ids == {Run.load("out/run.json").id}


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        (["--variance", "upper"], [r"run\.json: options\.variance \(there 'posterior', here 'upper'\)"]),
        (
            ["--tolerance", "0.2", "--max-budget", "20"],
            [r"run\.json: options\.max_budget \(there 40, here 20\), options\.tol"],
        ),
        (["--every-step"], [r"options\.every_step \(there None, here True\)"]),
        (
            ["--seed", "3"],
            [
                r"run\.json: seed \(there 0, here 3\), data\.fingerprint",
                r"; statistics\.safetensors: seed \(there 0, here 3\)",
                r"; heldout\.safetensors: seed \(there 1, here 4\)",
            ],
        ),
        (["--objective", "trajectory"], [r"objective \(there 'elbo', here 'trajectory'\)"]),
    ],
)
def test_other_options_are_refused_all_at_once_and_change_nothing(
    place: Path, more: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run([*FIND, "-q"]) == 0
    before, done = contents(place / "out"), passes()
    assert _run([*FIND, *more]) == 2
    message = said(capsys)
    assert "out holds other work:" in message
    assert "Give another output with -o, or --overwrite, which replaces these" in message
    for line in lines:
        assert re.search(line, message), message
    assert contents(place / "out") == before
    assert passes() == done


def test_overwriting_uses_statistics_of_the_same_model_data_and_seed_again(place: Path) -> None:
    assert _run([*FIND, "--every-step", "-q"]) == 0
    (place / "out" / "notes.txt").write_text("mine")
    done = passes()
    assert _run([*FIND, "--every-step", "--variance", "upper", "--overwrite", "-q"]) == 0
    assert passes() - done == 2 * (
        PASSES + 1
    )  # another variance asks nothing of the network but probes and spot checks
    found = contents(place / "out")
    assert found.pop("notes.txt") == b"mine"
    assert _run([*FIND[:4], "fresh", *FIND[5:], "--every-step", "--variance", "upper", "-q"]) == 0
    fresh = contents(place / "fresh")
    assert found.keys() == fresh.keys()
    for name in found.keys() - {"run.json", "report.html"}:  # which say the command
        assert found[name] == fresh[name], name


LAZY = """
from pathlib import Path

import dpstride, torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4, dtype=torch.float64)
        torch.nn.init.constant_(self.layer.weight, float(Path("weight").read_text()))

    def forward(self, x, time):
        if not hasattr(self, "table"):  # as networks with tables of positions do
            self.register_buffer("table", torch.arange(4.0, dtype=torch.float64), persistent=False)
        return 0.01 * (self.layer(x) + self.table)

def model():
    torch.manual_seed(0)
    return dpstride.Denoiser(Network(), dpstride.ForwardProcess.linear(T=12), predicts="x0", clip=None)
"""


@pytest.mark.parametrize("verb", ["find", "estimate"])
def test_a_network_that_makes_tensors_at_its_first_pass_is_known_again(
    place: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "lazy_model.py").write_text(LAZY)
    (place / "weight").write_text("0.1")
    np.save("rows.npy", np.random.default_rng(0).normal(size=(16, 4)))
    words = [verb, "lazy_model:model", "rows.npy", "-o", f"{verb}.safetensors", "--data-range", "continuous", "-q"]
    assert _run(words) == 0
    assert _run(words) == 0
    (place / "weight").write_text("0.2")
    assert _run(words) == 2
    assert "holds other work" in said(capsys)
    assert _run([*words, "--overwrite"]) == 0
    sys.modules.pop("lazy_model")


@pytest.mark.parametrize("change", ["model", "data", "verb", "objective"])
def test_overwriting_leaves_nothing_of_the_other_run(
    place: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [*FIND, "-q"] if change != "verb" else [*STUDY, "-q"]
    assert _run(first) == 0
    second = {
        "model": [*FIND[:1], "runs_model:longer", *FIND[2:]],
        "data": [*FIND[:2], "other.npy", *FIND[3:]],
        "verb": FIND,
        "objective": [*FIND, "--objective", "mixed", "--trajectories", "4"],
    }[change]
    capsys.readouterr()
    assert _run([*second, "-q"]) == 2
    assert "out holds other work" in said(capsys)
    assert _run([*second, "--overwrite", "-q"]) == 0
    assert _run([*second[:4], "fresh", *second[5:], "-q"]) == 0
    found, fresh = contents(place / "out"), contents(place / "fresh")
    assert found.keys() == fresh.keys()
    for name in found.keys() - {"run.json", "report.html"}:
        assert found[name] == fresh[name], name


STUDY = [
    "study", "runs_model:model", "data.npy", "-o", "out", "--samples", "4", "-k", "4", "--choosing-samples", "12",
    "--heldout-samples", "12", "--features", "none",
]  # fmt: skip


def test_a_study_may_draw_more_but_not_otherwise(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run([*STUDY, "-q"]) == 0
    first = contents(place / "out")
    more = [*STUDY[:5], *STUDY[7:], "--samples", "6", "-q"]
    assert _run(more) == 0
    assert contents(place / "out")["schedules.json"] == first["schedules.json"]
    done = passes()
    assert _run([*STUDY, "--sampler", "ddim"]) == 2
    assert "run.json: options.sampler (there 'ancestral', here 'ddim')" in said(capsys)
    assert passes() == done
    assert _run([*STUDY, "--sampler", "ddim", "--overwrite", "-q"]) == 0


def test_a_run_that_came_to_nothing_is_no_conflict(place: Path) -> None:
    (place / "out").mkdir()
    Run.of(["find"], "m", "d", None, {"seed": 5}).save(place / "out")
    assert _run([*FIND, "-q"]) == 0


def test_folders_without_a_record_are_judged_by_their_schedules(
    place: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the single verbs leave them, and version 0.1."""
    for name in ("run.json", "comparison.json", "adaptive.json"):
        (place / "out" / name).unlink()
    statistics = "out/statistics.safetensors"
    assert _run(["solve", statistics, "-o", "out/schedules.json"]) == 0
    assert _run([*FIND, "-q"]) == 0
    (place / "out" / "run.json").unlink()
    (place / "out" / "comparison.json").unlink()
    assert _run(["solve", statistics, "-o", "out/schedules.json", "--variance", "upper"]) == 0
    assert _run(FIND) == 2
    assert "schedules.json: variance (there 'upper', here 'posterior')" in said(capsys)


def test_a_file_of_somebody_else_is_not_written_over(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "out").mkdir()
    (place / "out" / "schedules.json").write_text('{"trains": ["8:15", "9:15"]}')
    (place / "out" / "heldout.safetensors").write_text("a list of those held out")
    assert _run(FIND) == 2
    message = said(capsys)
    assert (
        "schedules.json: not a file of dpstride; heldout.safetensors: not a file of dpstride. Give another" in message
    )
    assert _run(["estimate", *FIND[1:3], "-o", "out/heldout.safetensors"]) == 2
    assert "out/heldout.safetensors holds other work" in said(capsys)
    assert passes() == 0
    assert _run([*FIND, "--overwrite", "-q"]) == 0


NAMES = (
    "schedules.json",
    "comparison.json",
    "adaptive.json",
    "run.json",
    "statistics.safetensors",
    "heldout.safetensors",
)


@pytest.mark.filterwarnings("ignore:.*computed again:UserWarning")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", [0, -7])
def test_a_damaged_file_that_is_written_again_is_no_reason_to_refuse(
    place: Path, out: Path, name: str, kept: int
) -> None:
    before = contents(place / "out")
    path = place / "out" / name
    path.write_bytes(path.read_bytes()[:kept])
    assert _run([*FIND, "-q"]) == 0
    assert contents(place / "out") == before


def test_statistics_of_other_work_are_refused_or_replaced(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["estimate", "runs_model:model", "data.npy", "-o", "s.safetensors", "--samples"]
    assert _run([*words, "4", "-q"]) == 0
    done = passes()
    assert _run([*words, "5"]) == 2
    message = said(capsys)
    assert "s.safetensors holds other work: s.safetensors: data.samples (there 4, here 5)" in message
    assert passes() == done
    assert _run([*words, "5", "--overwrite", "-q"]) == 0
    assert Statistics.load("s.safetensors").samples == 5


def test_unfinished_samples_of_another_seed_are_refused_or_given_up(
    place: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import dpstride.report.images

    words = ["sample", "runs_model:model", "out/schedules.json", "-k", "4", "-n", "3", "-o", "s.npy", "-q"]

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(dpstride.report.images, "save_samples", full)
        assert _run(words) == 1
    assert (place / "s.npy.progress").is_dir()
    assert _run([*words, "--seed", "1"]) == 2
    assert "s.npy.progress holds other work: seed" in said(capsys)
    assert _run([*words, "--seed", "1", "--overwrite"]) == 0
    assert not (place / "s.npy.progress").exists()
    assert np.load("s.npy").shape[0] == 3


# --- a full disk at every file ---------------------------------------------------------------------------------------


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
    assert "third: holds results of its own" in said(capsys)
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
    "name", ["comparison.json", "adaptive.json", "schedules.json", "heldout.safetensors", "run.json"]
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
    assert "of another run than run.json" in message
    assert (name in message.partition(" of another")[0]) or name == "run.json"
    assert "Run the command that wrote them again." in message


# --- its parts -------------------------------------------------------------------------------------------------------


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
