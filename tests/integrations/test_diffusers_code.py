"""Programs of `diffusers_code`, run on small pipelines, against our own samplers from the same noise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import diffusers
import numpy as np
import pipelines
import pytest
import torch
from click.testing import CliRunner

import dpstride
from dpstride.cli import _run
from dpstride.integrations.command import export_command
from dpstride.samplers import Move, find

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

STEPS = (20, 14, 9, 3, 1, 0)
# Whatever another pipeline's config may hold that would replace the list or change the steps.
MISLEADING = {
    "timestep_spacing": "linspace",
    "use_karras_sigmas": True,
    "clip_sample": True,
    "algorithm_type": "dpmsolver",
}


@pytest.fixture
def schedule() -> dpstride.Schedule:
    return dpstride.Schedule(dpstride.ForwardProcess.from_betas(np.linspace(1e-4, 0.02, 20)), STEPS)


@pytest.fixture
def flow() -> dpstride.Schedule:
    return dpstride.Schedule(dpstride.ForwardProcess.rectified_flow(20), (20, 15, 6, 0))


def run(code: str, pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the program leaves, after drawing with ``pipeline``."""
    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", lambda model: pipeline)
    pipeline.set_progress_bar_config(disable=True)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(code, "draw.py", "exec"), names)
    assert len(names["images"]) >= 1
    return names


def drawn_by_dpstride(network: Any, schedule: dpstride.Schedule, sampler: str) -> torch.Tensor:
    torch.manual_seed(0)
    x, rule, before, last = torch.randn(4, 3, 8, 8), find(sampler), None, None
    for t, s in pairwise(schedule.steps):
        f, g = float(schedule.process.f[t]), float(schedule.process.g[t])
        with torch.no_grad():
            x0_hat = (x - g * network(x, t - 1).sample) / f
        if s == 0:
            return x0_hat
        x, _ = rule.step(Move(process=schedule.process, t=t, s=s, before=before, last=last, x=x, x0_hat=x0_hat))
        before, last = t, x0_hat
    raise AssertionError("a path ends at 0")


@pytest.mark.parametrize("sampler", ["ddim", "dpmpp_2m"])
def test_steps_are_those_of_our_samplers(
    schedule: dpstride.Schedule, sampler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = diffusers.DDPMPipeline(pipelines.unet(), diffusers.DDPMScheduler(num_train_timesteps=20))
    pipeline.scheduler.register_to_config(**MISLEADING)
    names = run(schedule.diffusers_code(sampler), pipeline, monkeypatch)
    expected = drawn_by_dpstride(pipeline.unet, schedule, sampler)
    assert torch.allclose(names["x"], expected, rtol=2e-4, atol=2e-4)  # diffusers keeps noise levels in float32
    assert (tmp_path / "sample.png").exists()


def test_a_class_conditional_network_is_given_labels(
    schedule: dpstride.Schedule, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The program ended with "class_labels should be provided when doing class conditioning"."""
    monkeypatch.chdir(tmp_path)
    unet = pipelines.unet(num_class_embeds=3)
    pipeline = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler(num_train_timesteps=20))
    names = run(schedule.diffusers_code("ddim"), pipeline, monkeypatch)
    expected = drawn_by_dpstride(lambda x, t: unet(x, t, class_labels=torch.tensor([0, 1, 2, 0])), schedule, "ddim")
    assert torch.allclose(names["x"], expected, rtol=2e-4, atol=2e-4)


def test_ancestral_steps_are_those_of_ddpm(
    schedule: dpstride.Schedule, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = diffusers.DDPMPipeline(
        pipelines.unet(), diffusers.DDPMScheduler(num_train_timesteps=20, variance_type="fixed_large")
    )
    scheduler = run(schedule.diffusers_code(), pipeline, monkeypatch)["scheduler"]
    assert [int(scheduler.previous_timestep(t)) for t in scheduler.timesteps] == [step - 1 for step in STEPS[1:]]
    for t, s in pairwise(STEPS[:-1]):
        found = float(scheduler._get_variance(t - 1))
        # diffusers keeps alpha_bar in float32, and 1 - alpha_bar near clean data is a thousandth of its precision
        assert found == pytest.approx(float(schedule.process.posterior_variance(t, s)), rel=1e-3)


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "dpmpp_2m"])
def test_text_pipelines_are_given_the_list(
    schedule: dpstride.Schedule, sampler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = pipelines.stable_diffusion(
        diffusers.PNDMScheduler(num_train_timesteps=20, skip_prk_steps=True, steps_offset=1)
    )
    run(schedule.diffusers_code(sampler), pipeline, monkeypatch)
    np.testing.assert_allclose(pipeline.scheduler.timesteps.numpy(), np.array(STEPS[:-1]) - 1, atol=0.02)


def test_a_flow_has_its_own_times(flow: dpstride.Schedule, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = pipelines.stable_diffusion_3(
        diffusers.FlowMatchEulerDiscreteScheduler(num_train_timesteps=20, shift=3.0)
    )
    run(flow.diffusers_code("ddim"), pipeline, monkeypatch)
    np.testing.assert_allclose(pipeline.scheduler.sigmas.numpy(), flow.times, rtol=1e-6, atol=1e-7)
    dynamic = pipelines.flux(
        diffusers.FlowMatchEulerDiscreteScheduler(num_train_timesteps=20, use_dynamic_shifting=True)
    )
    run(flow.diffusers_code("ddim"), dynamic, monkeypatch)
    np.testing.assert_allclose(dynamic.scheduler.sigmas.numpy(), flow.times, rtol=1e-6, atol=1e-7)


def test_what_diffusers_does_not_have_is_refused(schedule: dpstride.Schedule, flow: dpstride.Schedule) -> None:
    fitted = dpstride.Schedule(schedule.process, STEPS, options={"variance": "optimal"})
    with pytest.raises(ValueError, match=r"no diffusers scheduler supports on uneven steps. Use DPStrideScheduler, or"):
        fitted.diffusers_code()
    assert "EulerDiscreteScheduler" in fitted.diffusers_code("ddim")
    noisy = dpstride.Schedule(schedule.process, STEPS, options={"sampler": "ddim", "eta": 0.5})
    with pytest.raises(ValueError, match=r"eta = 0\.5"):
        noisy.diffusers_code()
    with pytest.raises(ValueError, match="do not take the steps of 'ancestral'"):
        flow.diffusers_code()
    exploding = dpstride.Schedule(dpstride.ForwardProcess.ve([0.0, 0.1, 1.0, 50.0]), (3, 1, 0))
    with pytest.raises(ValueError, match="no training steps"):
        exploding.diffusers_code("ddim")


def test_command(tmp_path: Any, schedule: dpstride.Schedule, capsys: Any) -> None:
    file = tmp_path / "schedules.json"
    schedule.save(file)
    given = [str(file), "--budget", "5", "--to", "diffusers-code", "--sampler", "ddim"]
    assert CliRunner().invoke(export_command, given).output == schedule.diffusers_code("ddim")
    assert _run(["export", str(file), "--budget", "5", "--to", "csv", "--sampler", "ddim"]) == 2
    assert "--sampler is for --to diffusers-code, not csv" in capsys.readouterr().err
