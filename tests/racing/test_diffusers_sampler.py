"""diffusers' own schedulers as samplers of a race: the same samples as ours where the method is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dpstride
from dpstride import Denoiser, ForwardProcess, Schedule, diffusers_sampler, even_stride, sample
from dpstride.racing.passes import Passes
from dpstride.zoo.mixture import mixture_data, mixture_denoiser
from gaussian import gaussian_denoiser

diffusers = pytest.importorskip("diffusers")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # within diffusers
T = 200
MODEL = mixture_denoiser(T)
PATH = Schedule(MODEL.process, (200, 171, 120, 77, 31, 4, 0))


def scheduler(name: str, **options: Any) -> Any:
    betas = 1.0 - (MODEL.process.f[1:] / MODEL.process.f[:-1]) ** 2
    return getattr(diffusers, name)(
        num_train_timesteps=T, trained_betas=np.array(betas), prediction_type="sample", **options
    )


def drawn(name: str, count: int = 6, **options: Any) -> torch.Tensor:
    walk = diffusers_sampler(scheduler(name, **options)).walk(MODEL, PATH, seed=0)
    return walk.advance(walk.start(0, count), 0, 0)


def test_euler_is_ddim_and_dpm_solver_is_ours() -> None:
    ours = sample(MODEL, PATH, 6, seed=0, sampler="dpmpp_2m")
    options = {"algorithm_type": "dpmsolver++", "solver_order": 2, "final_sigmas_type": "zero"}
    torch.testing.assert_close(drawn("DPMSolverMultistepScheduler", **options).float(), ours, atol=1e-4, rtol=0)
    ours = sample(MODEL, PATH, 6, seed=0, sampler="ddim")
    # Euler's x_T is scaled by sqrt(1 + σ²) there, and by 1/f here: the same in exact numbers, on a float32 table of theirs.
    torch.testing.assert_close(drawn("EulerDiscreteScheduler").float(), ours, atol=2e-3, rtol=0)


def test_heun_is_ours() -> None:
    ours = sample(MODEL, PATH, 6, seed=0, sampler="heun")
    torch.testing.assert_close(drawn("HeunDiscreteScheduler").float(), ours, atol=2e-3, rtol=0)


def test_noise_of_a_stochastic_scheduler_belongs_to_each_sample_whatever_the_batch() -> None:
    own = diffusers_sampler(scheduler("DPMSolverMultistepScheduler", algorithm_type="sde-dpmsolver++"))
    walk = own.walk(MODEL, PATH, seed=3)
    noise = walk.start(0, 6)
    whole = walk.advance(noise, 0, 0)
    parts = torch.cat([walk.advance(noise[:2], 0, 0), walk.advance(noise[2:], 0, 2)])
    torch.testing.assert_close(whole, parts, atol=1e-6, rtol=0)
    assert not torch.allclose(whole, drawn("DPMSolverMultistepScheduler", algorithm_type="dpmsolver++"))


def test_heun_takes_two_passes_and_lands_on_data() -> None:
    own = diffusers_sampler(scheduler("HeunDiscreteScheduler"))
    assert own.cost == Passes(2, last=1)
    real = mixture_data(400, seed=1) / 127.5 - 1.0
    walk = own.walk(MODEL, even_stride(MODEL.process, 20), seed=0)
    x = walk.advance(walk.start(0, 200), 0, 0)
    assert dpstride.energy_distance(x, real).value < 0.02


def test_flow_match_euler_is_ddim_on_a_flow() -> None:
    process = ForwardProcess.rectified_flow(50)
    model = Denoiser(lambda x, time: 0.7 * x + time[:, None], process, predicts="flow", shape=(3,), clip=None)
    path = Schedule(process, (50, 33, 20, 4, 0))
    own = diffusers_sampler(diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)).walk(model, path, seed=0)
    ours = sample(model, path, 5, seed=0, sampler="ddim")
    torch.testing.assert_close(own.advance(own.start(0, 5), 0, 0).float(), ours, atol=1e-4, rtol=1e-4)


FLOW = ForwardProcess.rectified_flow(2000)  # UniPC rounds its times to thousandths: two of this path's are the same
FLOW_PATH = Schedule(FLOW, (2000, 1999, 1703, 1400, 1100, 800, 501, 500, 250, 100, 0))
UNIPC: dict[str, Any] = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}


def unipc(model: Denoiser, **options: Any) -> torch.Tensor:
    own = diffusers_sampler(diffusers.UniPCMultistepScheduler(**UNIPC, **options)).walk(model, FLOW_PATH, seed=0)
    return own.advance(own.start(0, 5), 0, 0)


def test_unipc_of_first_order_without_its_corrector_is_euler_on_a_flow() -> None:
    model = gaussian_denoiser(FLOW, np.full(3, 0.2), np.full(3, 0.3), predicts="flow")
    ours = sample(model, FLOW_PATH, 5, seed=0, sampler="ddim")
    found = unipc(model, solver_order=1, disable_corrector=list(range(10)))
    torch.testing.assert_close(found.float(), ours, atol=2e-5, rtol=0)


def test_unipc_is_nearer_to_the_exact_flow_than_euler() -> None:
    """Straight lines end at N(0, v)'s x_0 = sqrt(v) x_T."""
    model = gaussian_denoiser(FLOW, np.zeros(3), np.full(3, 0.3), predicts="flow")
    walk = diffusers_sampler(diffusers.UniPCMultistepScheduler(**UNIPC)).walk(model, FLOW_PATH, seed=0)
    exact = walk.start(0, 5) * 0.3**0.5
    euler = sample(model, FLOW_PATH, 5, seed=0, sampler="ddim")
    assert (unipc(model) - exact).abs().max() < 0.1 * (euler - exact).abs().max()


