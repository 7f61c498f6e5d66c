"""DPStrideScheduler: each step against the float64 closed form on uneven paths, inside pipelines, saved and loaded."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
import sys

import diffusers
import numpy as np
import pipelines
import pytest
import torch

import dpstride
from dpstride.fitted import FACTOR_SIZE, Fitted
from dpstride.integrations import diffusers_scheduler
from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.diffusers_scheduler import DPStrideScheduler
from dpstride.integrations.loaded import UnsupportedModelError
from dpstride.schedule import Schedule, ScheduleSet
from dpstride.statistics.noise import standard_normal

T = pipelines.T
PATH = (T, 13, 12, 5, 3, 0)  # uneven, and its last listed step is above 0


def schedules(process=None, paths=(PATH, (T, 4, 0)), **options):
    process = process or dpstride.ForwardProcess.linear(1000).subset(list(range(1, T + 1)))
    fitted = Fitted(
        mean_squared_error=np.linspace(0.0, 0.4, process.T + 1),
        learned_factor=np.tile(np.linspace(0.5, 0.1, FACTOR_SIZE), (process.T + 1, 1)),
    )
    return ScheduleSet.of([Schedule(process, path, options=options, fitted=fitted) for path in paths])


def short_linear():
    """The process of DDPMScheduler(T): linear betas from 1e-4 to 0.02 over T steps."""
    return dpstride.ForwardProcess.from_betas(np.linspace(1e-4, 0.02, T), name="linear")


def make(base=None, **arguments):
    base = base or diffusers.DDPMScheduler(T)
    arguments.setdefault("schedules", schedules(short_linear()))
    return DPStrideScheduler.from_config(base.config, **arguments)


def test_set_timesteps_looks_the_path_up_for_any_budget():
    scheduler = make()
    scheduler.set_timesteps(5)
    assert scheduler.timesteps.tolist() == [19, 12, 11, 4, 2]
    assert [scheduler.previous_timestep(t) for t in scheduler.timesteps] == [12, 11, 4, 2, -1]
    scheduler.set_timesteps(2)
    assert scheduler.timesteps.tolist() == [19, 3]
    scheduler.set_timesteps(timesteps=[19, 7, 0])
    assert scheduler.timesteps.tolist() == [19, 7, 0]
    with pytest.raises(ValueError, match="no schedule of 7 steps"):
        scheduler.set_timesteps(7)
    with pytest.raises(ValueError, match="one of the two"):
        scheduler.set_timesteps(5, timesteps=[3, 2])
    with pytest.raises(ValueError, match="on the grid"):
        scheduler.set_timesteps(timesteps=[25, 2])


def longdouble_step(alpha_bar, t, s, x, output, prediction_type, clip, variance, m, v, noise):
    """p(x_s given x_t) from the definitions, in long double: q's conditional Gaussian with x̂_0 for x_0, and its noise."""
    ld = np.longdouble
    a_t, a_s = ld(alpha_bar[t]), ld(alpha_bar[s])
    x, output, noise = (np.asarray(z, dtype=ld) for z in (x, output, noise))
    x0 = {
        "epsilon": lambda: (x - np.sqrt(1 - a_t) * output) / np.sqrt(a_t),
        "sample": lambda: output,
        "v_prediction": lambda: np.sqrt(a_t) * x - np.sqrt(1 - a_t) * output,
    }[prediction_type]()
    if clip:
        x0 = np.clip(x0, -1, 1)
    if s == 0:
        return x0
    alpha = a_t / a_s  # one big step: beta = 1 − alpha
    beta = 1 - alpha
    mean = np.sqrt(a_s) * beta / (1 - a_t) * x0 + np.sqrt(alpha) * (1 - a_s) / (1 - a_t) * x
    small = (1 - a_s) / (1 - a_t) * beta
    fraction = (np.asarray(v, dtype=ld) + 1) / 2
    sigma2 = {
        "posterior": small,
        "upper": beta,
        "learned_range": np.exp(fraction * np.log(beta) + (1 - fraction) * np.log(small)),
        # Bao et al.: the posterior's variance plus what x̂_0 does not know, (coefficient of x_0)² m.
        "optimal": small + (np.sqrt(a_s) * beta / (1 - a_t)) ** 2 * ld(m),
    }[variance]
    return mean + np.sqrt(sigma2) * noise


