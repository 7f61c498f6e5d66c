"""`dpstride tune` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpstride import ScheduleSet
from dpstride.cli import _run
from mixture_model import write_mixture

COMMAND = (
    "tune", "tuned_model:model", "data.npy", "-o", "out", "--budgets", "2,4", "--samples", "12", "--race-samples", "8",
    "--reference-steps", "20",
)  # fmt: skip
SAMPLER = (
    "def solver(denoiser, schedule, noise):\n"
    "    x, process = noise, denoiser.process\n"
    "    for t, s in zip(schedule.steps, schedule.steps[1:]):\n"
    "        x0 = denoiser(x, t).x0_hat\n"
    "        x = process.f[s] * x0 + process.g[s] * (x - process.f[t] * x0) / process.g[t]\n"
    "    return x\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_mixture(tmp_path, "tuned_model", T=40, samples=100)
    (tmp_path / "my_solver.py").write_text(SAMPLER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_it_answers_in_its_first_line_and_writes_schedules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run([*COMMAND, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("With DDIM, ")
    assert "as close to real data as 20 even steps" in said.splitlines()[0]
    assert "energy distance · 1,000" in said
    assert ScheduleSet.load("out/schedules.json").budgets == [1, 2, 3, 4]
    assert _run(["sample", "tuned_model:model", "out/schedules.json", "-k", "3", "-n", "4", "-o", "s.png"]) == 0


def test_a_sampler_of_ones_own_by_name_json_and_dry_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*COMMAND, "--sampler", "my_solver:solver", "--json"]
    assert _run([*command, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"race", "finish", "seconds"}
    assert not (folder / "out" / "run.json").exists()
    assert _run(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert "With solver, " in result["answer"]
    assert result["evaluations"]["race"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--sampler", "runge"],
            "--sampler must be ancestral, ddim, dpmpp_2m, heun or package.module:function, not 'runge'",
        ),
        (["--sampler", "ancestral", "--eta", "0.5"], "--eta is the noise of"),
        (["--budgets", "2,50"], "from 1 to 40 (1 to T = 40 steps), not 50"),
        (["--evaluations", "50"], "50 network evaluations are too few"),
        (["--features", "nothing"], "features must be fashion, inception"),
    ],
)
def test_wrong_options_exit_with_2_before_any_work(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert _run([*COMMAND, *options]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out" / "run.json").exists()


def test_find_for_samples_with_race_does_what_tune_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = ["tuned_model:model", "data.npy", "-o", "out", "--budgets", "2,4", "--sampler", "ddim", "--json"]
    assert _run(["find", *shared, "--for", "samples", "--race", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"race", "finish", "seconds"}
    assert _run(["find", *shared, "--for", "samples", "--race"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (folder / "out" / "race.json").is_file()
    assert found["sampler"] == "DDIM"
    assert [heat["budget"] for heat in found["heats"]] == [2, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--race"], "--race measures samples, but these paths are for elbo"),
        (["--race", "--objective", "trajectory"], "--race measures samples, but these paths are for trajectory"),
        (["--race", "--for", "samples", "--samples", "8"], "--samples has no meaning with --race"),
        (["--race", "--for", "samples", "--evenness", "0.2"], "--evenness has no meaning with --race"),
        (["--race", "--for", "samples", "--every-step"], "--every-step has no meaning with --race"),
    ],
)
def test_what_a_race_of_find_does_not_take_exits_with_2(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert _run(["find", "tuned_model:model", "data.npy", "-o", "out", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (folder / "out" / "run.json").exists()
