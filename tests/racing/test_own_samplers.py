"""Samplers of the user's own that misbehave, or were edited: found before their samples are compared or mixed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpstride import Denoiser, Schedule, ScheduleSet, diffusers_sampler, even_stride, tune
from dpstride.evaluate.features.extractor import FeatureExtractor
from dpstride.evaluate.kernel_distance import feature_discrepancy
from dpstride.racing.arena import Arena
from dpstride.racing.candidates import FAMILY
from dpstride.racing.measure import Measure
from dpstride.racing.sampling import Own
from dpstride.runs.identity import OtherWorkError
from dpstride.statistics.data import Samples
from dpstride.statistics.probes import probe_on_noise
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

T = 12
SMALL: dict[str, Any] = {
    "budgets": (2,), "samples": 4, "race_samples": 4, "first_samples": 4, "choosing": 4, "reference": 4, "progress": False,
}  # fmt: skip
DATA = mixture_data(64, seed=0)


def euler(denoiser: Denoiser, schedule: Schedule, noise: Tensor, *, factor: float = 1.0) -> Tensor:
    x, f, g = noise, denoiser.process.f, denoiser.process.g
    for t, s in zip(schedule.steps, schedule.steps[1:], strict=False):
        x0 = denoiser(x, t).x0_hat
        x = f[s] * x0 + factor * g[s] * (x - f[t] * x0) / g[t]
    return x


class Counting:
    """Draws a little otherwise at every call."""

    calls = 0

    def __call__(self, denoiser: Denoiser, schedule: Schedule, noise: Tensor) -> Tensor:
        self.calls += 1
        return euler(denoiser, schedule, noise) * (1.0 + 1e-3 * self.calls)


def drawing(denoiser: Denoiser, schedule: Schedule, noise: Tensor) -> Tensor:
    return euler(denoiser, schedule, noise + 0.1 * torch.randn_like(noise))


def over_the_batch(denoiser: Denoiser, schedule: Schedule, noise: Tensor) -> Tensor:
    x = euler(denoiser, schedule, noise)
    return x / x.std() * 0.5


def try_out(sampler: Any) -> None:
    model = mixture_denoiser(T)
    identity = {"behaviour": probe_on_noise(model, None, 8, 8).behaviour.to_dict()}
    Own(sampler).behaviour(model, even_stride(model.process, 2), identity, None)


@pytest.mark.attack("networks that misbehave quietly")
@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (
            drawing,
            r"'drawing' gave different samples when called again with the same noise \(a relative difference of \S+, "
            r"along 2 even steps\)",
        ),
        (Counting(), r"'Counting' gave different samples .* or keeps state between calls"),
        (over_the_batch, r"'over_the_batch' gives a different sample in a batch of two than alone"),
    ],
)
def test_a_sampler_that_is_no_function_of_each_noise_is_refused(sampler: Any, message: str) -> None:
    try_out(euler)
    with pytest.raises(ValueError, match=message):
        try_out(sampler)


@pytest.mark.attack("networks that misbehave quietly")
def test_a_random_sampler_does_not_race(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'drawing' gave different samples when called again with the same noise"):
        tune(mixture_denoiser(T), DATA, tmp_path / "out", **SMALL, sampler=drawing)


@pytest.mark.attack("networks that misbehave quietly")
def test_a_sampler_that_writes_into_its_arguments_changes_its_own_copies_only() -> None:
    labels = [torch.tensor(i) for i in range(3)]

    def writing(denoiser: Denoiser, schedule: Schedule, noise: Tensor, conditioning: Any) -> Tensor:
        for label in conditioning:
            label += 7
        return noise.zero_()

    model = mixture_denoiser(T)
    walk = Own(writing).walk(model, even_stride(model.process, 2), 0)
    state = walk.start(0, 3)
    kept = state.clone()
    walk.advance(state, 0, 0, labels)
    assert list(map(int, labels)) == [0, 1, 2]
    assert torch.equal(state, kept)


def test_a_fourth_argument_that_has_a_value_is_the_sampler_s_own() -> None:
    def sampler(denoiser: Denoiser, schedule: Schedule, noise: Tensor, factor: float = 0.5) -> Tensor:
        return factor * noise

    model = mixture_denoiser(T)
    walk = Own(sampler).walk(model, even_stride(model.process, 2), 0)
    x = walk.start(0, 2)
    assert torch.equal(walk.advance(x, 0, 0, torch.arange(2)), 0.5 * x)


def draw(folder: Path, sampler: Any) -> Any:
    """Four samples, kept in ``folder``."""
    model = mixture_denoiser(T)
    real = Samples.read(DATA)
    identity = {"model": model.describe(), "behaviour": probe_on_noise(model, None, 8, 8).behaviour.to_dict()}
    features = Measure().of_real(real)["features"]
    arena = Arena(model, sampler, Measure(), features, conditioning=real, seed=0, folder=folder, identity=identity)
    drawn = arena.draw(even_stride(model.process, 2), 4)
    assert drawn is not None
    return drawn.features


@pytest.mark.attack("edited models on resume, reuse and in workers")
def test_samples_of_an_edited_sampler_are_not_mixed_with_those_that_are_kept(tmp_path: Path) -> None:
    before = draw(tmp_path, Own(euler, "mine"))
    edited = Own(functools.partial(euler, factor=0.99), "mine")
    with pytest.raises(
        OtherWorkError, match=r"holds work of a sampler that behaves differently: .* what it draws differs by"
    ):
        draw(tmp_path, edited)
    assert np.array_equal(draw(tmp_path, Own(euler, "mine")), before)


@pytest.mark.attack("edited models on resume, reuse and in workers")
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_scheduler_of_another_configuration_is_another_sampler(tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")

    def sampler(order: int) -> Own:
        return diffusers_sampler(
            diffusers.DPMSolverMultistepScheduler(
                num_train_timesteps=T, beta_end=0.2, prediction_type="sample", solver_order=order
            )
        )

    draw(tmp_path, sampler(2))
    with pytest.raises(OtherWorkError, match=r"sampler_settings\.solver_order \(there '2', here '3'\)"):
        draw(tmp_path, sampler(3))


@pytest.mark.attack("networks that misbehave quietly")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bool])
def test_samples_that_are_no_real_numbers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"real numbers, but it returned \(2, 1, 4, 4\) of {dtype}"):
        try_out(lambda denoiser, schedule, noise: noise.to(dtype))


@pytest.mark.attack("networks that misbehave quietly")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda images: None, r"must return a tensor of real features \[n, 3\], not NoneType"),
        (lambda images: images.numpy(), r"not ndarray"),
        (lambda images: images.flatten(1)[:, :3].to(torch.complex64), r"not torch.complex64"),
    ],
)
def test_features_that_are_no_real_numbers_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureExtractor("mine", "Fréchet distance, mine", 3, "1", wrong)(DATA[:2])


@pytest.mark.attack("networks that misbehave quietly")
@pytest.mark.parametrize("size", [1e21, -1e30, float("inf"), float("nan"), 1e300])
def test_features_that_no_distance_can_be_computed_of_are_refused_at_once(size: float) -> None:
    with pytest.raises(ValueError, match=r"gave a feature of size|Features must be finite"):
        FeatureExtractor("mine", "Fréchet distance, mine", 3, "1", lambda x: x.double().flatten(1)[:, :3] + size)(
            DATA[:2]
        )
    half = FeatureExtractor("mine", "Fréchet distance, mine", 3, "1", lambda x: x.double().flatten(1)[:, :3] * 3e17)
    assert np.isfinite(feature_discrepancy(half(DATA[:9]), half(DATA[9:20])).standard_error)


@pytest.mark.attack("edited models on resume, reuse and in workers")
def test_a_race_does_not_go_on_with_edited_features(tmp_path: Path) -> None:
    def race(gain: float) -> Any:
        extractor = FeatureExtractor("mine", "-", 3, "1", lambda x: gain * x.double().flatten(1)[:, :3])
        model, options = mixture_denoiser(T), {**SMALL, "budgets": (2,)}
        return tune(model, DATA, tmp_path / "out", **options, features=extractor)

    before = race(1.0)
    with pytest.raises(
        OtherWorkError, match=r"feature extractor that behaves differently.*its fingerprint is the same"
    ):
        race(1.01)
    assert race(1.0).finish.entries == before.finish.entries


@pytest.mark.attack("networks that misbehave quietly")
def test_an_extractor_that_writes_into_the_images_gets_its_own() -> None:
    images = DATA[:4].clone()
    FeatureExtractor("mine", "Fréchet distance, mine", 3, "1", lambda x: x.zero_().flatten(1)[:, :3])(images)
    assert torch.equal(images, DATA[:4])


def test_schedules_by_the_name_of_another_candidate_are_refused(tmp_path: Path) -> None:
    """The path that won would be taken for that of the other one."""
    given = ScheduleSet.of([even_stride(mixture_denoiser(T).process, 2)])
    for name in (FAMILY[3].words, "karras, rho 3"):
        with pytest.raises(ValueError, match="is the name of another candidate"):
            tune(mixture_denoiser(T), DATA, tmp_path / "out", **SMALL, also={name: given})
    for wrong in ([given], {3: given}, {"": given}):
        with pytest.raises(ValueError, match="also must be a dict of schedules by name"):
            tune(mixture_denoiser(T), DATA, tmp_path / "out", **SMALL, also=wrong)
