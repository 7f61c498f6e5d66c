"""`dpstride find` on models of tokens: schedules, a held-out table and figures; resumed, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joints import topics

import dpstride
from dpstride.cli import _run
from dpstride.masked.comparison import compare_masked
from dpstride.masked.strides import RULES
from dpstride.options import BEST
from dpstride.training.loop import Pace
from dpstride.training.masked.settings import MaskedTrainingSettings
from dpstride.training.masked.train import train_masked
from dpstride.zoo.characters import Architecture

TEXT = "the cat sat on the mat; the dog ate the hat. " * 60
MODEL = """
import numpy as np, torch
from joints import topics
import dpstride

def model():
    return topics().denoiser()

def texts():
    return dpstride.Tokens.of(topics().draw(60))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_tokens.py").write_text(MODEL)
    return tmp_path


def test_a_model_of_characters_from_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = MaskedTrainingSettings(steps=2, batch_size=4, architecture=Architecture(12, 16, 1, 2))
    train_masked(TEXT, folder / "run", settings, pace=Pace(progress=False))
    (folder / "book.txt").write_text(TEXT)
    words = ["find", "run/model", "book.txt", "-o", "out", "--samples", "6", "--heldout-samples", "6"]
    assert _run(words) == 0
    printed = capsys.readouterr().out
    assert "bits/token, held-out" in printed
    assert "within 0.1 bits/token of " in printed
    files = {path.name for path in (folder / "out").iterdir()}
    assert files >= {"schedules.json", "comparison.json", "table.txt", "bits_per_token.png", "rounds.svg"}
    schedules = dpstride.MaskedScheduleSet.load(folder / "out" / "schedules.json")
    assert schedules.budgets == list(range(1, 13))
    before = (folder / "out" / "schedules.json").read_bytes()
    assert _run([*words, "--quiet", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["bits_per_token"]) == {*RULES, BEST}
    assert (folder / "out" / "schedules.json").read_bytes() == before
    assert _run([*words, "--seed", "1"]) == 2
    assert "holds other work" in capsys.readouterr().err


def test_functions_and_arrays_of_ids(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("ids.npy", topics().draw(20, seed=5))
    words = ["find", "own_tokens:model", "own_tokens:texts", "-o", "out", "--heldout", "ids.npy", "--quiet"]
    assert _run([*words, "--max-budget", "4"]) == 0
    assert dpstride.MaskedScheduleSet.load("out/schedules.json").budgets == [1, 2, 3, 4]
    assert dpstride.MaskedStatistics.load("out/heldout.safetensors").samples == 20
    capsys.readouterr()


@pytest.mark.attack("two runs on one output")
def test_other_options_and_results_of_other_verbs_are_refused_or_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Schedules of any other run in the folder were written over."""
    words = ["find", "own_tokens:model", "own_tokens:texts", "-o", "out", "--samples", "8", "--heldout-samples", "8"]
    assert _run([*words, "--quiet"]) == 0
    before = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    assert _run([*words, "--max-budget", "2"]) == 2
    assert "options.max_budget (there None, here 2)" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (folder / "out").iterdir()} == before
    assert _run([*words, "--max-budget", "2", "--overwrite", "--quiet"]) == 0
    assert dpstride.MaskedScheduleSet.load("out/schedules.json").budgets == [1, 2]
    process = dpstride.ForwardProcess.linear(4)
    dpstride.even_stride(process, 2).save("found/schedules.json")
    kept = Path("found/schedules.json").read_bytes()
    assert _run([*words[:4], "found", *words[5:]]) == 2
    assert "found holds other work: schedules.json" in capsys.readouterr().err
    assert Path("found/schedules.json").read_bytes() == kept


@pytest.mark.parametrize(
    "words, message",
    [
        (["none", "book.txt"], "neither an embedded model nor a folder here"),
        (["own_tokens:texts", "book.txt"], "or a dpstride.MaskedDenoiser), not Tokens"),
        (["own_tokens:model", "book.txt"], "this model has no tokenizer"),
        (["own_tokens:model", "missing.npy"], "missing.npy: there is no such file"),
        (["own_tokens:model", "one.npy"], "DATA holds one sample"),
        (["run/model", "empty.txt"], "the text has only 0 characters of its alphabet"),
        (["run/model", "latin.txt"], "not text in UTF-8"),
        (["run/model", "missing.txt"], "neither a text file nor a folder with .txt files"),
        (["run", "book.txt"], "is the folder of a training run. Give its model, run/model"),
        (["own_tokens:model", "wrong.npy"], "ids must lie in 0 … 2"),
    ],
)
def test_mistakes_are_told_before_the_work(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    settings = MaskedTrainingSettings(steps=1, batch_size=2, architecture=Architecture(12, 16, 1, 2))
    if "run" in words[0]:
        train_masked(TEXT, folder / "run", settings, pace=Pace(progress=False))
    np.save("wrong.npy", np.full((4, 6), 7))
    np.save("one.npy", np.zeros((1, 6), dtype=np.int64))
    Path("empty.txt").touch()
    Path("latin.txt").write_bytes("café ".encode("latin-1") * 40)
    Path("book.txt").write_text(TEXT)
    assert _run(["find", *words, "-o", "out"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_best_is_compared_on_samples_of_other_lengths_too() -> None:
    joint: Any = topics()
    model = dpstride.MaskedDenoiser(joint.network(), 3, 3, 6, pad_token=3)
    prefixes = np.array([0, 1, 2, 3] * 5)
    data = dpstride.Tokens.of(joint.draw(20), prefixes=prefixes)
    heldout = dpstride.Tokens.of(joint.draw(10, seed=1), prefixes=2)
    choosing = dpstride.estimate_masked(model, data, progress=False)
    scoring = dpstride.estimate_masked(model, heldout, length=choosing.process.length, progress=False)
    schedules = dpstride.masked_schedules(choosing)
    found = compare_masked(schedules, scoring, choosing, [1, 3, 6])
    assert set(found.curves) == {*RULES, BEST} - {"linear_times"}
    direct = dpstride.bits_per_token(model, heldout, schedules[1])
    assert found.curves[BEST][1][0] == pytest.approx(direct.bits)  # one round has one way to be masked


@pytest.mark.parametrize(
    "words, message",
    [
        (["--variance", "upper"], "variance is for diffusion of numbers"),
        (["--for", "samples"], "objective is for diffusion of numbers"),
        (["--data-range", "continuous"], "data_range is for diffusion of numbers"),
        (["--skip-nonfinite"], "skip_nonfinite is for diffusion of numbers"),
        (["--max-budget", "7"], "from 1 to 6, not 7"),
        (["--budgets", "2,9"], "from 1 to 6, not 9"),
        (["--samples", "60"], "must have 61 samples, as asked for"),
        (
            ["--autocast", "bfloat16"],
            "a masked diffusion model of tokens, which only `dpstride find` and `dpstride sample` take",
        ),
    ],
)
def test_options_that_tokens_have_no_use_for_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert _run(["find", "own_tokens:model", "own_tokens:texts", "-o", "out", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list((folder / "out").glob("*.safetensors"))


def test_other_verbs_say_what_the_model_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["estimate"], ["check"]):
        words = [*verb, "own_tokens:model", "ids.npy", *(["-o", "x.safetensors"] if verb == ["estimate"] else [])]
        assert _run(words) == 2
        assert "is a masked diffusion model of tokens" in capsys.readouterr().err
    with pytest.raises(ValueError, match="only `dpstride find` and `dpstride sample` take"):
        dpstride.load_model("own_tokens:model")


def test_a_dry_run_says_what_it_would_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["find", "own_tokens:model", "own_tokens:texts", "-o", "out", "--dry-run"]) == 0
    found = capsys.readouterr()
    assert f"{6 * 60:,} network evaluations" in found.out
    assert "masked diffusion of up to 6 tokens, 3 ids" in found.err
    assert "30 samples of 6 tokens choose the schedules (own_tokens:texts)" in found.err


def test_one_sample_has_no_standard_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was NaN, which JSON has no word for: the run ended without results."""
    words = [
        "find",
        "own_tokens:model",
        "own_tokens:texts",
        "-o",
        "out",
        "--samples",
        "1",
        "--heldout-samples",
        "1",
        "-q",
    ]
    assert _run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bits_per_token"][BEST]["1"]["standard_error"] is None
    assert "±" not in (folder / "out" / "table.txt").read_text()
    assert json.loads((folder / "out" / "comparison.json").read_text())["curves"][BEST][0][2] is None
    assert _run(["report", "out", "-q"]) == 0
    assert "nan" not in capsys.readouterr().out


def test_the_same_in_python_with_objects(folder: Path) -> None:
    joint = topics()
    texts = joint.draw(16)
    found = dpstride.find(joint.denoiser(), texts, "out", texts[:4], budgets=[3], progress=False)
    assert isinstance(found.schedules, dpstride.MaskedScheduleSet)
    assert found.schedules.provenance["run"] == json.loads(Path("out/run.json").read_text())["run"]
    assert "4 of the 4 samples that score the schedules were also used to choose them" in found.notes[0]
    assert set(found.details["bits_per_token"][BEST]) == {1, 2, 3, 4, 6}
    with pytest.raises(ValueError, match=r"or a dpstride\.MaskedDenoiser, not int"):
        dpstride.find(3, texts, "out", progress=False)