def test_unipc_that_would_leave_the_path_is_refused() -> None:
    model = gaussian_denoiser(FLOW, np.zeros(3), np.ones(3), predicts="flow")
    with pytest.raises(ValueError, match=r"to clean data with final_sigmas_type='zero', but this one has 'sigma_min'"):
        unipc(model, final_sigmas_type="sigma_min")
    with pytest.raises(ValueError, match=r"use_karras_sigmas = True, which replaces"):
        unipc(model, use_karras_sigmas=True)
    with pytest.raises(ValueError, match=r"UniPCMultistepScheduler takes .* with use_flow_sigmas=True"):
        dpstride.Schedule(FLOW, (2000, 0)).for_diffusers(diffusers.UniPCMultistepScheduler())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("DDIMScheduler", {}, "DDIMScheduler takes no timesteps"),
        ("EulerAncestralDiscreteScheduler", {}, "EulerAncestralDiscreteScheduler takes no timesteps"),
        ("UniPCMultistepScheduler", {}, "UniPCMultistepScheduler takes no timesteps .* UniPC for flows alone"),
    ],
)
def test_schedulers_that_take_no_list_are_refused_by_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawn(name, **options)


def test_a_scheduler_of_another_prediction_and_what_is_no_scheduler_are_refused() -> None:
    wrong = diffusers.DPMSolverMultistepScheduler(num_train_timesteps=T, prediction_type="epsilon")
    walk = diffusers_sampler(wrong).walk(MODEL, PATH, seed=0)
    with pytest.raises(ValueError, match=r"predicts x0, but the scheduler has prediction_type='epsilon'"):
        walk.advance(walk.start(0, 1), 0, 0)
    with pytest.raises(ValueError, match="takes a diffusers scheduler, not int"):
        diffusers_sampler(3)


def test_it_can_be_raced(tmp_path: Path) -> None:
    race = dpstride.tune(
        MODEL, mixture_data(100, seed=0), tmp_path / "out", progress=False, budgets=(3,), samples=8, race_samples=4,
        first_samples=4, choosing=16, reference=6, sampler=diffusers_sampler(scheduler("DPMSolverMultistepScheduler")),
    )  # fmt: skip
    assert "diffusers' DPMSolverMultistepScheduler" in race.answer
