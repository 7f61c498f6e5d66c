"""`sample(..., sampler="dpmpp_2m")` against diffusers' own DPM-Solver++ on the same path from the same noise."""

from __future__ import annotations

import warnings

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler

from dpstride import Denoiser, ForwardProcess, Schedule, sample
from dpstride.statistics.noise import standard_normal


@pytest.mark.parametrize("steps", [(1000, 812, 640, 401, 233, 90, 17, 0), (1000, 999, 500, 2, 0), (1000, 300, 0)])
def test_samples_are_those_of_diffusers(steps: tuple[int, ...]) -> None:
    weight = torch.randn(12, 12, generator=torch.Generator().manual_seed(0)) / 4.0

    def network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ weight.to(x)) + 0.1 * torch.sin(time.to(x)[:, None] / 50.0)

    denoiser = Denoiser(network, ForwardProcess.linear(1000), clip=None, shape=(12,), dtype=torch.float64)
    found = sample(denoiser, Schedule(denoiser.process, steps), n=3, seed=4, sampler="dpmpp_2m")
    scheduler = DPMSolverMultistepScheduler(
        num_train_timesteps=1000,
        beta_start=1e-4,
        beta_end=0.02,
        beta_schedule="linear",
        algorithm_type="dpmsolver++",
        solver_order=2,
        solver_type="midpoint",
        final_sigmas_type="zero",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # diffusers' own, about numpy
        scheduler.set_timesteps(timesteps=[step - 1 for step in steps[:-1]])
    x = standard_normal(4, "prior", 0, 0, 3, (12,))
    for timestep in scheduler.timesteps:
        x = scheduler.step(network(x, timestep.expand(3)), timestep, x).prev_sample
    # diffusers keeps noise levels in float32, whose rounding the steps near clean data amplify.
    assert torch.allclose(found.double(), x, rtol=2e-4, atol=2e-4)
