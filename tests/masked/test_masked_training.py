"""Training of characters: exact resumption, a model that learns, folders that load, and clear errors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import dpstride
from dpstride.reading.limits import UnreadableFileError
from dpstride.reading.plain import read_text
from dpstride.training.command import train_command
from dpstride.training.loop import Pace
from dpstride.training.masked.settings import MaskedTrainingSettings
from dpstride.training.masked.text import split_text
from dpstride.training.masked.train import MaskedRun, masked_losses, train_masked
from dpstride.zoo.characters import ALPHABET, Architecture, decode, encode, load_characters, passages

TEXT = "the cat sat on the mat; the dog ate the hat. " * 200
SMALL = MaskedTrainingSettings(
    steps=6, batch_size=4, warmup=2, ema_decay=0.9, architecture=Architecture(length=16, width=16, layers=1, heads=2)
)


def test_text_and_tokens() -> None:
    assert decode(encode("The  Cat\nsat, 3 times — on “it”!")) == "the cat sat, times on it!"
    assert decode([*encode("ab"), len(ALPHABET)]) == "ab□"
    assert passages("abc def", 3).tolist() == [encode("abc").tolist(), encode(" de").tolist()]
    ids, held_out = split_text(TEXT, 16)
    assert len(held_out) == pytest.approx(len(TEXT) / 10, rel=0.1)
    assert len(ids) + len(held_out) == len(TEXT)


def test_the_loss_is_the_mean_over_masked_characters() -> None:
    tokens, masked = torch.tensor([[0, 1, 2], [2, 2, 2]]), torch.tensor([[True, False, True], [False, True, False]])
    logits = torch.randn(2, 3, len(ALPHABET), generator=torch.Generator().manual_seed(0))
    nats = -logits.log_softmax(-1)
    found = masked_losses(lambda x: logits, tokens, masked)
    assert found[0].item() == pytest.approx(((nats[0, 0, 0] + nats[0, 2, 2]) / 2).item())
    assert found[1].item() == pytest.approx(nats[1, 1, 2].item())


def test_an_interrupted_run_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    pace = Pace(evaluate_every=2, checkpoint_every=1, progress=False)
    whole = train_masked(TEXT, tmp_path / "whole", SMALL, pace=pace)
    train_masked(TEXT, tmp_path / "parts", SMALL, pace=replace(pace, stop_at=3))
    parts = train_masked(TEXT, tmp_path / "parts", SMALL, pace=pace)
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()
    logs = [json.loads((folder.parent / "log.json").read_text())["log"] for folder in (whole, parts)]
    first, second = ([record["held_out_loss"] for record in log] for log in logs)
    assert first == second
    with pytest.raises(ValueError, match="made with text = "):
        MaskedRun(TEXT + "more", tmp_path / "parts", SMALL)
    with pytest.raises(ValueError, match="beyond the 5 requested steps"):
        MaskedRun(TEXT, tmp_path / "parts", replace(SMALL, steps=5))


def test_the_command_trains_a_model_that_is_found_schedules_for(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text(TEXT)
    sizes = ["--length", "16", "--width", "32", "--layers", "1", "--heads", "2", "--warmup", "5", "--ema", "0.9"]
    arguments = ["masked", "-o", str(tmp_path / "run"), "--data", str(tmp_path / "text"), *sizes, "--batch-size", "16"]
    result = CliRunner().invoke(
        train_command, [*arguments, "--steps", "120", "--learning-rate", "0.01", "--threads", "1"]
    )
    assert result.exit_code == 0, result.output
    denoiser = load_characters(tmp_path / "run" / "model")
    facts = json.loads((tmp_path / "run" / "model" / "dpstride.json").read_text())
    assert facts["command"].startswith("dpstride train masked --output")
    ids = encode(TEXT)
    shares = np.bincount(ids) / len(ids)
    single = -(shares[shares > 0.0] * np.log2(shares[shares > 0.0])).sum()
    # A network that sees no neighbours stays at the entropy of single characters.
    assert facts["held_out_bits"] < 0.93 * single
    data = passages(TEXT, 16)[:8]
    schedules = dpstride.optimise_masked(denoiser, data, progress=False)
    found = dpstride.bits_per_token(denoiser, data, schedules[4])
    assert found.bits < math.log2(len(ALPHABET))
    samples = dpstride.sample_masked(denoiser, schedules[4], 3, order="confidence")
    assert all(len(decode(sample)) == 16 for sample in samples)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "other"}, "format 'other' is not"),
        ({"width": 24}, "not a whole model"),
        ({"heads": 3}, "width must be a multiple of twice the heads"),
        ({"layers": 10**9}, "layers must be a whole number"),
        ({"length": "x"}, "length must be a whole number"),
    ],
)
def test_folders_of_something_else_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    folder = train_masked(
        TEXT, tmp_path / "run", MaskedTrainingSettings(**{**vars(SMALL), "steps": 1}), pace=Pace(progress=False)
    )
    path = folder / "dpstride.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnreadableFileError, match=message):
        load_characters(folder)


def test_text_that_cannot_be_trained_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither a text file nor a folder"):
        read_text(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UnreadableFileError, match="not text in UTF-8"):
        read_text(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="Give more text"):
        split_text("short", 16)
    with pytest.raises(ValueError, match="ema_decay must lie in"):
        MaskedTrainingSettings(ema_decay=1.0)
    assert np.issubdtype(split_text(TEXT, 16)[0].dtype, np.unsignedinteger)


def test_a_checkpoint_is_exported_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    sizes = ["--length", "16", "--width", "16", "--layers", "1", "--heads", "2", "--batch-size", "4", "--warmup", "2"]
    words = ["masked", "-o", str(tmp_path / "run"), "--data", str(tmp_path / "a.txt"), *sizes, "--ema", "0.9"]
    nothing = CliRunner().invoke(train_command, [*words, "--export-only"])
    assert nothing.exit_code == 2
    assert "holds no checkpoint to export. Train first." in " ".join(nothing.output.split())
    train_masked(TEXT, tmp_path / "run", SMALL, pace=Pace(checkpoint_every=1, progress=False, stop_at=4))
    before = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    for steps in ("6", "3"):  # fewer than it has reached, too
        result = CliRunner().invoke(train_command, [*words, "--steps", steps, "--export-only"])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == before
    assert json.loads((tmp_path / "run" / "model" / "dpstride.json").read_text())["steps_done"] == 4
    assert load_characters(tmp_path / "run" / "model").length == 16
