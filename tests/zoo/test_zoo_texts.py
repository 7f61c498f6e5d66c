"""Embedded text and models of tokens: what they are, what their cards say, and how they get there."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import dpstride
from dpstride import zoo
from dpstride.cli import _run
from dpstride.training.loop import Pace
from dpstride.training.masked.settings import MaskedTrainingSettings
from dpstride.training.masked.text import split_text
from dpstride.training.masked.train import train_masked
from dpstride.zoo import texts
from dpstride.zoo.characters import ALPHABET, Architecture, encode, passages

MEGABYTES = 4


def test_embedded_text_is_plain_and_its_halves_share_no_stretch() -> None:
    halves = {name: zoo.load_text(name).splitlines() for name in zoo.text_names()}
    assert set(halves) == {"kjv-train", "kjv-test"}
    for lines in halves.values():
        assert [len(line) for line in lines] == [texts.STRETCH] * texts.STRETCHES
        assert set("".join(lines)) <= set(ALPHABET)
        assert len(passages("\n".join(lines), 128)) == 512
    assert "in the beginning god created the heaven and the earth" in halves["kjv-train"][0]
    pieces = {line[i : i + 60] for line in halves["kjv-train"] for i in range(texts.STRETCH - 60)}
    shared = sum(line[i : i + 60] in pieces for line in halves["kjv-test"] for i in range(0, texts.STRETCH - 60, 60))
    assert shared < 16  # the Bible quotes itself now and then; whole stretches would be 68 each


def test_a_model_of_tokens_has_a_card_that_says_what_it_scores() -> None:
    assert "kjv-masked" in zoo.masked_names()
    for name in zoo.masked_names():
        folder, facts = zoo.masked_folder_of(name), zoo.describe_masked(name)
        card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
        assert card.startswith("---\n")
        assert facts["command"] in card
        assert f"{facts['held_out']['bits']:.3f}" in card
        assert 1e6 <= facts["parameters"] <= 2e6
        assert (folder / "model.safetensors").stat().st_size <= MEGABYTES * 2**20
        denoiser = zoo.load_masked(name)
        assert (denoiser.name, denoiser.length) == (name, facts["length"])


def test_the_card_states_the_bits_of_one_character_at_a_time() -> None:
    """A few counts of masked characters, by the passes of the library instead of the training loss."""
    denoiser = zoo.load_masked("kjv-masked")
    held_out = zoo.describe_masked("kjv-masked")["held_out"]
    data = passages(zoo.load_text("kjv-test"), denoiser.length)[::16]
    counts = [8, 28, 48, 68, 88, 108, 128]
    found = dpstride.estimate_masked(denoiser, data, counts=counts, seed=3, progress=False)
    bits = float(found.filled().mean_nats[1:].mean()) / math.log(2.0)
    # 32 passages of which every one is seen at seven counts; chords between counts are good to 0.02 bits.
    error = 5 * held_out["standard_error"] * math.sqrt(held_out["characters"] / data.size)
    assert abs(bits - held_out["bits"]) < error + 0.02


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"no embedded model of tokens 'kjv'\. The zoo has kjv-masked"):
        zoo.load_masked("kjv")
    with pytest.raises(ValueError, match="no embedded text 'kjv'; there are kjv-train, kjv-test"):
        zoo.load_text("kjv")


def test_a_trained_model_is_put_into_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from install_masked import install

    monkeypatch.setattr(texts, "_root", lambda: tmp_path / "texts")
    monkeypatch.setattr("install_masked._root", texts._root)
    monkeypatch.setattr(texts, "STRETCH", 40)
    monkeypatch.setattr("install_masked.STRETCH", 40)
    torch.set_num_threads(1)
    text = "the cat sat on the mat; the dog ate the hat. " * 200
    settings = MaskedTrainingSettings(steps=3, batch_size=4, architecture=Architecture(16, 16, 1, 2))
    folder = train_masked(text, tmp_path / "run", settings, command="dpstride train masked", pace=Pace(progress=False))
    assert install(folder, "tiny", text) == tmp_path / "texts" / "tiny"
    assert zoo.masked_names() == ("tiny",)
    facts = zoo.describe_masked("tiny")
    held_out = split_text(text, 16)[1]
    assert facts["held_out"]["characters"] == len(held_out)
    assert facts["held_out"]["bits"] == pytest.approx(facts["held_out"]["in_float32"], abs=0.01)
    assert abs(facts["held_out"]["bits"] - math.log2(len(ALPHABET))) < 1.0  # hardly trained: nearly uniform
    assert len(zoo.load_text("kjv-test").splitlines()) == texts.STRETCHES
    assert np.array_equal(encode(zoo.load_text("kjv-test").splitlines()[0]), held_out[:40])
    ids = torch.from_numpy(held_out[:16].astype(np.int64))[None]
    assert zoo.load_masked("tiny").network(ids).shape == (1, 16, len(ALPHABET))


def test_names_work_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"fashion-simple", "kjv-masked"} <= set(listed["models"])
    assert {"kjv-train", "kjv-test", "fashion-test"} <= set(listed["data"])
    assert _run(["models"]) == 0
    assert "masked diffusion of 128 characters" in capsys.readouterr().out
    words = ["find", "kjv-masked", "kjv-train", "--heldout", "kjv-test", "-o", "out", "--dry-run"]
    assert _run(words) == 0
    assert "128 samples of 128 tokens choose the schedules (kjv-train)" in capsys.readouterr().err
    for swapped, message in (
        (["kjv-train", "kjv-masked"], "is an embedded data set. Give MODEL first"),
        (["fashion-simple", "kjv-train"], "is text, for models of tokens"),
        (["fashion-simple", "kjv-masked"], "is an embedded model. Give MODEL first"),
        (["kjv-maskd", "kjv-train"], "Embedded models are"),
    ):
        assert _run(["find", *swapped, "-o", "other"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