@pytest.mark.parametrize("prediction_type", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("variance", ["posterior", "upper", "learned_range", "optimal"])
def test_ancestral_step_is_the_closed_form_on_uneven_paths(monkeypatch, prediction_type, variance):
    clip = prediction_type == "epsilon"
    base = diffusers.DDPMScheduler(T, prediction_type=prediction_type, clip_sample=clip)
    scheduler = make(base, variance=variance)
    scheduler.set_timesteps(5)
    generator = torch.Generator().manual_seed(0)
    x, output, v, noise = torch.randn(4, 2, 3, 4, 4, generator=generator, dtype=torch.float64)
    monkeypatch.setattr(diffusers_scheduler, "randn_tensor", lambda shape, **_: noise.clone())
    alpha_bar = np.concatenate([[1.0], np.cumprod(1.0 - np.linspace(1e-4, 0.02, T).astype(np.longdouble))])
    fitted = scheduler.schedules.fitted.mean_squared_error
    for t, s in itertools.pairwise(PATH):
        expected = longdouble_step(
            alpha_bar, t, s, x, output, prediction_type, clip, variance, fitted[t], v.numpy(), noise
        )
        doubled = torch.cat([output, v], dim=1) if variance == "learned_range" else output
        found = scheduler.step(doubled, t - 1, x).prev_sample
        np.testing.assert_allclose(found.numpy(), expected.astype(np.float64), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("eta", [0.0, 0.4, 1.0])
def test_ddim_step_is_right_on_uneven_paths(monkeypatch, eta):
    scheduler = make(sampler="ddim", eta=eta)
    scheduler.set_timesteps(5)
    x, output, noise = torch.randn(3, 2, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    monkeypatch.setattr(diffusers_scheduler, "randn_tensor", lambda shape, **_: noise.clone())
    alpha_bar = np.concatenate([[1.0], np.cumprod(1.0 - np.linspace(1e-4, 0.02, T))])
    for t, s in itertools.pairwise(PATH):
        a_t, a_s = alpha_bar[t], alpha_bar[s]
        estimate = (x - math.sqrt(1 - a_t) * output) / math.sqrt(a_t)
        x0 = estimate.clamp(-1, 1)
        sigma = eta * math.sqrt((1 - a_s) / (1 - a_t) * (1 - a_t / a_s))  # Eq. 16 of Song, Meng and Ermon
        for clipped, towards in ((None, x0), (True, x0), (False, estimate)):
            eps = (x - math.sqrt(a_t) * towards) / math.sqrt(1 - a_t)
            expected = math.sqrt(a_s) * x0 + math.sqrt(1 - a_s - sigma**2) * eps + sigma * noise if s else x0
            found = scheduler.step(output, t - 1, x, use_clipped_model_output=clipped).prev_sample
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_on_the_full_path_it_is_diffusers_own_scheduler():
    full = tuple(range(T, -1, -1))
    base = diffusers.DDPMScheduler(T, variance_type="fixed_large")
    ours = make(base, schedules=schedules(short_linear(), paths=(full,)), variance="upper")
    ours.set_timesteps(T)
    base.set_timesteps(T)
    x, output = torch.randn(2, 2, 3, 4, 4, generator=torch.Generator().manual_seed(2))
    for t in base.timesteps.tolist():
        theirs = base.step(output, t, x, generator=torch.Generator().manual_seed(t)).prev_sample
        mine = ours.step(output, t, x, generator=torch.Generator().manual_seed(t)).prev_sample
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)  # its alpha_bar is float32


@pytest.mark.parametrize(
    ("variance_type", "left"),
    [("fixed_small", 0.0), ("fixed_small_log", 0.0), ("fixed_large", 1.0), ("learned_range", 1.0)],
)
def test_diffusers_leaves_noise_in_a_last_step_from_above_0_and_ours_does_not(variance_type, left):
    """As docs/integrations says. ``left`` is in units of the step's own noise; the network asks for the upper end."""
    base = diffusers.DDPMScheduler(T, variance_type=variance_type, clip_sample=False)
    base.set_timesteps(timesteps=[15, 3])
    x, output = torch.randn(2, 2, 3, 4, 4, generator=torch.Generator().manual_seed(3))
    doubled = torch.cat([output, torch.ones_like(output)], dim=1) if variance_type == "learned_range" else output
    alpha_bar = base.alphas_cumprod[3]
    x0 = (x - (1 - alpha_bar).sqrt() * output) / alpha_bar.sqrt()
    found = base.step(doubled, 3, x, generator=torch.Generator().manual_seed(4)).prev_sample
    noise = (found - x0) / (1 - alpha_bar).sqrt()
    assert float(noise.std()) == pytest.approx(left, abs=0.2)
    ours = make(base, schedules=schedules(short_linear(), paths=((16, 4, 0),)))
    ours.set_timesteps(2)
    torch.testing.assert_close(ours.step(doubled, 3, x).prev_sample, x0, rtol=1e-5, atol=1e-5)


class OurNoise:
    """Hands pipelines the noise of `dpstride.sample`: the prior first, then one draw per step that draws."""

    def __init__(self, steps, origin, n, shape, seed=0):
        draws = [("prior", 0), *(("reverse", int(origin[t])) for t in steps[:-2])]
        self.queue = [standard_normal(seed, purpose, step, 0, n, shape) for purpose, step in draws]

    def __call__(self, shape, generator=None, device=None, dtype=None, **_):
        noise = self.queue.pop(0)
        assert tuple(noise.shape) == tuple(shape)
        return noise.to(dtype)


def test_a_scheduler_samples_with_what_its_schedules_are_for():
    """DPM-Solver++ 2M step by step against `dpstride.sample`, whose formula tests/objectives/test_trajectory.py checks."""
    chosen = schedules(short_linear(), sampler="dpmpp_2m")
    scheduler = make(schedules=chosen)
    assert scheduler.sampler == "dpmpp_2m"

    def network(x, time):
        return torch.tanh(x) + 0.01 * time.to(x)[:, None, None, None]

    denoiser = dpstride.Denoiser(network, chosen.process, shape=(3, 4, 4), dtype=torch.float64)
    for _ in range(2):  # the second run must not remember the first
        scheduler.set_timesteps(5)
        x = standard_normal(6, "prior", 0, 0, 2, (3, 4, 4))
        for timestep in scheduler.timesteps:
            x = scheduler.step(network(x, timestep.expand(2)), timestep, x).prev_sample
        expected = dpstride.sample(denoiser, chosen[5], n=2, seed=6)
        assert torch.allclose(x.float(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variance", ["posterior", "upper", "optimal", "learned_range", "learned_optimal"])
def test_ddpm_pipeline_draws_what_dpstride_samples(monkeypatch, variance):
    learned = variance.startswith("learned")
    unet = pipelines.unet(out_channels=6 if learned else 3)
    base = diffusers.DDPMScheduler(T, variance_type="learned_range" if learned else "fixed_small")
    pipeline = diffusers.DDPMPipeline(unet=unet, scheduler=base)
    model = load_diffusers(pipeline)
    chosen = schedules(model.denoiser.process, variance=variance)
    expected = dpstride.sample(model.denoiser, chosen[5], n=3, seed=0)
    pipeline.scheduler = DPStrideScheduler.from_config(base.config, schedules=chosen)
    pipeline.set_progress_bar_config(disable=True)
    noise = OurNoise(PATH, chosen.process.origin, 3, (3, 8, 8))
    monkeypatch.setattr(diffusers_scheduler, "randn_tensor", noise)
    monkeypatch.setattr("diffusers.pipelines.ddpm.pipeline_ddpm.randn_tensor", noise)
    found = pipeline(batch_size=3, num_inference_steps=5, output_type="pt").images
    assert not noise.queue
    # x_t is float32 between steps there and float64 here; the pipeline returns (x/2 + 1/2) in [0, 1].
    torch.testing.assert_close(found, (expected / 2 + 0.5).clamp(0, 1), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("eta", [0.0, 0.7])
def test_ddim_pipeline_when_assigned_after_construction(monkeypatch, eta):
    base = diffusers.DDIMScheduler(T)
    pipeline = diffusers.DDIMPipeline(unet=pipelines.unet(), scheduler=base)
    model = load_diffusers(pipeline)
    chosen = schedules(model.denoiser.process)
    expected = dpstride.sample(model.denoiser, chosen[5], n=2, seed=0, sampler="ddim", eta=eta)
    pipeline.scheduler = DPStrideScheduler.from_config(pipeline.scheduler.config, schedules=chosen, sampler="ddim")
    pipeline.set_progress_bar_config(disable=True)
    noise = OurNoise(PATH, chosen.process.origin, 2, (3, 8, 8))
    monkeypatch.setattr(diffusers_scheduler, "randn_tensor", noise)
    monkeypatch.setattr("diffusers.pipelines.ddim.pipeline_ddim.randn_tensor", noise)
    found = pipeline(batch_size=2, num_inference_steps=5, output_type="pt", eta=eta).images
    torch.testing.assert_close(found, (expected / 2 + 0.5).clamp(0, 1), rtol=2e-5, atol=2e-5)


def test_dit_pipeline_samples_with_fixed_variance_and_refuses_the_learned_one():
    # 1000 classes, since DiTPipeline has the number of its null class written into it.
    pipeline = pipelines.dit(diffusers.DDIMScheduler(T, clip_sample=False), classes=1000)
    pipeline.set_progress_bar_config(disable=True)
    model = load_diffusers(pipeline)
    config = pipeline.scheduler.config
    chosen = schedules(model.denoiser.process, variance="learned_range")
    pipeline.scheduler = DPStrideScheduler.from_config(config, schedules=chosen, variance="optimal")
    for scale in (1.0, 4.0):
        result = pipeline([1, 2], guidance_scale=scale, num_inference_steps=5, output_type="np").images
        assert np.isfinite(result).all()
    pipeline.scheduler = DPStrideScheduler.from_config(config, schedules=chosen)
    with pytest.raises(ValueError, match=r"DiTPipeline drops them.*dpstride\.sample"):
        pipeline([1, 2], num_inference_steps=5)
    labels = {"class_labels": torch.tensor([1, 2])}
    assert dpstride.sample(model.denoiser, chosen[5], n=2, conditioning=labels).shape == (2, 4, 8, 8)


def test_stable_diffusion_pipeline_walks_the_path():
    base = diffusers.PNDMScheduler(
        T, beta_schedule="scaled_linear", beta_start=1e-3, beta_end=0.05, skip_prk_steps=True, steps_offset=1
    )
    pipeline = pipelines.stable_diffusion(base)
    pipeline.set_progress_bar_config(disable=True)
    chosen = schedules(load_diffusers(pipeline).denoiser.process)
    pipeline.scheduler = DPStrideScheduler.from_config(base.config, schedules=chosen)
    seen = []
    pipeline.unet.register_forward_pre_hook(lambda module, arguments: seen.append(int(arguments[1])))
    for arguments in ({"num_inference_steps": 5}, {"timesteps": [19, 7, 0]}):
        images = pipeline("a cat", guidance_scale=3.0, output_type="np", height=16, width=16, **arguments).images
        assert np.isfinite(images).all()
    assert seen == [19, 12, 11, 4, 2, 19, 7, 0]


def test_saved_pipeline_loads_without_us_and_ours_comes_back(tmp_path, monkeypatch):
    pipeline = diffusers.DDPMPipeline(unet=pipelines.unet(), scheduler=diffusers.DDPMScheduler(T))
    pipeline.save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    config = json.loads((tmp_path / "scheduler" / "scheduler_config.json").read_text())
    pipeline.scheduler = make(pipeline.scheduler, sampler="ddim", eta=0.3)
    pipeline.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "model_index.json").read_text()) == index
    assert json.loads((tmp_path / "scheduler" / "scheduler_config.json").read_text()) == config
    with monkeypatch.context() as hidden:  # as on a machine without dpstride
        for name in [name for name in sys.modules if name.partition(".")[0] == "dpstride"]:
            hidden.setitem(sys.modules, name, None)
        plain = diffusers.DDPMPipeline.from_pretrained(tmp_path)
    assert type(plain.scheduler) is diffusers.DDPMScheduler
    ours = DPStrideScheduler.from_pretrained(tmp_path, subfolder="scheduler")
    assert (ours.sampler, ours.eta, ours.variance) == ("ddim", 0.3, "posterior")
    ours.set_timesteps(5)
    assert ours.timesteps.tolist() == [19, 12, 11, 4, 2]
    with pytest.raises(ValueError, match="holds no dpstride_schedules"):
        DPStrideScheduler.from_pretrained(_plain(tmp_path / "plain"))


def _plain(folder):
    diffusers.DDPMScheduler(T).save_pretrained(folder)
    return folder


def test_it_is_itself_to_python_and_a_ddpm_scheduler_to_diffusers():
    scheduler = make()
    assert type(scheduler) is DPStrideScheduler
    assert isinstance(scheduler, DPStrideScheduler)
    assert isinstance(scheduler, diffusers.DDPMScheduler)
    for other in (copy.deepcopy(scheduler), pickle.loads(pickle.dumps(scheduler))):
        assert type(other) is DPStrideScheduler
        other.set_timesteps(2)
        assert other.timesteps.tolist() == [19, 3]


def test_schedules_may_be_a_file_a_set_or_one_schedule(tmp_path):
    chosen = schedules(short_linear())
    chosen.save(tmp_path / "schedules.json")
    for given in (tmp_path / "schedules.json", str(tmp_path / "schedules.json"), chosen, chosen[5]):
        scheduler = make(schedules=given)
        scheduler.set_timesteps(5)
        assert len(scheduler.timesteps) == 5


def test_a_thinned_grid_keeps_its_training_steps():
    process = short_linear().subset([1, 4, 9, 16, 20])
    scheduler = make(schedules=schedules(process, paths=((5, 3, 1, 0),)))
    scheduler.set_timesteps(3)
    assert scheduler.timesteps.tolist() == [19, 8, 0]


# HeunDiscreteScheduler makes numpy arrays of tensors in a way that numpy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
def test_configs_of_other_classes_are_not_filled_with_ddpm_defaults():
    heun = diffusers.HeunDiscreteScheduler(T)  # its beta_start is 0.00085 by default, and it does not clip
    process = dpstride.ForwardProcess.from_betas(np.linspace(0.00085, 0.012, T))
    scheduler = make(heun, schedules=schedules(process))
    assert scheduler.config.beta_start == 0.00085
    assert scheduler.facts.clip is None


def test_refusals():
    with pytest.raises(UnsupportedModelError, match="different noise levels"):
        make(diffusers.DDPMScheduler(T, beta_schedule="squaredcos_cap_v2"))
    with pytest.raises(UnsupportedModelError, match="thresholding"):
        make(diffusers.DDPMScheduler(T, thresholding=True))
    with pytest.raises(ValueError, match="needs schedules"):
        DPStrideScheduler.from_config(diffusers.DDPMScheduler(T).config)
    with pytest.raises(ValueError, match="'ddim', 'dpmpp_2m', 'heun', not 'runge'"):
        make(sampler="runge")
    with pytest.raises(ValueError, match=r"takes one network evaluation per step, but Heun's method takes two"):
        make(sampler="heun")
    with pytest.raises(ValueError, match="variance must be"):
        make(variance="fixed_small")
    with pytest.raises(ValueError, match="eta must lie"):
        make(eta=2.0)
    unfitted = ScheduleSet.of([Schedule(short_linear(), PATH)])
    with pytest.raises(ValueError, match="needs numbers fitted"):
        make(schedules=unfitted, variance="optimal")
    with pytest.raises(ValueError, match="before step"):
        make().step(torch.zeros(1, 3, 4, 4), 3, torch.zeros(1, 3, 4, 4))
    scheduler = make()
    scheduler.set_timesteps(5)
    with pytest.raises(ValueError, match="not on the path"):
        scheduler.step(torch.zeros(1, 3, 4, 4), 3, torch.zeros(1, 3, 4, 4))
