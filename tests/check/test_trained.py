"""`check` on small networks trained here: the right description fits, and wrong ones are told."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact import T, images
from spectra import spectra, spectrum_denoiser

from dpstride import Denoiser, ForwardProcess, check

DATA = images("cifar-test")
_S = 1.0 / (1.0 + np.exp(3.0 - 6.0 * np.arange(T + 1) / T))
SIGMOID = ForwardProcess.from_alpha_bar(np.clip((_S[-1] - _S[1:]) / (_S[-1] - _S[0]), 1e-9, 1.0))


@pytest.fixture(scope="module")
def trained() -> Any:
    """benchmarks/check_models.py, which trains small networks."""
    path = Path(__file__).parents[2] / "benchmarks" / "check_models.py"
    spec = importlib.util.spec_from_file_location("check_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["check_models"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["small-eps-linear", "small-x0-cosine", "small-v-batch-norm"])
def test_small_trained_networks_are_told(trained: Any, name: str) -> None:
    """A network trained on x_0 is off by far more than no network next to clean data; it must not be accused of that."""
    denoiser, data_range = trained.small_denoiser(name, steps=800)
    right = check(denoiser, DATA, data_range=data_range, progress=False)
    assert right.ok, right.sentence
    for predicts in {"eps", "x0", "v", "flow"} - {denoiser.predicts}:
        wrong = Denoiser(denoiser.network, denoiser.process, predicts=predicts, time_input=denoiser.time_input)
        found = check(wrong, DATA, data_range=data_range, progress=False)
        assert f"predicts='{denoiser.predicts}'" in found.changes, (predicts, found.sentence)


def test_noise_levels_that_only_the_declared_process_has_do_not_hide_the_right_one(trained: Any) -> None:
    """Sub-VP begins with far less noise than the cosine process: there the network knows nothing, however it is read."""
    denoiser, data_range = trained.small_denoiser("small-v-cosine")
    wrong = Denoiser(denoiser.network, ForwardProcess.sub_vp(trained.T), predicts="v", time_input=denoiser.time_input)
    found = check(wrong, DATA, data_range=data_range, progress=False)
    assert {"cosine process", "sigmoid process", "flow process"} & {*found.changes, *found.tied}, found.sentence
    assert found.verdict == "better"


def test_what_a_first_look_cannot_tell_apart_is_listed(trained: Any) -> None:
    denoiser, data_range = trained.small_denoiser("small-x0-cosine", steps=800)
    for seed in range(2):
        assert check(denoiser, DATA, seed, data_range=data_range, progress=False).ok
    early = Denoiser(denoiser.network, denoiser.process, predicts="x0", time_input=lambda i: max(i - 2, 0))
    found = check(early, DATA, data_range=data_range, progress=False)
    assert "time one step later" in (*found.changes, *found.tied), found.sentence


@pytest.mark.parametrize("declared", [ForwardProcess.sub_vp(T), SIGMOID], ids=["sub-VP", "sigmoid"])
def test_a_process_that_a_first_look_hardly_shows_is_measured_to_the_end(
    trained: Any, declared: ForwardProcess
) -> None:
    """Of 16 samples the difference is 0.02 ± 0.1 bits/dim, of 128 it is clear; and grids in time to 1 have this law too."""
    denoiser, data_range = trained.small_denoiser("small-eps-scaled-linear")
    assert check(denoiser, DATA, data_range=data_range, progress=False).ok
    wrong = Denoiser(denoiser.network, declared, predicts="eps", time_input=denoiser.time_input, shape=(3, 4, 4))
    found = check(wrong, DATA, data_range=data_range, progress=False)
    assert found.changes == ("scaled linear process",), found.sentence


def test_more_draws_tell_a_weak_network_from_an_untrained_one(trained: Any) -> None:
    """It is better than a Gaussian by a few percent, which the draws that find its process do not show."""
    denoiser, data_range = trained.small_denoiser("small-eps-unit-range")
    options = {"predicts": "eps", "time_input": denoiser.time_input, "clip": denoiser.clip, "shape": denoiser.shape}
    wrong = Denoiser(denoiser.network, ForwardProcess.sub_vp(trained.T), **options)
    found = check(wrong, DATA, data_range=data_range, progress=False)
    assert (found.verdict, found.changes) == ("better", ("linear process",)), found.sentence


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("predicts", ["eps", "x0"])
def test_a_conditional_model_of_spectra_is_not_accused(predicts: Any, seed: int) -> None:
    """Vectors, not images: smooth, of a few lines whose places are the conditioning, with hardly any noise of their own."""
    denoiser = spectrum_denoiser(predicts)
    found = check(denoiser, spectra(512, seed=1), seed, data_range="continuous", progress=False)
    assert found.ok, found.sentence
    wrong = "v" if predicts == "eps" else "eps"
    accused = Denoiser(denoiser.network, denoiser.process, predicts=wrong, time_input=denoiser.time_input, clip=None)
    found = check(accused, spectra(512, seed=1), seed, data_range="continuous", progress=False)
    assert f"predicts='{predicts}'" in found.changes, found.sentence
