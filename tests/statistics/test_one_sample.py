"""One sample given where a batch is meant: what was taken for samples is said, or it is refused with the remedy."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import dpstride
from dpstride import Denoiser, ForwardProcess
from dpstride.statistics.data import Samples

PROCESS = ForwardProcess.linear(4)


def denoiser(shape: tuple[int, ...] | None) -> Denoiser:
    return Denoiser(lambda x, time: torch.zeros_like(x), PROCESS, predicts="eps", shape=shape)


@pytest.mark.parametrize("shape", [(28, 28), (3, 32, 32), (1, 28, 28), (32, 32, 3)], ids=str)
def test_what_looks_like_one_image_is_said_to_be_taken_for_samples(shape: tuple[int, ...]) -> None:
    taken = rf"read as {shape[0]} samples? of shape \({shape[1]},.*data\[None\]"
    with pytest.warns(UserWarning, match=taken):
        dpstride.estimate(denoiser(None), torch.zeros(shape, dtype=torch.uint8), progress=False)


@pytest.mark.parametrize("shape", [(64, 28, 28), (64, 20), (8, 3, 32, 32), (16, 1, 28), (5, 5)], ids=str)
def test_batches_are_taken_without_a_word(shape: tuple[int, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Samples.read(torch.zeros(shape, dtype=torch.uint8))) == shape[0]


def test_tables_and_signals_of_real_numbers_are_no_images() -> None:
    for shape in ((28, 28), (32, 32, 3), (64, 8, 128)):
        assert Samples.read(torch.zeros(shape), None, "continuous").shape == shape[1:]


@pytest.mark.filterwarnings("ignore:Data of shape")
def test_a_model_that_knows_its_shape_names_the_missing_axis() -> None:
    with pytest.raises(ValueError, match=r"data\[None\] for a single sample\. Reshape"):
        dpstride.estimate(denoiser((3, 32, 32)), torch.zeros(3, 32, 32, dtype=torch.uint8), progress=False)
    with pytest.raises(ValueError, match=r"data\[:, None\] for samples without their channel axis"):
        dpstride.estimate(denoiser((1, 28, 28)), torch.zeros(64, 28, 28, dtype=torch.uint8), progress=False)


def test_one_colour_image_in_a_file_is_not_taken_for_grey_ones_in_silence(tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.zeros((32, 32, 3), dtype=np.uint8))
    with pytest.warns(UserWarning, match="read as 32 samples"):
        dpstride.read_data(tmp_path / "image.npy")
