"""Warnings about data and model: said once, whatever asks for them, and repeated in the notes of the result."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import dpstride
from dpstride.cli import main
from dpstride.finding.heard import heard
from dpstride.finding.plain_data import gaussian_notes
from dpstride.statistics.passes import clipping_words
from small_network import denoiser_of

DATA = torch.randn(24, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3.0


def test_different_warnings_are_passed_on_once_each() -> None:
    def work() -> int:
        for words in ("this", "that", "this"):
            warnings.warn(words, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return 3

    with pytest.warns(Warning) as said:  # noqa: PT030, all of them are looked at
        result, notes = heard(work)
    assert (result, notes) == (3, ("this", "that"))
    assert [str(each.message) for each in said] == ["this", "that", "old"]


def test_clipping_that_keeps_the_model_from_the_data_is_said_once_and_named_as_the_cause(tmp_path: Path) -> None:
    denoiser = denoiser_of(clip=(-1.0, 1.0))
    with pytest.warns(UserWarning) as said:  # noqa: PT030
        found = dpstride.find(
            denoiser, DATA, tmp_path / "out", data_range="continuous", progress=False, check=False, pictures=0
        )
    assert [str(each.message)[:26] for each in said] == ["x0_hat is clipped to (-1.0"]
    clipped = [
        note for note in found.notes if note.startswith("x0_hat is clipped to (-1.0, 1.0), but the data spans [")
    ]
    assert len(clipped) == 1
    [worse] = [note for note in found.notes if "worse than no model at all" in note]
    assert "The likely cause: x0_hat is clipped to (-1.0, 1.0)" in worse
    assert "Check predicts" not in worse


def test_without_such_clipping_the_description_is_doubted() -> None:
    (note,) = gaussian_notes({"per dimension": 1.0}, 2.0, 0.1)
    assert note.endswith("Check predicts, time_input, clip, the process and the scale of the data.")
    data = dpstride.statistics.data.Samples.read(DATA, None, "continuous")
    assert clipping_words((-99.0, 99.0), data) == clipping_words(None, data) == ""


def test_levels_outside_the_clipping_are_the_likely_cause_too() -> None:
    rng = np.random.default_rng(0)
    images, others = (rng.integers(0, 4, (30, 2)) for _ in range(2))
    denoiser = dpstride.Denoiser(lambda x, t: torch.full_like(x, 0.9), dpstride.ForwardProcess.linear(9), predicts="x0")
    levels = ("levels", 4, -8.0, 8.0)
    with pytest.warns(UserWarning, match="the data spans"):
        schedules = dpstride.optimise(denoiser, images, data_range=levels, progress=False)
    with pytest.warns(UserWarning, match="the data spans"):
        heldout = dpstride.estimate(denoiser, others, seed=5, data_range=levels, progress=False)
    [worse] = [note for note in dpstride.compare(schedules, heldout).warnings if note.startswith("The best budget has")]
    assert "The likely cause: x0_hat is clipped to (-1.0, 1.0), and the data span -8 to 8. Pass clip=None" in worse


def test_the_command_line_says_a_warning_once_without_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clipped_model.py").write_text(
        "import warnings\nimport torch, dpstride\n\n\ndef denoiser():\n"
        "    for _ in range(3):\n        warnings.warn('mind the step')\n"
        "    process = dpstride.ForwardProcess.linear(9)\n"
        "    return dpstride.Denoiser(lambda x, time: torch.zeros_like(x), process, predicts='eps')\n"
    )
    np.save(tmp_path / "data.npy", DATA.numpy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["find", "clipped_model:denoiser", "data.npy", "-o", "out", "--data-range", "continuous", "--dry-run"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.raises(SystemExit) as stop:
            main(command)
    assert stop.value.code == 0
    said = capsys.readouterr().err
    assert said.count("Warning: mind the step") == 1
    assert said.count("Warning: x0_hat is clipped to (-1.0, 1.0)") == 1
    assert "clipped_model.py" not in said
    assert "UserWarning" not in said
