"""Prompts and labels by every way that the command line takes them, against the pipeline's own embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pipelines
import pytest
import torch
import transformers
from PIL import Image

from dpstride.cli import main
from dpstride.finding.inputs import Asked, read_samples, split
from dpstride.integrations.diffusers import load_diffusers

PROMPTS = ["a cat", "", "a dog"]
LABELS = [4, 0, 2]
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 3, 16, 16), dtype=np.uint8)


def scheduler() -> Any:
    return diffusers.DDIMScheduler(pipelines.T, clip_sample=False, set_alpha_to_one=False, steps_offset=1)


@pytest.fixture(scope="module")
def prompted() -> Any:
    return load_diffusers(pipelines.stable_diffusion(scheduler()))


@pytest.fixture(scope="module")
def labelled() -> Any:
    return load_diffusers(pipelines.dit(scheduler()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same images with prompts and labels in every form."""
    (tmp_path / "images").mkdir()
    (tmp_path / "captioned").mkdir()
    for i, (image, prompt) in enumerate(zip(IMAGES, PROMPTS, strict=True)):
        picture = Image.fromarray(np.moveaxis(image, 0, -1))
        picture.save(tmp_path / "images" / f"{i}.png")
        picture.save(tmp_path / "captioned" / f"{i}.png")
        (tmp_path / "captioned" / f"{i}.txt").write_text(f"{prompt}\n")
    for keys in ({"prompts": PROMPTS}, {"captions": PROMPTS}, {"labels": LABELS}, {"y": LABELS}):
        name, values = next(iter(keys.items()))
        np.savez(tmp_path / f"{name}.npz", images=IMAGES, **{name: np.array(values)})
    np.savez(tmp_path / "other.npz", images=IMAGES, weight=np.ones(3))
    np.save(tmp_path / "images.npy", IMAGES)
    np.save(tmp_path / "labels.npy", np.array(LABELS))
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    (tmp_path / "one.txt").write_text("a cat\n")
    (tmp_path / "labels.txt").write_text("4\n0\n2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("data", "conditioning"),
    [
        ("prompts.npz", None),
        ("captions.npz", None),
        ("captioned", None),
        ("images.npy", "prompts.txt"),
        ("images", "prompts.txt"),
        ("images", "captioned"),
        ("images.npy", "prompts.npz"),
        ("captioned", "prompts.txt"),
    ],
)
def test_prompts_reach_the_text_encoder(data: str, conditioning: str | None, prompted: Any, folder: Path) -> None:
    found = read_samples(data, prompted, None, None, conditioning)
    latents, expected = prompted.encode(IMAGES, PROMPTS)
    torch.testing.assert_close(found.values.float(), latents)
    torch.testing.assert_close(found.conditioning["encoder_hidden_states"], expected["encoder_hidden_states"])


def test_a_single_prompt_is_that_of_all(prompted: Any, folder: Path) -> None:
    found = read_samples("images", prompted, None, None, "one.txt").conditioning["encoder_hidden_states"]
    torch.testing.assert_close(found, prompted.condition(["a cat"] * 3, 3)["encoder_hidden_states"])


@pytest.mark.parametrize(
    ("data", "conditioning"),
    [
        ("labels.npz", None),
        ("y.npz", None),
        ("images", "labels.txt"),
        ("images", "labels.npy"),
        ("images.npy", "labels.npz"),
    ],
)
def test_labels_reach_the_network(data: str, conditioning: str | None, labelled: Any, folder: Path) -> None:
    assert read_samples(data, labelled, None, None, conditioning).conditioning["class_labels"].tolist() == LABELS


def test_conditions_stay_with_their_samples_when_data_are_split(labelled: Any, folder: Path) -> None:
    parts = split(Asked("images", conditioning="labels.txt"), labelled, seed=0)
    whole = read_samples("labels.npz", labelled, None, None)
    labels = {sample.numpy().tobytes(): label for sample, label in zip(whole.values, LABELS, strict=True)}
    for part in parts:
        for sample, label in zip(part.values, part.conditioning["class_labels"].tolist(), strict=True):
            assert labels[sample.numpy().tobytes()] == label


