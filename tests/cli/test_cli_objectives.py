"""`dpstride find --objective trajectory | mixed` on a model with an exact denoiser."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpstride import ScheduleSet, Statistics, elbo_costs, even_stride, sample
from dpstride.cli import _run
from dpstride.statistics.trajectory_artefact import Trajectory
from dpstride.zoo.mixture import mixture_denoiser
from mixture_model import write_mixture


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_mixture(tmp_path, "objective_model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def find(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    words = ["find", "objective_model:model", "data.npy", "-o", "out", "--samples", "20", "--heldout-samples", "16"]
    assert _run([*words, "--json", *more]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("sampler", ["ddim", "dpmpp_2m"])
def test_trajectory_schedules_are_found_scored_and_used(
    folder: Path, capsys: pytest.CaptureFixture[str], sampler: str
) -> None:
    options = ["--objective", "trajectory", "--sampler", sampler, "--trajectories", "12", "--budgets", "4,8"]
    result = find(capsys, *options)
    schedules = ScheduleSet.load("out/schedules.json")
    assert schedules.options["sampler"] == sampler
    denoiser = mixture_denoiser(T=60)
    teacher = sample(denoiser, even_stride(denoiser.process, 60), n=16, seed=1, sampler="ddim").double()
    for K in (4, 8):
        ends = sample(denoiser, schedules[K], n=16, seed=1).double()  # with the schedule's own sampler
        distance = float((ends - teacher).square().mean().sqrt())
        assert result["distance"]["dp"][str(K)]["value"] == pytest.approx(distance, rel=1e-5)  # type: ignore[index]
    assert Trajectory.load("out/trajectory.safetensors").samples == 12
    assert _run(["sample", "objective_model:model", "out/schedules.json", "-k", "4", "-n", "3", "-o", "ends.npy"]) == 0
    capsys.readouterr()
    expected = sample(denoiser, schedules[4], n=3, seed=0).numpy()
    assert np.allclose(np.load("ends.npy"), expected, rtol=1e-5, atol=1e-6)
    # The same command again takes everything from the files.
    before = (folder / "out" / "endpoints.json").stat().st_mtime_ns
    assert find(capsys, *options)["distance"] == result["distance"]
    assert (folder / "out" / "endpoints.json").stat().st_mtime_ns == before


def test_mixed_schedules_lie_between_the_two_ends(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--objective", "mixed", "--lambda", "5", "--trajectories", "12", "--budgets", "4,8", "--every-step"]
    result = find(capsys, *options)
    schedules = ScheduleSet.load("out/schedules.json")
    assert schedules.options["lambda"] == 5.0
    front = json.loads((folder / "out" / "front.json").read_text(encoding="utf-8"))["front"]
    assert front == result["front"]
    assert (folder / "out" / "front.png").stat().st_size > 1000
    assert (folder / "out" / "report.html").stat().st_size > 1000
    heldout = elbo_costs(Statistics.load("out/heldout.safetensors"))
    for K in ("4", "8"):
        (mine,) = [p for p in front[K] if p["low"] <= 5.0 and (p["high"] is None or p["high"] > 5.0)]
        assert mine["steps"] == list(schedules[int(K)].steps)
        assert mine["bpd"] == pytest.approx(schedules[int(K)].bpd)
        assert mine["heldout_bpd"] == pytest.approx(heldout.bpd(float(heldout.step_nats(mine["steps"]).sum())))
        bpd = [point["bpd"] for point in front[K]]
        assert bpd == sorted(bpd)
    again = [
        "find",
        "objective_model:model",
        "data.npy",
        "-o",
        "out",
        "--samples",
        "20",
        "--heldout-samples",
        "16",
        *options,
    ]
    for words in (again, ["report", "out"]):
        assert _run(words) == 0
        assert "best for neither alone" in capsys.readouterr().out


def test_bad_objectives_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["find", "objective_model:model", "data.npy", "-o", "out", "--objective"]
    assert _run([*words, "fid"]) == 2
    assert "'elbo', 'samples', 'trajectory', 'mixed'" in capsys.readouterr().err
    assert _run([*words, "trajectory", "--trajectories", "4", "--budgets", "99"]) == 2
    assert "between 1 and T = 60" in capsys.readouterr().err
    assert _run([*words, "trajectory", "--teacher-steps", "20", "--budgets", "30"]) == 2
    assert "--budgets must be at most 20, the teacher's steps, not 30" in capsys.readouterr().err
    assert not (folder / "out").exists()  # refused before any work


def test_a_dry_run_counts_the_teachers_evaluations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--objective", "trajectory", "--trajectories", "10", "--budgets", "4,8", "--dry-run"]
    # 60 steps of 10 noises; 8 probes of ten levels, half the steps each; 16 noises along the teacher and 4 strides
    expected = find(capsys, *options)
    assert expected["evaluations"] == 600 + 8 * 10 * 30 + 16 * (60 + 4 * 12)
    assert expected["seconds"] > 0.0  # type: ignore[operator]
    assert not (folder / "out").exists()


def test_results_of_two_objectives_are_not_mixed_in_one_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find(capsys, "--budgets", "4,8")
    before = (folder / "out" / "schedules.json").read_bytes()
    words = ["find", "objective_model:model", "data.npy", "-o", "out", "--samples", "20", "--heldout-samples", "16"]
    for more in (["trajectory"], ["mixed", "--lambda", "2"]):
        assert _run([*words, "--objective", *more]) == 2
        said = capsys.readouterr().err
        assert "out holds other work: run.json: objective (there 'elbo', here" in said
        assert f"here {more[0]!r})" in said
        assert "Give another output with -o, or --overwrite" in said
    assert (folder / "out" / "schedules.json").read_bytes() == before
    trajectory = ["--objective", "trajectory", "--trajectories", "6", "--budgets", "4"]
    assert _run([*words[:4], "other", *words[5:], *trajectory]) == 0
    assert _run([*words[:4], "other", *words[5:], *trajectory, "--sampler", "dpmpp_2m"]) == 2
    assert "options.sampler (there 'ddim', here 'dpmpp_2m')" in capsys.readouterr().err
    assert _run(["report", "other"]) == 2
    assert "See endpoints.json for how far" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--lambda", "3"], "--lambda is for --objective mixed"),
        (["--sampler", "dpmpp_2m"], "--sampler is for --objective samples or trajectory"),
        (["--objective", "trajectory", "--lambda", "3"], "--lambda is for --objective mixed"),
        (["--objective", "mixed", "--sampler", "ddim"], "--sampler is for --objective samples or trajectory"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], text: str
) -> None:
    assert _run(["find", "objective_model:model", "data.npy", "-o", "out", *options]) == 2
    assert text in capsys.readouterr().err


def test_paths_that_miss_their_prediction_are_noted() -> None:
    from dpstride.evaluate.endpoints import EndpointDistance
    from dpstride.finding.trajectory import _trajectory_notes

    far, near = EndpointDistance(0.2, 0.01, 16), EndpointDistance(0.1, 0.01, 16)
    assert _trajectory_notes({("even", 8): far, ("dp", 8): near}, {8: 0.11}, [8]) == []
    notes = _trajectory_notes({("even", 8): near, ("dp", 8): far}, {8: 0.05}, [8])
    assert notes[0].startswith("At 8 steps the even stride ends closer")
    assert "0.2000, but 0.0500 was predicted" in notes[1]
    assert "more trajectories help little" in notes[2]
