"""What is read from a scheduler's config: float64 betas against diffusers' own float32 ones, and every refusal."""

from __future__ import annotations

import diffusers
import numpy as np
import pytest

from dpstride import ForwardProcess
from dpstride.integrations.loaded import UnsupportedModelError
from dpstride.integrations.scheduler_config import read_scheduler


@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid", "laplace"])
def test_process_is_the_schedulers_own_in_more_digits(schedule):
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=200, beta_schedule=schedule)
    process = read_scheduler(scheduler.config).process
    # float32 betas are off by 6e-8 and, at 1 - beta = 1e-3, by 6e-5 relative; a product of 200 stays below 1e-4.
    np.testing.assert_allclose(process.f[1:] ** 2, scheduler.alphas_cumprod.numpy(), rtol=1e-4)
    assert process.T == 200


def test_common_schedules_are_the_cores_own_bit_by_bit():
    linear = read_scheduler(diffusers.DDPMScheduler().config).process
    assert linear.fingerprint == ForwardProcess.linear(1000).fingerprint
    cosine = read_scheduler(diffusers.DDPMScheduler(4000, beta_schedule="squaredcos_cap_v2").config).process
    assert cosine.fingerprint == ForwardProcess.cosine(4000).fingerprint


def test_trained_betas_are_taken_as_given():
    betas = np.linspace(1e-3, 0.3, 7)
    facts = read_scheduler(diffusers.DDPMScheduler(7, trained_betas=betas.tolist()).config)
    assert facts.process.fingerprint == ForwardProcess.from_betas(betas).fingerprint


@pytest.mark.parametrize(
    ("variance_type", "expected"),
    [
        ("fixed_small", "posterior"),
        ("fixed_small_log", "posterior"),
        ("fixed_large", "upper"),
        ("fixed_large_log", "upper"),
        ("learned_range", "learned_range"),
    ],
)
def test_variance_type(variance_type, expected):
    facts = read_scheduler(diffusers.DDPMScheduler(variance_type=variance_type).config)
    assert facts.variance == expected
    assert any(variance_type in note for note in facts.notes)


@pytest.mark.parametrize(("prediction_type", "expected"), [("epsilon", "eps"), ("sample", "x0"), ("v_prediction", "v")])
def test_prediction_type(prediction_type, expected):
    assert read_scheduler(diffusers.DDPMScheduler(prediction_type=prediction_type).config).predicts == expected


def test_clipping_is_the_configs_and_absent_where_the_scheduler_has_none():
    assert read_scheduler(diffusers.DDPMScheduler(clip_sample_range=3.0).config).clip == (-3.0, 3.0)
    assert read_scheduler(diffusers.DDPMScheduler(clip_sample=False).config).clip is None
    assert read_scheduler(diffusers.EulerDiscreteScheduler().config).clip is None


def test_zero_terminal_snr_is_exact_for_v_and_refused_for_eps():
    arguments = {"beta_schedule": "scaled_linear", "rescale_betas_zero_snr": True, "num_train_timesteps": 100}
    scheduler = diffusers.DDIMScheduler(prediction_type="v_prediction", **arguments)
    process = read_scheduler(scheduler.config).process
    assert process.f[-1] == 0.0
    np.testing.assert_allclose(process.f[1:] ** 2, scheduler.alphas_cumprod.numpy(), rtol=2e-5, atol=1e-9)
    np.testing.assert_allclose(process.f**2 + process.g**2, 1.0, rtol=1e-14)
    with pytest.raises(UnsupportedModelError, match="divides by zero"):
        read_scheduler(diffusers.DDIMScheduler(**arguments).config)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (diffusers.DDPMScheduler(thresholding=True), "thresholding=True"),
        (diffusers.DDPMScheduler(variance_type="learned"), "log-variance"),
        (diffusers.LCMScheduler(), "distilled"),
        (diffusers.EDMEulerScheduler(), "no betas"),
        (diffusers.DPMSolverMultistepScheduler(use_flow_sigmas=True), "use_flow_sigmas"),
        (diffusers.EulerDiscreteScheduler(timestep_type="continuous"), "log-sigmas"),
        (diffusers.DPMSolverMultistepScheduler(prediction_type="flow_prediction"), "not 'flow_prediction'"),
    ],
)
def test_refusals_name_the_rule(scheduler, message):
    with pytest.raises(UnsupportedModelError, match=message):
        read_scheduler(scheduler.config, class_name=type(scheduler).__name__)


def test_overrides_are_honoured_and_stated():
    config = diffusers.DDPMScheduler(thresholding=True).config
    facts = read_scheduler(config, {"thresholding": False})
    assert any("overridden by you: thresholding = False (was True)" in note for note in facts.notes)
    with pytest.raises(UnsupportedModelError, match="does not have"):
        read_scheduler(config, {"tresholding": False})
