"""`dpstride check` on the command line: what it prints, its exit codes, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpstride.cli import main

MODULE = """
import sys
sys.path.insert(0, {folder!r})
from exact import TRUTHS, images

def right():
    return TRUTHS["eps, linear"].denoiser()

def wrong():
    return TRUTHS["eps, linear"].denoiser(predicts="v")

def data():
    return images("cifar-test")[:128]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"checked_model_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(folder=str(Path(__file__).parent)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["check", *words])
    return int(stop.value.code or 0)


def test_a_right_description_ends_with_0(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{module}:right", f"{module}:data", "--all") == 0
    shown = capsys.readouterr()
    assert "No other description explains this network better." in shown.out
    assert "cosine process (+" in shown.out  # --all
    assert "check:" not in shown.err  # no progress bar off a terminal


def test_a_wrong_one_ends_with_1_and_names_the_remedy(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{module}:wrong", f"{module}:data", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "better"
    assert found["changes"] == ["predicts='eps'"]
    assert found["evaluations"] > 0


def test_bad_input_ends_with_2(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{module}:right", "nowhere.npy") == 2
    assert "nowhere.npy" in capsys.readouterr().err
