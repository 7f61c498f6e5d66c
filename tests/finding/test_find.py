"""`dpstride.find`: the command's job without a terminal, with the same files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import dpstride
from dpstride.cli import _run
from dpstride.finding.job import Request, check_uses
from dpstride.options import Objective
from dpstride.runs.folder import OtherRunError
from dpstride.runs.lock import BusyError, Lock
from dpstride.zoo.mixture import mixture_data, mixture_denoiser
from mixture_model import write_mixture

SIZES = {"samples": 20, "heldout_samples": 16}
WORDS = ["--samples", "20", "--heldout-samples", "16"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_mixture(tmp_path, "found_model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def results_of(folder: Path) -> dict[str, bytes]:
    """Every file but run.json and the page, which hold the command that was typed."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.name not in ("run.json", "report.html", "lock")
    }


@pytest.mark.parametrize("objective", ["mixed", "trajectory"])
def test_trajectories_take_the_shape_of_the_data_where_the_model_does_not_say_it(
    objective: Objective, folder: Path
) -> None:
    (folder / "shapeless_model.py").write_text(
        "import found_model\n\n\ndef model():\n    denoiser = found_model.model()\n    denoiser.shape = None\n"
        "    return denoiser\n"
    )
    found = dpstride.find(
        "shapeless_model:model",
        "data.npy",
        "out",
        objective=objective,
        budgets=(4,),
        trajectories=4,
        progress=False,
        **SIZES,
    )
    assert found.schedules[4].budget == 4


@pytest.mark.parametrize("objective", ["elbo", "mixed", "trajectory"])
def test_it_writes_what_the_command_writes(objective: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few, typed = ({}, []) if objective == "elbo" else ({"trajectories": 6}, ["--trajectories", "6"])
    found = dpstride.find(
        "found_model:model", "data.npy", "library", budgets=(4, 8), objective=objective, progress=False, **SIZES, **few
    )
    words = ["find", "found_model:model", "data.npy", "-o", "command", "--budgets", "4,8", "--objective", objective]
    assert _run([*words, *typed, *WORDS, "--json", "-q"]) == 0
    library, command = results_of(folder / "library"), results_of(folder / "command")
    assert library.keys() == command.keys()
    for name, content in library.items():
        assert content == command[name], name
    printed = json.loads(capsys.readouterr().out)
    said = json.loads(json.dumps(found.details))
    assert said.pop("files") == [name.replace("command", "library") for name in printed.pop("files")]
    assert said == printed
    records = [json.loads((folder / name / "run.json").read_text("utf-8")) for name in ("library", "command")]
    assert records[0]["run"] == records[1]["run"]
    assert records[0]["command"].startswith("dpstride.find('found_model:model', 'data.npy', samples=20,")


def test_the_result_holds_what_the_files_hold(folder: Path) -> None:
    said: list[str] = []
    found = dpstride.find("found_model:model", "data.npy", "out", say=said.append, progress=False, **SIZES)
    assert isinstance(found, dpstride.Found)
    assert found.schedules[8].steps == dpstride.ScheduleSet.load("out/schedules.json")[8].steps
    assert found.comparison is not None
    assert found.comparison.sentence() == found.answer
    assert found.answer in repr(found)
    assert found.adaptive is not None
    assert found.adaptive.to_dict() == found.schedules.provenance["adaptive"]
    assert all(path.is_file() for path in found.files)
    assert found.files[0] == Path("out/report.html")
    assert found.answer in str(found)
    assert said[0].startswith("Model    found_model:model: predicts x0")
    assert any("evaluations in" in line for line in said)
    assert not (folder / "out" / "lock").exists()


def test_objects_do_as_well_as_names(folder: Path) -> None:
    data = torch.from_numpy(np.load("data.npy"))
    named = dpstride.find("found_model:model", "data.npy", "named", tolerance=None, progress=False, **SIZES)
    given = dpstride.find(mixture_denoiser(T=60), data, "given", tolerance=None, progress=False, **SIZES)
    assert given.adaptive is None
    for K in (1, 8, 60):
        assert given.schedules[K].steps == named.schedules[K].steps
        assert given.schedules[K].bpd == named.schedules[K].bpd
    assert given.comparison is not None
    assert named.comparison is not None
    assert given.comparison.curves == named.comparison.curves
    other = dpstride.find(mixture_denoiser(T=60), data, "other", data, progress=False, **SIZES)
    assert "samples that score the paths" in other.notes[-1]


def test_samples_are_drawn_where_they_are_asked_for(tmp_path: Path) -> None:
    data = mixture_data(40, seed=0)
    found = dpstride.find(mixture_denoiser(T=20), data, tmp_path, tolerance=None, pictures=5, progress=False)
    drawn = {path.name for path in found.files if path.name.startswith("samples_")}
    assert drawn == {"samples_5_steps.png", "samples_5_steps_even.png", "samples_5_steps_quadratic.png"}


def test_wrong_requests_are_refused_before_the_work(folder: Path) -> None:
    def find(**options: object) -> None:
        dpstride.find("found_model:model", "data.npy", "out", progress=False, **options)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"find has no option 'tolerence'\. .*tolerance"):
        find(tolerence=0.1)
    with pytest.raises(
        ValueError, match="objective must be one of 'elbo', 'samples', 'trajectory', 'mixed', not 'fid'"
    ):
        find(objective="fid")
    with pytest.raises(ValueError, match="weight is for objective mixed; with elbo it has no effect"):
        find(weight=3.0)
    with pytest.raises(ValueError, match="skip_nonfinite is for objective elbo or samples; with mixed"):
        find(objective="mixed", skip_nonfinite=True)
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        find(batch_size=0)
    with pytest.raises(ValueError, match="max_budget must be a whole number between 1 and T = 60, not 61"):
        find(max_budget=61)
    assert not (folder / "out").exists()


