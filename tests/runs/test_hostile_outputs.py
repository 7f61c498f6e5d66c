"""Output folders that somebody else has made: nothing outside of them is written, and nobody's own file is taken for ours."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from run_commands import FIND, contents, passes, said

from dpstride.cli import _run
from dpstride.runs.entries import check_entries
from dpstride.runs.lock import BusyError, Lock, ProgressError, check_free
from dpstride.training.masked.train import export_masked, train_masked
from dpstride.training.train import train

pytestmark = pytest.mark.attack("output folders that others made")


@pytest.fixture
def victim(place: Path) -> Path:
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "victim").write_text("precious")
    return place / "elsewhere" / "victim"


@pytest.mark.parametrize("name", ["report.html", "table.txt", "bits_per_dim.svg", "run.json", "heldout.safetensors"])
@pytest.mark.parametrize("there", [True, False])
def test_report_writes_and_reads_through_no_link_out_of_its_folder(
    out: Path, victim: Path, name: str, there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    target = victim if there else victim.with_name("new")
    (out / name).unlink()
    (out / name).symlink_to(target)
    before = contents(out.parent)
    assert _run(["report", "out"]) == 2
    assert f"out/{name}: a link out of the folder" in said(capsys)
    assert contents(out.parent) == before
    assert not victim.with_name("new").exists()


@pytest.mark.parametrize("verb", ["find", "report", "estimate"])
def test_a_lock_that_is_a_link_is_refused(
    out: Path, victim: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was written to: the file that it leads to lost its content."""
    words = {"find": FIND, "report": ["report", "out"]}.get(
        verb, ["estimate", "runs_model:model", "data.npy", "-o", "s"]
    )
    lock = Path("s.lock") if verb == "estimate" else out / "lock"
    lock.symlink_to(victim)
    assert _run(words) == 1
    assert "it is not a lock of dpstride" in said(capsys)
    assert victim.read_text() == "precious"
    assert lock.is_symlink()


@pytest.mark.parametrize("name", ["lock", "s.safetensors.lock"])
def test_somebodys_own_file_with_the_name_of_a_lock_stays(place: Path, name: str) -> None:
    (place / name).write_text("notes about my lock")
    with pytest.raises(ProgressError, match=rf"{name}: it is not a lock of dpstride.* Rename it"):
        Lock(place) if name == "lock" else Lock.of_file(place / "s.safetensors")
    assert (place / name).read_text() == "notes about my lock"


def test_a_lock_that_a_kill_left_behind_is_taken(place: Path) -> None:
    for left in (b"", b"process 1 on host since 2026-01-01 00:00:00 UTC"):
        (place / "lock").write_bytes(left)
        Lock(place).release()
        assert not (place / "lock").exists()


def test_a_pipe_among_the_locks_of_a_folder_is_not_waited_for(place: Path) -> None:
    os.mkfifo(place / "x.lock")
    Lock(place).release()
    os.mkfifo(place / "lock")
    check_free(place)
    with pytest.raises(ProgressError, match="it is not a lock of dpstride"):
        Lock(place)


def test_a_lock_of_another_program_is_not_taken_for_a_run(place: Path) -> None:
    with (place / "poetry.lock").open("w") as file:
        file.write("# of another program")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        Lock(place).release()
    with Lock.of_file(place / "ours"), pytest.raises(BusyError, match="ours: another run"):
        Lock(place)


