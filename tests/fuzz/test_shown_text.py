"""What the command line says of hostile files: shown on one line, with a code, and never obeyed by a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import dpstride
from dpstride.cli import main

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"


def say(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    assert "Traceback" not in printed.err
    return stop.value.code, printed.out + printed.err


def test_a_hostile_name_reaches_the_terminal_as_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    denoiser = dpstride.Denoiser(lambda x, time: 0.1 * x, dpstride.ForwardProcess.linear(6), name=ESCAPE)
    images = torch.randint(0, 256, (4, 1, 2, 2), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    schedules = dpstride.optimise(denoiser, images, progress=False)
    schedules.save(tmp_path / "schedules.json")
    document = json.loads((tmp_path / "schedules.json").read_text())
    hostile = tmp_path / f"{ESCAPE}.json"
    hostile.write_text(json.dumps({**document, "format": ESCAPE}))
    for words in (
        ("export", hostile, "--to", "csv", "--budget", 2),
        ("evaluate", hostile, "--statistics", hostile),
        ("solve", hostile, "-o", "out.json"),
        ("estimate", f"{ESCAPE}:x", "data.npy", "-o", "out"),
        ("estimate", hostile, "data.npy", "-o", "out"),
    ):
        code, printed = say(capsys, *words)
        assert code == 2, words
        assert all(line.isprintable() for line in printed.split("\n")), words
        assert r"\x1b" in printed


def test_schedules_without_their_origin_are_refused_not_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dpstride.even_stride(dpstride.ForwardProcess.linear(6), 2).save(tmp_path / "by_hand.json")
    code, printed = say(capsys, "evaluate", tmp_path / "by_hand.json", "--statistics", tmp_path / "by_hand.json")
    assert code == 2
    assert "These schedules do not say their variance" in printed
