"""Which axis of small images was read as their channels: said where it might be otherwise, and in the notes of a result."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import dpstride
from dpstride.finding.heard import heard
from dpstride.finding.inputs import Asked, split
from dpstride.integrations.loaded import LoadedModel
from small_network import denoiser_of


def read(shape: tuple[int, ...], folder: Path) -> tuple[int, ...]:
    np.save(folder / "data.npy", np.zeros(shape, dtype=np.uint8))
    return tuple(dpstride.read_data(folder / "data.npy").shape)


@pytest.mark.parametrize(
    ("shape", "taken", "words"),
    [
        (
            (9, 4, 4, 3),
            (9, 4, 4, 3),
            r"with channels first: 9 images with 4 channels of 4 × 3\. If channels are last, save them",
        ),
        (
            (9, 2, 4, 4),
            (9, 4, 2, 4),
            r"with channels last: 9 images with 4 channels of 2 × 4\. If channels are first, pass them",
        ),
        ((9, 16, 4, 4), (9, 4, 16, 4), "with channels last: 9 images with 4 channels of 16 × 4"),
        ((9, 4, 4, 4), (9, 4, 4, 4), "with channels first: 9 images with 4 channels of 4 × 4"),
    ],
)
def test_small_images_are_read_aloud(
    shape: tuple[int, ...], taken: tuple[int, ...], words: str, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match=words):
        assert read(shape, tmp_path) == taken


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((9, 3, 4, 4), (9, 3, 4, 4)),
        ((9, 1, 4, 4), (9, 1, 4, 4)),
        ((9, 32, 32, 3), (9, 3, 32, 32)),
        ((9, 32, 48, 3), (9, 3, 32, 48)),
        ((9, 3, 32, 32), (9, 3, 32, 32)),
        ((9, 8, 8, 8), (9, 8, 8, 8)),
        ((9, 1, 1, 1), (9, 1, 1, 1)),
    ],
)
def test_images_that_can_be_read_in_one_way_only_are_read_in_silence(
    shape: tuple[int, ...], taken: tuple[int, ...], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(shape, tmp_path) == taken


def test_what_was_taken_is_a_note_of_the_result(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros((9, 4, 4, 3), dtype=np.uint8))
    model, asked = LoadedModel(denoiser_of()), Asked(str(tmp_path / "data.npy"))
    with pytest.warns(UserWarning, match="with channels first"):
        parts, notes = heard(lambda: split(asked, model, seed=0))
    assert parts[0].shape == (4, 4, 3)
    [note] = notes
    assert note.startswith("Data of shape (9, 4, 4, 3) were read with channels first")
