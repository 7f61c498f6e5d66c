"""What a folder holds of other runs: gone on with, refused all at once, or replaced."""

from __future__ import annotations

import errno
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_commands import FIND, STUDY, contents, passes, said

from dpstride import ScheduleSet, Statistics
from dpstride.cli import _run
from dpstride.runs.record import Run
from dpstride.statistics.probes import PASSES

pytestmark = pytest.mark.attack("two runs on one output")


def test_the_same_options_go_on_and_leave_the_same_bytes(place: Path, out: Path) -> None:
    before, done = contents(place / "out"), passes()
    assert _run([*FIND, "-q"]) == 0
    assert _run([*FIND, "--overwrite", "-q"]) == 0
    assert contents(place / "out") == before
    # Of two runs: probes of three rounds that choose and four that score, and spot checks, of the last of each twice.
    assert passes() - done == 2 * (7 * PASSES + 9)
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
    assert "Give another output with -o, or --overwrite to replace it" in message
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
    assert _run(["solve", statistics, "-o", "out/schedules.json", "--overwrite"]) == 0
    assert _run([*FIND, "-q"]) == 0
    (place / "out" / "run.json").unlink()
    (place / "out" / "comparison.json").unlink()
    assert _run(["solve", statistics, "-o", "out/schedules.json", "--variance", "upper", "--overwrite"]) == 0
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


def test_solve_does_not_replace_schedules_of_another_origin(
    place: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    solve = ["solve", "out/statistics.safetensors", "-o"]
    before = (out / "schedules.json").read_bytes()
    assert _run([*solve, "out/schedules.json"]) == 2  # of a run, which its comparison and page belong to
    assert "schedules.json holds other work: " in (text := said(capsys))
    assert "provenance.run (there '" in text
    assert (out / "schedules.json").read_bytes() == before
    assert _run([*solve, "mine.json"]) == 0
    first = Path("mine.json").read_bytes()
    assert _run([*solve, "mine.json"]) == 0  # the same again
    assert Path("mine.json").read_bytes() == first
    assert _run([*solve, "mine.json", "--variance", "optimal", "--decoder", "optimal"]) == 2
    assert "options.variance (there 'posterior', here 'optimal')" in said(capsys)
    assert Path("mine.json").read_bytes() == first
    assert _run([*solve, "mine.json", "--variance", "optimal", "--decoder", "optimal", "--overwrite"]) == 0
    assert ScheduleSet.load("mine.json").options["variance"] == "optimal"
    Path("mine.json").write_bytes(first[: len(first) // 2])  # damaged, so that nothing is lost
    assert _run([*solve, "mine.json"]) == 0
    assert Path("mine.json").read_bytes() == first
    Path("notes.txt").write_text("mine")
    assert _run([*solve, "notes.txt"]) == 2
    assert "notes.txt: not a file of dpstride" in said(capsys)
    assert Path("notes.txt").read_text() == "mine"