@pytest.mark.parametrize("name", ["comparison.json", "run.json", "statistics.safetensors", "figures"])
@pytest.mark.parametrize("words", [FIND, ["report", "out"]], ids=["find", "report"])
def test_no_verb_waits_for_a_pipe_in_place_of_a_result(
    out: Path, name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (out / name).unlink(missing_ok=True)
    os.mkfifo(out / name)
    assert _run(words) == 2
    assert f"out/{name}: a pipe or a device in place of a file" in said(capsys)


@pytest.mark.parametrize("name", ["figures", "features"])
def test_overwriting_removes_nothing_through_a_link(
    out: Path, victim: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pictures and arrays of another folder were removed with those of the run."""
    for other in ("holiday.png", "own.safetensors"):
        victim.with_name(other).write_bytes(b"mine")
    (out / name).symlink_to(victim.parent)
    assert _run([*FIND, "--seed", "5", "--overwrite"]) == 2
    assert f"out/{name}: a link out of the folder" in said(capsys)
    assert sorted(found.name for found in victim.parent.iterdir()) == ["holiday.png", "own.safetensors", "victim"]
    assert passes() == 0


def test_links_inside_the_folder_and_other_names_are_left_alone(out: Path, victim: Path) -> None:
    (out / "data").symlink_to(victim.parent)
    (out / "figures").mkdir()
    (out / "figures" / "mine.txt").symlink_to(victim)
    (out / "table.txt").rename(out / "kept.txt")
    (out / "table.txt").symlink_to("kept.txt")
    assert _run([*FIND, "-q"]) == 0
    assert (out / "table.txt").is_symlink()


TRAININGS = {
    "images": lambda folder: train(np.zeros((4, 1, 8, 8), dtype=np.uint8), folder),  # type: ignore[arg-type]
    "text": lambda folder: train_masked("a text " * 2000, folder),
    "export of text": lambda folder: export_masked("a text " * 2000, folder),
}


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize(
    "name",
    ["checkpoint.pt", "log.json", "tensorboard", "tensorboard/events", "model", "model/dpstride.json", "model/unet"],
)
def test_training_writes_through_no_link_out_of_its_folder(place: Path, victim: Path, name: str, training: str) -> None:
    path = place / "run" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(victim)
    with pytest.raises(ValueError, match=f"{name}: a link out of the folder"):
        TRAININGS[training](place / "run")
    assert victim.read_text() == "precious"


def test_a_circle_of_links_is_a_link_out_of_the_folder_only_if_it_leaves_it(place: Path) -> None:
    (place / "a").symlink_to(place / "b")
    (place / "b").symlink_to(place / "a")
    check_entries(place, ["a", "b"])
    (place / "c").symlink_to("/")
    with pytest.raises(ValueError, match="c: a link out of the folder, to /, which"):
        check_entries(place, ["a", "c"])


# --- outputs that the command reads --------------------------------------------------------------------------------------

ESTIMATE = ["estimate", "runs_model:model", "data.npy", "-q", "--overwrite", "-o"]


@pytest.mark.parametrize(
    "words",
    [
        [*ESTIMATE, "data.npy"],
        [*ESTIMATE, "link.npy"],
        [*ESTIMATE, "out/../data.npy"],
        ["solve", "out/statistics.safetensors", "--overwrite", "-o", "out/statistics.safetensors"],
        [
            "sample",
            "runs_model:model",
            "out/schedules.json",
            "-k",
            "3",
            "-n",
            "2",
            "--overwrite",
            "-o",
            "out/schedules.json",
        ],
        ["export", "out/schedules.json", "--to", "csv", "-k", "3", "-o", "out/schedules.json"],
        ["export", "out/schedules.json", "--to", "json", "-k", "3", "-o", "out/schedules.json"],
    ],
)
def test_what_a_command_reads_is_not_written_over(
    out: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --overwrite the data were replaced by their statistics."""
    Path("link.npy").symlink_to("data.npy")
    before = contents(out.parent)
    assert _run(words) == 2
    assert f"{words[-1]}: this command reads it, and would overwrite it. Give another output" in said(capsys)
    assert contents(out.parent) == before


@pytest.mark.parametrize("output", ["photos", "photos/out", "photos/deeper/out"])
def test_results_do_not_go_among_the_data(place: Path, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures in a folder of images were images of the next run."""
    (place / "photos" / "deeper").mkdir(parents=True)
    for number, pixels in enumerate(np.zeros((4, 4, 4), np.uint8)):
        Image.fromarray(pixels).save(place / "photos" / f"{number}.png")
    before = contents(place)
    for words in (["find", "runs_model:model", "photos"], ["train", "simple", "--data", "photos"]):
        assert _run([*words, "-o", output]) == 2
        assert f"{output}: lies in photos, whose images are data" in said(capsys)
    assert contents(place) == before


@pytest.mark.parametrize("verb", ["report", "compare"])
def test_a_name_too_long_for_a_report_is_said_as_for_other_outputs(
    out: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run([verb, "out", *(["out"] if verb == "compare" else []), "-o", "x" * 300]) == 2
    assert "is a name of 300 bytes, and at most 215 can be used here. Give a shorter one" in said(capsys)
