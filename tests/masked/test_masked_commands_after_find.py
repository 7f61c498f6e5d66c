"""What follows `dpstride find` for models of tokens: samples and exports, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from joints import topics

import dpstride
from dpstride.cli import _run
from dpstride.integrations.forms import TOKENS
from dpstride.process import ForwardProcess
from dpstride.schedule import ScheduleSet
from dpstride.zoo.characters import Architecture, CharacterTransformer, save_characters

MODEL = """
from joints import topics

def model():
    return topics().denoiser()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of characters in ``letters``, one of token ids in own_ids.py, and schedules of each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_ids.py").write_text(MODEL)
    save_characters(CharacterTransformer(Architecture(12, 16, 1, 2)), tmp_path / "letters", {})
    for name, length in (("letters", 12), ("ids", 6)):
        counts = {K: ((*range(length, length - K, -1), 0), None, None) for K in range(1, length + 1)}
        dpstride.MaskedScheduleSet(length, counts, "dp").save(tmp_path / f"{name}.json")
    return tmp_path


def test_samples_of_characters_are_lines_of_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["sample", "letters", "letters.json", "-k", "3", "-n", "5", "-o", "out.txt"]) == 0
    assert "5 samples, 3 rounds" in capsys.readouterr().out
    lines = (folder / "out.txt").read_text().splitlines()
    assert [len(line) for line in lines] == [12] * 5
    assert _run(["sample", "letters", "letters.json", "-k", "3", "-n", "5", "-o", "ids.npy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [5, 12]
    from dpstride.zoo.characters import decode

    assert [decode(row) for row in np.load("ids.npy")] == lines


@pytest.mark.parametrize("order", ["random", "confidence"])
def test_samples_are_those_of_sample_masked(folder: Path, order: str) -> None:
    words = [
        "sample",
        "own_ids:model",
        "ids.json",
        "-k",
        "2",
        "-n",
        "7",
        "--seed",
        "4",
        "--order",
        order,
        "-o",
        "a.npy",
    ]
    assert _run([*words, "--stride", "even", "--batch-size", "3"]) == 0
    direct = dpstride.sample_masked(topics().denoiser(), dpstride.even_unmasking(6, 2), 7, 4, order=order)
    assert np.array_equal(np.load("a.npy"), direct.numpy())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["own_ids:model", "ids.json", "-o", "a.txt"], "no tokenizer to write text with"),
        (["own_ids:model", "ids.json", "-o", "a.png"], "must end in .txt or .npy for tokens, not '.png'"),
        (["letters", "letters.json", "-o", "a.txt", "--sampler", "ddim"], "--sampler: only for diffusion of numbers"),
        (["letters", "letters.json", "-o", "a.txt", "--stride", "quadratic"], "For tokens, use dp or even"),
        (["letters", "letters.json", "-o", "a.txt", "--seconds", "2"], "--seconds: only for diffusion of numbers"),
        (["fashion-simple", "letters.json", "-o", "a.txt"], "MODEL is a diffusion model of numbers"),
        (["letters", "numbers.json", "-o", "a.png"], "is a masked diffusion model of tokens"),
        (["fashion-simple", "numbers.json", "-o", "a.txt"], "are for unmasking schedules of tokens"),
        (
            ["fashion-simple", "numbers.json", "-o", "a.png", "--order", "margin"],
            "are for unmasking schedules of tokens",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    _schedules_of_numbers(folder / "numbers.json")
    assert _run(["sample", *words, "-k", "2"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (folder / words[3]).exists()


def test_exports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def exported(target: str) -> str:
        assert _run(["export", "ids.json", "--to", target, "--budget", "3"]) == 0
        return capsys.readouterr().out

    assert json.loads(exported("tokens")) == [1, 1, 4]
    assert json.loads(exported("fractions")) == [1.0, 5 / 6, 4 / 6, 0.0]
    assert json.loads(exported("times")) == [1.0, 5 / 6, 4 / 6]
    assert json.loads(exported("llada")) == [[1, 1, 4]]
    rows = [line.split(",") for line in exported("csv").splitlines()]
    assert rows[0] == ["round", "masked_before", "masked_after", "revealed", "time"]
    assert [row[:4] for row in rows[1:]] == [["1", "6", "5", "1"], ["2", "5", "4", "1"], ["3", "4", "0", "4"]]
    assert _run(["export", "ids.json", "--to", "tokens", "--budget", "3", "-o", "tokens.json"]) == 0
    assert json.loads((folder / "tokens.json").read_text()) == [1, 1, 4]


def test_exports_of_the_other_kind_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["export", "ids.json", "--to", "diffusers", "--budget", "3"]) == 2
    assert f"Export them with --to {', '.join(TOKENS.forms)}" in " ".join(capsys.readouterr().err.split())
    _schedules_of_numbers(folder / "numbers.json")
    assert _run(["export", "numbers.json", "--to", "tokens", "--budget", "2"]) == 2
    assert "holds schedules of numbers" in " ".join(capsys.readouterr().err.split())


def _schedules_of_numbers(path: Path) -> None:
    ScheduleSet.of([dpstride.even_stride(ForwardProcess.linear(1000), 2)]).save(path)
