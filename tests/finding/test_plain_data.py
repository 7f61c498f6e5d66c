"""What data say without a model, and notes on scores that say little."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from torch import Tensor

import dpstride
from dpstride import Denoiser, ForwardProcess
from dpstride.evaluate.comparison import compare
from dpstride.finding.plain_data import gaussian_bits_per_dim, gaussian_notes, tie_notes
from dpstride.statistics.data import Samples
from gaussian import LN2

PROCESS = ForwardProcess.linear(60)
SCALE = np.array([1.0, 0.5, 0.2])


def table(count: int, seed: int) -> Tensor:
    """Three columns of Gaussian numbers, of which two are alike."""
    x = np.random.default_rng(seed).standard_normal((count, 3))
    x[:, 1] = 0.8 * x[:, 0] + 0.6 * x[:, 1]
    return torch.from_numpy(x * SCALE)


def ideal(x: Tensor, time: Tensor) -> Tensor:
    """E[x_0 given x_t], in the eigenbasis of the covariance."""
    t = time.long() + 1
    f, g = (torch.from_numpy(np.array(each))[t][:, None] for each in (PROCESS.f, PROCESS.g))
    alike = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]])
    variance, vectors = torch.linalg.eigh(torch.from_numpy(alike * np.outer(SCALE, SCALE)))
    return (f * variance / (f**2 * variance + g**2) * (x.double() @ vectors)) @ vectors.T


def continuous(data: Tensor) -> Samples:
    return Samples.read(data, None, "continuous")


def test_the_references_are_the_densities_of_fitted_gaussians() -> None:
    choosing, scoring = table(40, 0), table(30, 1)
    found = gaussian_bits_per_dim(continuous(choosing), continuous(scoring))
    x, y = choosing.numpy(), scoring.numpy()
    each = -norm.logpdf(y, x.mean(0), x.std(0, ddof=1)).mean() / LN2
    full = -multivariate_normal.logpdf(y, x.mean(0), np.cov(x.T)).mean() / (3 * LN2)
    assert found == {"per dimension": pytest.approx(each), "full covariance": pytest.approx(full)}
    assert set(gaussian_bits_per_dim(continuous(choosing[:14]), continuous(scoring))) == {"per dimension"}


def test_levels_and_constant_columns_have_no_such_reference() -> None:
    levels = Samples.read(torch.zeros(30, 3, dtype=torch.uint8))
    assert gaussian_bits_per_dim(levels, levels) == {}
    constant = table(30, 0)
    constant[:, 1] = 0.25
    assert gaussian_bits_per_dim(continuous(constant), continuous(constant)) == {}


def test_worse_than_no_model_is_said_beyond_two_standard_errors() -> None:
    assert gaussian_notes({"per dimension": 1.0}, 1.1, 0.2) == ()
    assert gaussian_notes({}, 9.0, 0.1) == ()
    (note,) = gaussian_notes({"per dimension": 1.0}, 2.0, 0.2)
    assert (
        "worse than no model at all: 2.000 bits/dim at best, and a Gaussian fitted to each dimension has 1.000" in note
    )


def test_columns_with_ties_are_named() -> None:
    data = table(50, 0)
    assert tie_notes(continuous(data)) == ()
    data[:20, 2] = 0.0
    (note,) = tie_notes(continuous(data))
    assert note.startswith("1 of 3 dimensions have ties (number 2, counted from 0: 40% of its values are the same)")
    assert tie_notes(Samples.read(torch.zeros(30, 3, dtype=torch.uint8))) == ()


def test_find_tells_the_reference_and_what_is_worse_than_it(tmp_path: Path) -> None:
    for name, network in (("good", ideal), ("bad", lambda x, time: torch.full_like(x, 2.0))):
        denoiser = Denoiser(network, PROCESS, predicts="x0", clip=None, shape=(3,))
        found = dpstride.find(
            denoiser,
            table(80, 0),
            tmp_path / name,
            data_range="continuous",
            tolerance=None,
            check=False,
            progress=False,
        )
        assert set(found.details["gaussian"]) == {"per dimension", "full covariance"}
        written = json.loads((tmp_path / name / "comparison.json").read_text("utf-8"))
        assert written["gaussian"] == found.details["gaussian"]
        assert "For comparison, a Gaussian fitted to the choosing data" in found.summary
        assert any("worse than no model at all" in note for note in found.notes) == (name == "bad")


def test_an_unclipped_network_far_outside_the_data_is_told_to_clip() -> None:
    """x̂_0 = 40 at much noise: even strides take long steps from there."""

    def wild(x: Tensor, time: Tensor) -> Tensor:
        return torch.where(time[:, None] > 40, 40.0, ideal(x, time))

    for clip in (None, (-4.0, 4.0)):
        denoiser = Denoiser(wild, PROCESS, predicts="x0", clip=clip, shape=(3,))
        statistics = dpstride.estimate(denoiser, table(16, 0), data_range="continuous", progress=False)
        warned = compare(dpstride.schedules_from(statistics), statistics).warnings
        assert any("x0_hat lies far outside the data" in note for note in warned) == (clip is None)


def test_scores_that_are_almost_all_decoder_are_called_that() -> None:
    """A network that knows the data exactly: nothing is left to pay for but the noise that the grid begins with."""
    data = torch.full((12, 3), 0.25, dtype=torch.float64)
    for known, network in ((True, lambda x, time: torch.full_like(x, 0.25)), (False, ideal)):
        denoiser = Denoiser(network, PROCESS, predicts="x0", clip=None, shape=(3,))
        statistics = dpstride.estimate(
            denoiser, data if known else table(12, 0), data_range="continuous", progress=False
        )
        warned = compare(dpstride.schedules_from(statistics), statistics).warnings
        assert any("Almost all of the score is the decoder's" in note for note in warned) == known


def test_another_clipping_than_that_of_the_schedules_is_said_at_once() -> None:
    data = table(16, 0)
    chosen = Denoiser(ideal, PROCESS, predicts="x0", clip=(-4.0, 4.0), shape=(3,))
    schedule = dpstride.optimise(chosen, data, data_range="continuous", max_budget=4, progress=False)[4]
    other = Denoiser(ideal, PROCESS, predicts="x0", clip=None, shape=(3,))
    said = r"chosen with x0_hat clipped to \(-4.0, 4.0\), but the model now runs without clipping"
    with pytest.warns(UserWarning, match=said):
        dpstride.sample(other, schedule, 2)
    with pytest.warns(UserWarning, match=said):
        dpstride.bits_per_dim(other, data, schedule, data_range="continuous")
    dpstride.sample(chosen, schedule, 2)  # warnings are errors here
