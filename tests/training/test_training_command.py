"""`dpstride train`: data of every kind, options, resuming, exporting, and clear errors before training."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from dpstride import zoo
from dpstride.cli import _run
from dpstride.training.command import train_command

SMALL = ["--channels", "8,8", "--batch-size", "4", "--threads", "1", "--steps", "2"]


def colours(n: int = 12, size: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 3, size, size), dtype=np.uint8)


def run(*arguments: object):
    return CliRunner().invoke(train_command, [str(argument) for argument in arguments])


def write_idx(folder: Path, split: str, images: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    header = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
    (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    header = struct.pack(">4BI", 0, 0, 8, 1, len(images))
    (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + bytes(len(images))))


def test_the_command_trains_resumes_and_exports(tmp_path):
    write_idx(tmp_path / "data", "train", np.random.default_rng(0).integers(0, 256, (1010, 8, 8), dtype=np.uint8))
    arguments = ["simple", "-o", str(tmp_path / "run"), "--data", str(tmp_path / "data"), "--channels", "8,8"]
    arguments += ["--batch-size", "4", "--threads", "1"]
    result = CliRunner().invoke(train_command, [*arguments, "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert "step 2: training loss" in result.stderr
    assert result.stdout.startswith(f"{tmp_path / 'run' / 'model'}: step 2: training loss")
    result = CliRunner().invoke(train_command, [*arguments, "--steps", "3", "--export-only", "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert (printed["model"], printed["step"]) == (str(tmp_path / "run" / "model"), 2)
    assert (tmp_path / "run" / "loss.png").is_file()
    facts = json.loads((tmp_path / "run" / "model" / "dpstride.json").read_text())
    assert facts["steps_done"] == 2
    assert facts["images"] == 909  # the last tenth is held out, at most 1,000
    assert facts["command"].startswith("dpstride train simple --output")
    assert facts["plans"] == [[0, 2]]
    result = CliRunner().invoke(train_command, [*arguments, "--steps", "1"])
    assert result.exit_code == 2
    assert "has reached step 2, beyond the 1 requested steps" in " ".join(result.output.split())


def test_the_command_explains_mistakes(tmp_path):
    write_idx(tmp_path / "data", "train", np.zeros((20, 8, 8), dtype=np.uint8))
    (tmp_path / "data" / "train-labels-idx1-ubyte.gz").unlink()
    result = run("simple", "-o", tmp_path / "run", "--data", tmp_path / "data")
    assert result.exit_code == 2
    assert "apt install dataset-fashion-mnist" in result.output.replace("\n", " ")
    assert "your own data (--data)" in result.output.replace("\n", " ")
    result = CliRunner().invoke(train_command, ["simple", "-o", str(tmp_path), "--channels", "8,x"])
    assert result.exit_code == 2
    assert "not a list of whole numbers" in result.output


@pytest.mark.parametrize("form", ["npy", "npz", "folder", "zoo"])
def test_colour_images_of_any_form_are_trained_on(form, tmp_path):
    images = colours()
    match form:
        case "npy":
            np.save(tmp_path / "x.npy", np.moveaxis(images, 1, -1))  # channels last, as other verbs take them
            data = tmp_path / "x.npy"
        case "npz":
            np.savez(tmp_path / "x.npz", images=images, labels=np.arange(12) % 3)
            data = tmp_path / "x.npz"
        case "folder":
            data = tmp_path / "pictures"
            data.mkdir()
            for i, image in enumerate(images):
                Image.fromarray(np.moveaxis(image, 0, -1)).save(data / f"{i:02}.png")
        case "zoo":
            data = zoo.data_names()[0]
    result = run("hybrid", "-o", tmp_path / "run", "--data", data, "--flip", *SMALL)
    assert result.exit_code == 0, result.output
    denoiser = zoo.load_folder(tmp_path / "run" / "model")
    facts = json.loads((tmp_path / "run" / "model" / "dpstride.json").read_text())
    if form != "zoo":
        assert denoiser.shape == (3, 8, 8)
        assert facts["images"] == 11  # a tenth, at least one, is held out
    assert facts["flip"] is True


def test_labels_of_the_data_make_a_model_of_classes(tmp_path):
    np.savez(tmp_path / "x.npz", images=colours(), labels=np.arange(12) % 3)
    result = run("simple", "-o", tmp_path / "run", "--data", tmp_path / "x.npz", "--labels", "labels", *SMALL)
    assert result.exit_code == 0, result.output
    network = zoo.load_folder(tmp_path / "run" / "model").network
    assert network.unet.config.num_class_embeds == 3
    x, time = torch.zeros(2, 3, 8, 8), torch.tensor([5, 5])
    assert not torch.equal(network(x, time, torch.tensor([0, 0])), network(x, time, torch.tensor([1, 2])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "classes"], "the data hold 'labels', 'weights', 'gaps'"),
        (["--labels", "weights"], "needs one whole number per image"),
        (["--labels", "labels", "--classes", "2"], "0 … 1 for 2 classes, but they span 0 … 2"),
        (["--labels", "gaps"], "the largest label is 11, but no image has the class 1"),
        (["--classes", "2"], "name the labels of DATA with --labels"),
        (["--held-out", "12"], "12 of 12 images were to be held out"),
        (["--batch-size", "20"], "A batch of 20 needs as many images, but there are 11 to train on"),
        (["--channels", "8,8,8,8"], "too small for 4 levels"),
        (["--channels", "8,12"], "positive multiple of 8, but 12 is not"),
        (["--attention", "5"], "height 5, but the levels have the heights 8, 4"),
        (["--attention", "all"], "not a list of whole numbers such as 16,8, or none"),
    ],
)
def test_wrong_requests_are_refused_before_training(arguments, message, tmp_path):
    np.savez(
        tmp_path / "x.npz", images=colours(), labels=np.arange(12) % 3, weights=np.ones(12), gaps=np.arange(12) % 2 * 11
    )
    result = run("simple", "-o", tmp_path / "run", "--data", tmp_path / "x.npz", *SMALL, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_data_that_are_no_8_bit_images_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3, 8, 8)))
    result = run("simple", "-o", tmp_path / "run", "--data", tmp_path / "x.npy", *SMALL)
    assert result.exit_code == 2
    assert "data_range='uint8' means values in [-1, 1]" in " ".join(result.output.split())
    np.save(tmp_path / "y.npy", np.zeros((20, 7), dtype=np.uint8))
    result = run("simple", "-o", tmp_path / "run", "--data", tmp_path / "y.npy", *SMALL)
    assert result.exit_code == 2
    assert "Training takes images, uint8 of shape [N, C, H, W]" in " ".join(result.output.split())


def test_a_trained_model_of_classes_is_found_schedules_for_and_sampled(tmp_path, capsys):
    """From labelled images to schedules and samples, with the commands that the documentation shows."""
    for label in range(2):
        (tmp_path / "pictures" / f"kind-{label}").mkdir(parents=True)
    for i, image in enumerate(colours(40)):
        Image.fromarray(np.moveaxis(image, 0, -1)).save(tmp_path / "pictures" / f"kind-{i % 2}" / f"{i:02}.png")
    result = run("flow", "-o", tmp_path / "run", "--data", tmp_path / "pictures", "--labels", "labels", *SMALL)
    assert result.exit_code == 0, result.output
    model, data, found = (str(tmp_path / name) for name in ("run/model", "pictures", "out"))
    assert _run(["find", model, data, "-o", found, "--samples", "8", "--heldout-samples", "8", "--quiet"]) == 0
    drawing = [
        "sample",
        model,
        f"{found}/schedules.json",
        "-k",
        "4",
        "-n",
        "4",
        "-o",
        str(tmp_path / "drawn.npz"),
        "--quiet",
    ]
    capsys.readouterr()
    assert _run(drawing) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "takes a class label per sample, and `dpstride sample` by itself has none" in told
    assert _run([*drawing, "--conditioning", data]) == 0