def test_another_run_is_neither_mixed_nor_disturbed(folder: Path) -> None:
    dpstride.find("found_model:model", "data.npy", "out", tolerance=None, progress=False, **SIZES)
    before = (folder / "out" / "schedules.json").read_bytes()
    with pytest.raises(OtherRunError, match=r"run\.json: .*seed \(there 0, here 1\)"):
        dpstride.find("found_model:model", "data.npy", "out", tolerance=None, seed=1, progress=False, **SIZES)
    assert (folder / "out" / "schedules.json").read_bytes() == before
    with Lock(folder / "out"), pytest.raises(BusyError, match="another run is working on this output"):
        dpstride.find("found_model:model", "data.npy", "out", tolerance=None, progress=False, **SIZES)
    again = dpstride.find(
        "found_model:model", "data.npy", "out", tolerance=None, seed=1, overwrite=True, progress=False, **SIZES
    )
    assert again.schedules.provenance["seed"] == 1


def test_options_belong_to_the_objectives_that_use_them() -> None:
    check_uses(Request().objective, ["samples", "skip_nonfinite"])
    check_uses("trajectory", ["sampler", "trajectories", "teacher_steps"])
    with pytest.raises(
        ValueError, match="--sampler is for --objective samples or trajectory; with mixed it has no effect"
    ):
        check_uses("mixed", ["sampler"], lambda name: f"--{name}")


# --- the check is part of a run ---------------------------------------------------------------------------------------------


@pytest.mark.attack("two runs on one output")
def test_a_run_without_the_check_is_another_run_whose_statistics_are_the_same(folder: Path) -> None:
    """Notes of a result depended on which of the two had run last, under one name."""
    passes: list[int] = []
    denoiser = mixture_denoiser(T=40)
    network = denoiser.network

    def counting(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        passes.append(len(x))
        return network(x, time)

    def run(output: str, check: bool, overwrite: bool = False) -> dpstride.finding.job.Found:
        model = dpstride.Denoiser(
            counting, denoiser.process, predicts="flow", clip=None, shape=denoiser.shape, name="m"
        )
        return dpstride.find(
            model, mixture_data(40, 0), output, budgets=(4,), progress=False, check=check, overwrite=overwrite, **SIZES
        )

    noted = run("out", True).notes
    passes.clear()
    assert run("fresh", False).notes != noted
    needed = sum(passes)
    with pytest.raises(OtherRunError, match=r"options\.check \(there True, here False\)"):
        run("out", False)
    passes.clear()
    run("out", False, overwrite=True)
    # Statistics of the same numbers are used again: 12 or more rows of 20 and of 16 samples.
    assert sum(passes) <= needed - 12 * (20 + 16) + 2 * 16 * 4  # places computed again, in a few rounds
    assert results_of(folder / "out") == results_of(folder / "fresh")


@pytest.mark.parametrize("objective", ["elbo", "mixed"])
def test_notes_on_the_data_and_the_model_are_in_every_result(objective: str, folder: Path) -> None:
    """With the mixed objective they were dropped."""
    few = {} if objective == "elbo" else {"trajectories": 4}
    denoiser, data = mixture_denoiser(T=20), mixture_data(20, 0)
    model = dpstride.Denoiser(denoiser.network, denoiser.process, predicts="flow", clip=None, shape=denoiser.shape)
    found = dpstride.find(
        model,
        data,
        "out",
        data,
        samples=20,
        heldout_samples=8,
        budgets=(4,),
        objective=objective,
        progress=False,
        **few,
    )
    assert any("also used to choose them" in note for note in found.notes)
    assert any("dpstride check" in note for note in found.notes)


@pytest.mark.parametrize("damage", [None, b"", b"[]", b'{"format": "dpstride-check-1"'])
def test_the_check_is_made_once_in_a_run(damage: bytes | None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took most of the evaluations of a run that was stopped often."""
    from dpstride.checking import notice

    made: list[int] = []

    def checked(*arguments: object) -> object:
        made.append(1)
        return original(*arguments)  # type: ignore[arg-type]

    original = notice.checked
    monkeypatch.setattr(notice, "checked", checked)
    denoiser = mixture_denoiser(T=12)
    model = dpstride.Denoiser(denoiser.network, denoiser.process, predicts="flow", clip=None, shape=denoiser.shape)
    first = dpstride.find(model, mixture_data(40, 0), "out", budgets=(4,), progress=False, **SIZES)
    before = results_of(folder / "out")
    if damage is not None:
        (folder / "out" / "check.json").write_bytes(damage)
    again = dpstride.find(model, mixture_data(40, 0), "out", budgets=(4,), progress=False, **SIZES)
    assert again.notes == first.notes
    assert len(made) == (1 if damage is None else 2)
    assert results_of(folder / "out") == before
