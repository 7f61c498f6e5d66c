"""Scalars for TensorBoard: read back with its own reader, they are the log, also after interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import TINY, tiny_images

import dpstride
from dpstride.runs.lock import ProgressError
from dpstride.training.checkpoint import load_checkpoint
from dpstride.training.command import train_command
from dpstride.training.masked.settings import MaskedTrainingSettings
from dpstride.training.masked.train import PACE, train_masked
from dpstride.training.settings import TrainingSettings
from dpstride.training.train import train
from dpstride.zoo.characters import Architecture
from small_network import tiny_process

NAMES = {"loss/training": "train_loss", "loss/held_out": "held_out_loss", "learning_rate": "learning_rate"}
SETTINGS = TrainingSettings(steps=20, seed=3, **TINY)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run."""
    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def expected(folder: Path, batch_size: int = TINY["batch_size"]) -> dict[str, list[tuple[int, float]]]:
    """The same from log.json."""
    log: list[dict[str, Any]] = json.loads((folder / "log.json").read_text())["log"]
    points = {tag: [(record["step"], record[name]) for record in log] for tag, name in NAMES.items()}
    steps, hours = (np.diff([0, *(record[name] for record in log)]) for name in ("step", "hours"))
    rates = batch_size * steps / (3600 * hours)
    return points | {"samples_per_second": [(record["step"], rate) for record, rate in zip(log, rates, strict=True)]}


def check(found: dict[str, list[tuple[int, float]]], log: dict[str, list[tuple[int, float]]]) -> None:
    assert found.keys() == log.keys()
    for tag, points in log.items():
        assert [step for step, _ in found[tag]] == [step for step, _ in points], tag
        np.testing.assert_allclose([value for _, value in found[tag]], [value for _, value in points], rtol=1e-6)


def go(folder: Path, **more: Any) -> None:
    options = {"process": tiny_process("simple"), "held_out": tiny_images(10, seed=9), "evaluate_every": 4}
    train(tiny_images(20), folder, SETTINGS, **(options | {"checkpoint_every": 10, "tensorboard": True} | more))


def test_scalars_are_the_log(tmp_path):
    go(tmp_path)
    check(read(tmp_path), expected(tmp_path))
    assert [step for step, _ in read(tmp_path)["loss/training"]] == [4, 8, 12, 16, 20]


def test_after_an_interruption_no_step_lacks_or_is_there_twice(tmp_path):
    def interrupt(record: dict[str, Any]) -> None:
        if record["step"] == 16:  # the last checkpoint is of step 10, so that 12 and 16 come again
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, report=interrupt)
    assert [step for step, _ in read(tmp_path)["loss/training"]] == [4, 8, 12, 16]
    go(tmp_path, stop_at=11)
    assert [step for step, _ in read(tmp_path)["loss/training"]] == [4, 8]
    go(tmp_path)
    check(read(tmp_path), expected(tmp_path))


def test_a_run_that_begins_without_scalars_has_all_of_them_once_they_are_asked_for(tmp_path):
    go(tmp_path, tensorboard=False, stop_at=10)
    assert not (tmp_path / "tensorboard").exists()
    go(tmp_path)
    check(read(tmp_path), expected(tmp_path))


def test_scalars_do_not_change_the_weights(tmp_path):
    go(tmp_path / "with")
    go(tmp_path / "without", tensorboard=False)
    weights = [
        tmp_path / name / "model" / "unet" / "diffusion_pytorch_model.safetensors" for name in ("with", "without")
    ]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_models_of_characters_have_bits_too(tmp_path):
    text = "a small text, said again and again. " * 60
    settings = MaskedTrainingSettings(steps=2, batch_size=2, architecture=Architecture(16, 16, 1, 2))
    train_masked(text, tmp_path, settings, pace=type(PACE)(evaluate_every=1, tensorboard=True))
    log = json.loads((tmp_path / "log.json").read_text())["log"]
    bits = {"loss/held_out_bits_per_character": [(record["step"], record["held_out_bits"]) for record in log]}
    check(read(tmp_path), expected(tmp_path, batch_size=2) | bits)


def run(folder: Path, *more: str) -> list[str]:
    np.save(folder / "x.npy", tiny_images(30).numpy())
    return [
        "simple",
        "-o",
        str(folder / "run"),
        "--data",
        str(folder / "x.npy"),
        "--channels",
        "8,8",
        "--batch-size",
        "4",
        *more,
    ]


def test_the_command_writes_them_and_goes_on_after_a_kill(tmp_path):
    words = run(tmp_path, "--steps", "100000", "--cooldown", "10", "--tensorboard")
    command = [sys.executable, "-m", "dpstride", "train", *words]
    environment = os.environ | {"PYTHONPATH": str(Path(dpstride.__file__).parents[1])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 500:"):
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    reached = load_checkpoint(tmp_path / "run")["step"]
    assert [step for step, _ in read(tmp_path / "run")["loss/training"]][:1] == [500]
    words = run(tmp_path, "--steps", str(reached + 150), "--cooldown", "10", "--tensorboard", "--quiet")
    result = CliRunner().invoke(train_command, words)
    assert result.exit_code == 0, result.output
    check(read(tmp_path / "run"), expected(tmp_path / "run", batch_size=4))


def test_without_the_package_the_error_comes_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = CliRunner().invoke(train_command, run(tmp_path, "--tensorboard"))
    assert result.exit_code == 2
    assert 'pip install "dpstride[tensorboard]"' in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="which is not installed"):
        go(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_written_is_said(tmp_path):
    result = CliRunner().invoke(train_command, run(tmp_path, "--tensorboard", "--export-only"))
    assert result.exit_code == 2
    assert "--export-only does not train. Leave one of them out" in " ".join(result.output.split())
    (tmp_path / "tensorboard").write_text("a file where the folder goes")
    with pytest.raises(ProgressError, match="scalars could not be written"):
        go(tmp_path)