@pytest.mark.parametrize("data", ["images.npy", "images", "other.npz", "labels.npy"])
def test_missing_prompts_name_all_ways(data: str, prompted: Any, folder: Path) -> None:
    ways = (
        r"a prompt per sample, and .* has none.*'prompts' next to 'images'.*image\.txt for image\.png.*--conditioning"
    )
    with pytest.raises(ValueError, match=ways):
        read_samples(data, prompted, None, None)


@pytest.mark.parametrize(
    ("data", "words"), [("images.npy", "holds no labels"), ("images", "these images have no labels")]
)
def test_missing_labels_name_all_ways(data: str, words: str, labelled: Any, folder: Path) -> None:
    with pytest.raises(ValueError, match=rf"{words}.*--conditioning"):
        read_samples(data, labelled, None, None)


def test_conditions_that_do_not_fit_are_refused(prompted: Any, labelled: Any, folder: Path) -> None:
    (folder / "two.txt").write_text("1\n2\n")
    for model in (prompted, labelled):
        with pytest.raises(ValueError, match=r"--conditioning two\.txt has 2 entries, but DATA has 3 samples"):
            read_samples("images", model, None, None, "two.txt")
    with pytest.raises(ValueError, match=r"labels must be whole numbers, one per line"):
        read_samples("images", labelled, None, None, "prompts.txt")
    with pytest.raises(ValueError, match=r"--conditioning images\.npy: these data have no conditioning.*np\.savez"):
        read_samples("images", prompted, None, None, "images.npy")
    (folder / "captioned" / "1.txt").unlink()
    with pytest.raises(ValueError, match=r"1 of 3 images have no caption \('1\.txt' is missing\)"):
        read_samples("captioned", prompted, None, None)


def test_the_command_line_takes_prompts_from_find_to_sample(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipelines.stable_diffusion(scheduler()).save_pretrained(folder / "pipeline")
    (folder / "two.txt").write_text("a cat\na dog\n")

    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out + printed.err

    code, said = run(
        "estimate", "./pipeline", "images", "-o", "s.safetensors", "--conditioning", "prompts.txt", "--no-check"
    )
    assert code == 0, said
    code, said = run("solve", "s.safetensors", "-o", "schedules.json")
    assert code == 0, said
    draw = ("sample", "./pipeline", "schedules.json", "-k", "2", "-n", "4", "-o", "drawn.npy")
    code, said = run(*draw)
    assert code == 2
    assert "MODEL takes a prompt per sample" in said
    assert "--conditioning prompts.txt" in said
    code, said = run(*draw, "--conditioning", "prompts.txt")
    assert code == 0, said
    assert np.load("drawn.npy").shape == (4, 3, 16, 16)
    study = ("study", "./pipeline", "images", "-o", "study", "--dry-run", "--conditioning")
    assert run(*study, "prompts.txt")[0] == 0
    code, said = run(*study, "two.txt")
    assert code == 2
    assert "two.txt has 2 entries, but DATA has 3 samples" in said


def test_loading_draws_no_bar_and_restores_those_of_the_user(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`find -q` printed "Loading weights: 100%" and which image processors need torchvision."""
    pipelines.stable_diffusion(scheduler()).save_pretrained(tmp_path / "tiny")
    loggings = [package.utils.logging for package in (diffusers, transformers)]
    levels = [logging.get_verbosity() for logging in loggings]
    for logging in loggings:
        logging.enable_progress_bar()
        logging.set_verbosity_warning()
    try:
        capfd.readouterr()
        load_diffusers(tmp_path / "tiny")
        assert capfd.readouterr().err == ""
        assert all(logging.is_progress_bar_enabled() for logging in loggings)
        assert transformers.utils.logging.get_verbosity() == loggings[0].WARNING
    finally:
        for logging, level in zip(loggings, levels, strict=True):
            logging.disable_progress_bar()
            logging.set_verbosity(level)
