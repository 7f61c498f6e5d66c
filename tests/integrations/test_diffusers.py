"""Round trips: each pipeline built small by diffusers, saved, loaded by us, and x̂_0 held against its own scheduler."""

from __future__ import annotations

import json

import diffusers
import numpy as np
import pipelines
import pytest
import torch

import dpstride
from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.loaded import UnsupportedModelError

T = pipelines.T
FLOAT32 = 2e-5  # float32 networks; x̂_0 of eps divides by f >= 0.6 on these short grids


def precise(scheduler):
    """The scheduler with its float32 alpha_bar in float64, so that only the algebra is compared."""
    betas = scheduler.betas.double()
    if not scheduler.config.get("rescale_betas_zero_snr"):
        scheduler.alphas_cumprod = torch.cumprod(1.0 - betas, 0)
    return scheduler


def noisy(model, seed=0, samples=3):
    x = torch.randn(samples, *model.denoiser.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    t = torch.randint(1, model.denoiser.process.T + 1, (samples,), generator=torch.Generator().manual_seed(seed + 1))
    return x, t


def own_x0_hat(scheduler, network, x, t):
    """x̂_0 of each sample by the pipeline's own scheduler: the pred_original_sample of its step."""
    rows = []
    for i, step in enumerate(t.tolist()):
        with torch.inference_mode():
            output = network(x[i : i + 1].float(), torch.tensor(step - 1), i).double()
        if output.shape[1] == 2 * x.shape[1] and not getattr(scheduler, "variance_type", "").startswith("learned"):
            output = output[:, : x.shape[1]]  # what DiTPipeline does
        scheduler.num_inference_steps = scheduler.config.num_train_timesteps
        rows.append(scheduler.step(output, step - 1, x[i : i + 1]).pred_original_sample)
    return torch.cat(rows)


@pytest.mark.parametrize("prediction_type", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("kind", ["DDPM", "DDIM"])
@pytest.mark.parametrize("clip_sample", [True, False])
def test_pixel_pipelines(tmp_path, kind, prediction_type, clip_sample):
    scheduler = getattr(diffusers, f"{kind}Scheduler")(
        T, prediction_type=prediction_type, clip_sample=clip_sample, clip_sample_range=0.7
    )
    pipeline = getattr(diffusers, f"{kind}Pipeline")(unet=pipelines.unet(), scheduler=scheduler)
    pipeline.save_pretrained(tmp_path / "folder")
    model = load_diffusers(tmp_path / "folder")
    assert model.denoiser.shape == (3, 8, 8)
    assert model.denoiser.name == "folder"
    x, t = noisy(model)
    expected = own_x0_hat(precise(pipeline.scheduler), lambda x, t, i: pipeline.unet(x, t).sample, x, t)
    torch.testing.assert_close(model.denoiser(x, t).x0_hat, expected, rtol=FLOAT32, atol=FLOAT32)


def test_float32_products_of_the_scheduler_itself_agree_to_their_own_precision(tmp_path):
    pipeline = diffusers.DDPMPipeline(unet=pipelines.unet(), scheduler=diffusers.DDPMScheduler(1000, clip_sample=False))
    model = load_diffusers(pipeline)
    x, t = noisy(model)
    expected = own_x0_hat(pipeline.scheduler, lambda x, t, i: pipeline.unet(x, t).sample, x, t)
    # alpha_bar of 1000 float32 factors is off by about 1e-5, and x̂_0 of eps is proportional to 1/f.
    torch.testing.assert_close(model.denoiser(x, t).x0_hat, expected, rtol=1e-3, atol=1e-4)


def test_learned_range_keeps_its_fraction_and_can_be_dropped(tmp_path):
    unet = pipelines.unet(out_channels=6)
    scheduler = diffusers.DDPMScheduler(T, variance_type="learned_range")
    pipeline = diffusers.DDPMPipeline(unet=unet, scheduler=scheduler)
    model = load_diffusers(pipeline)
    x, t = noisy(model)
    with torch.inference_mode():
        v = unet(x.float(), t - 1).sample[:, 3:].double()
    torch.testing.assert_close(model.denoiser(x, t).fraction, (v + 1.0) / 2.0, rtol=1e-6, atol=1e-6)
    dropped = load_diffusers(pipeline, variance="upper")
    assert dropped.denoiser(x, t).fraction is None
    torch.testing.assert_close(dropped.denoiser(x, t).x0_hat, model.denoiser(x, t).x0_hat)
    assert any("dropped" in note for note in dropped.notes)


def test_variance_that_does_not_fit_the_network_is_refused():
    fixed = diffusers.DDPMScheduler(T)
    with pytest.raises(UnsupportedModelError, match="twice its channels"):
        load_diffusers(diffusers.DDPMPipeline(unet=pipelines.unet(out_channels=6), scheduler=fixed))
    with pytest.raises(UnsupportedModelError, match="no variance channels"):
        load_diffusers(diffusers.DDPMPipeline(unet=pipelines.unet(), scheduler=fixed), variance="learned_range")
    with pytest.raises(UnsupportedModelError, match="inpainting"):
        load_diffusers(diffusers.DDPMPipeline(unet=pipelines.unet(in_channels=7), scheduler=fixed))


def test_class_conditional_unet_takes_the_labels_that_come_with_the_data(tmp_path):
    pipeline = diffusers.DDPMPipeline(unet=pipelines.unet(num_class_embeds=5), scheduler=diffusers.DDPMScheduler(T))
    pipeline.save_pretrained(tmp_path)
    model = load_diffusers(tmp_path)
    assert model.conditioning == "a class label per sample"
    x, t = noisy(model)
    labels = torch.tensor([0, 4, 2])
    expected = own_x0_hat(
        precise(pipeline.scheduler), lambda x, t, i: pipeline.unet(x, t, labels[i : i + 1]).sample, x, t
    )
    torch.testing.assert_close(model.denoiser(x, t, labels).x0_hat, expected, rtol=FLOAT32, atol=FLOAT32)
    images = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    statistics = dpstride.estimate(model.denoiser, (images, labels), progress=False)
    assert np.isfinite(statistics.mean_squared_error).all()
    with pytest.raises(ValueError, match="without labels"):
        model.denoiser(x, t)


def test_zero_terminal_snr_model_runs_to_the_pure_noise_end():
    scheduler = diffusers.DDIMScheduler(T, prediction_type="v_prediction", rescale_betas_zero_snr=True)
    pipeline = diffusers.DDIMPipeline(unet=pipelines.unet(), scheduler=scheduler)
    model = load_diffusers(pipeline)
    assert any("zero terminal SNR" in note for note in model.notes)
    x, _ = noisy(model)
    t = torch.tensor([1, T // 2, T])
    expected = own_x0_hat(pipeline.scheduler, lambda x, t, i: pipeline.unet(x, t).sample, x, t)
    torch.testing.assert_close(model.denoiser(x, t).x0_hat, expected, rtol=1e-4, atol=1e-4)


def test_dit_uses_the_variance_that_its_pipeline_drops(tmp_path):
    pipeline = pipelines.dit(diffusers.DDIMScheduler(T, clip_sample=False))
    pipeline.save_pretrained(tmp_path)
    model = load_diffusers(tmp_path)
    assert model.denoiser.variance == "learned_range"
    assert model.data_range == "continuous"
    x, t = noisy(model)
    labels = torch.tensor([3, 9, 0])

    def network(x, t, i):
        return pipeline.transformer(x, timestep=t[None], class_labels=labels[i : i + 1]).sample

    expected = own_x0_hat(precise(pipeline.scheduler), network, x, t)
    found = model.denoiser(x, t, {"class_labels": labels})
    torch.testing.assert_close(found.x0_hat, expected, rtol=FLOAT32, atol=FLOAT32)
    assert found.fraction is not None


def test_guided_dit_is_the_pipelines_own_mixture():
    pipeline = pipelines.dit(diffusers.DDIMScheduler(T, clip_sample=False))
    model = load_diffusers(pipeline, guidance_scale=4.0)
    assert any("no ELBO of its own" in warning for warning in model.warnings)
    x, t = noisy(model)
    labels = torch.tensor([3, 9, 0])

    def network(x, t, i):
        def run(label):
            return pipeline.transformer(x, timestep=t[None], class_labels=torch.tensor([label])).sample

        conditional, null = run(int(labels[i])), run(10)
        return null + 4.0 * (conditional - null)

    expected = own_x0_hat(precise(pipeline.scheduler), network, x, t)
    found = model.denoiser(x, t, {"class_labels": labels}).x0_hat
    torch.testing.assert_close(found, expected, rtol=5 * FLOAT32, atol=5 * FLOAT32)


def images(count=3):
    return torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))


def test_latents_are_the_autoencoders_scaled_and_do_not_depend_on_the_batch_size():
    pipeline = pipelines.dit(diffusers.DDIMScheduler(T, clip_sample=False))
    model = load_diffusers(pipeline, latents="mean")
    latents, condition = model.encode(images(), [1, 2, 3])
    with torch.inference_mode():
        mean = pipeline.vae.encode(images().float() / 127.5 - 1.0).latent_dist.mean
    torch.testing.assert_close(latents, (mean - 0.25) * 0.5)
    assert condition["class_labels"].tolist() == [1, 2, 3]
    sampled = load_diffusers(pipeline)
    one, many = (sampled.encode(images(), [1, 2, 3], batch_size=size)[0] for size in (1, 3))
    torch.testing.assert_close(one, many, rtol=1e-5, atol=1e-5)
    decoded = model.decode(latents)
    with torch.inference_mode():
        expected = pipeline.vae.decode(latents / 0.5 + 0.25).sample.clamp(-1.0, 1.0)
    torch.testing.assert_close(decoded, expected)
    with pytest.raises(ValueError, match="one label per image"):
        model.encode(images(), [1])
    with pytest.raises(ValueError, match=r"0 … 9"):
        model.encode(images(), [1, 2, 10])


@pytest.mark.parametrize("guidance_scale", [None, 3.0])
def test_stable_diffusion(tmp_path, guidance_scale):
    scheduler = diffusers.DDIMScheduler(
        T, beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False, steps_offset=1
    )
    pipeline = pipelines.stable_diffusion(scheduler)
    pipeline.save_pretrained(tmp_path)
    model = load_diffusers(tmp_path, guidance_scale=guidance_scale, negative_prompt="dull")
    prompts = ["a cat", "", "a cat"]
    latents, condition = model.encode(images(), prompts)
    with torch.inference_mode():
        embeddings, null = pipeline.encode_prompt(prompts, "cpu", 1, True, negative_prompt=["dull"] * 3)
    torch.testing.assert_close(condition["encoder_hidden_states"], embeddings, rtol=1e-5, atol=1e-5)
    x, t = noisy(model)

    def network(x, t, i):
        conditional = pipeline.unet(x, t, encoder_hidden_states=embeddings[i : i + 1]).sample
        if guidance_scale is None:
            return conditional
        unconditional = pipeline.unet(x, t, encoder_hidden_states=null[i : i + 1]).sample
        return unconditional + guidance_scale * (conditional - unconditional)

    expected = own_x0_hat(precise(pipeline.scheduler), network, x, t)
    torch.testing.assert_close(model.denoiser(x, t, condition).x0_hat, expected, rtol=FLOAT32, atol=FLOAT32)
    assert bool(model.warnings) == (guidance_scale is not None)
    schedules = dpstride.optimise(
        model.denoiser, (latents, condition), data_range=model.data_range, max_budget=4, progress=False
    )
    assert schedules[4].steps[0] == T
    with pytest.raises(ValueError, match=r"without them|needs its condition"):
        model.denoiser(x, t)


def test_stable_diffusion_xl_is_told_its_size():
    scheduler = diffusers.EulerDiscreteScheduler(T, beta_schedule="scaled_linear")
    pipeline = pipelines.stable_diffusion_xl(scheduler)
    model = load_diffusers(pipeline)
    _, condition = model.encode(images(2), ["a", "b"])
    assert condition["time_ids"][0].tolist() == [16.0, 16.0, 0.0, 0.0, 16.0, 16.0]
    x, t = noisy(model, samples=2)
    with torch.inference_mode():
        added = {"text_embeds": condition["text_embeds"], "time_ids": condition["time_ids"]}
        output = pipeline.unet(
            x.float(), t - 1, encoder_hidden_states=condition["encoder_hidden_states"], added_cond_kwargs=added
        ).sample
    # Euler's own algebra: x̂_0 = x_sigma - sigma output at x_sigma = x_t/f.
    alpha_bar = torch.cumprod(1.0 - scheduler.betas.double(), 0)[t - 1][:, None, None, None]
    expected = x / alpha_bar.sqrt() - ((1.0 - alpha_bar) / alpha_bar).sqrt() * output.double()
    torch.testing.assert_close(model.denoiser(x, t, condition).x0_hat, expected, rtol=FLOAT32, atol=FLOAT32)


@pytest.mark.parametrize("kind", ["stable_diffusion_3", "flux"])
def test_flow_matching_transformers_end_where_their_own_euler_step_ends(tmp_path, kind):
    shift = {"shift": 3.0} if kind == "stable_diffusion_3" else {"use_dynamic_shifting": True}
    pipeline = getattr(pipelines, kind)(diffusers.FlowMatchEulerDiscreteScheduler(T, **shift))
    pipeline.save_pretrained(tmp_path)
    flags = {"sample_size": 8, "guidance_scale": 3.5} if kind == "flux" else {}
    model = load_diffusers(tmp_path, **flags)
    process = model.denoiser.process
    if kind == "stable_diffusion_3":  # the grid is the scheduler's own, and clean data
        np.testing.assert_allclose(process.times[:0:-1], pipeline.scheduler.sigmas.numpy()[:T], rtol=1e-6)
    _, condition = model.encode(images(), ["a", "b", "c"])
    x, t = noisy(model)
    expected = []
    plain = diffusers.FlowMatchEulerDiscreteScheduler(1000)
    for i in range(3):
        # One Euler step from sigma to 0 lands on x − sigma u, which is x̂_0 of a rectified flow.
        plain.set_timesteps(sigmas=[float(process.times[t[i]])])
        arguments = {key: value[i : i + 1] for key, value in condition.items()}
        with torch.inference_mode():
            if kind == "flux":
                packed = pipeline._pack_latents(x[i : i + 1].float(), 1, 4, 8, 8)
                ids = pipeline._prepare_latent_image_ids(1, 4, 4, "cpu", torch.float32)
                output = pipeline.transformer(
                    hidden_states=packed,
                    timestep=plain.timesteps[:1] / 1000,
                    guidance=torch.tensor([3.5]),
                    txt_ids=torch.zeros(condition["encoder_hidden_states"].shape[1], 3),
                    img_ids=ids,
                    **arguments,
                ).sample
                output = pipeline._unpack_latents(output, 16, 16, pipeline.vae_scale_factor)
            else:
                output = pipeline.transformer(x[i : i + 1].float(), timestep=plain.timesteps[:1], **arguments).sample
            expected.append(plain.step(output, plain.timesteps[0], x[i : i + 1].float()).prev_sample)
    found = model.denoiser(x, t, condition).x0_hat
    torch.testing.assert_close(found, torch.cat(expected).double(), rtol=FLOAT32, atol=FLOAT32)
    assert model.denoiser.trained_continuous
    statistics = dpstride.estimate(
        model.denoiser, (x, condition), data_range=model.data_range, progress=False, samples=2
    )
    assert np.isfinite(statistics.mean_squared_error).all()


def test_flow_refusals():
    pipeline = pipelines.flux(diffusers.FlowMatchEulerDiscreteScheduler(T), guidance_embeds=False)
    with pytest.raises(UnsupportedModelError, match="takes no guidance"):
        load_diffusers(pipeline, guidance_scale=2.0)
    with pytest.raises(UnsupportedModelError, match="no reverse variance"):
        load_diffusers(pipeline, variance="upper")
    assert load_diffusers(pipeline, T=7, sample_size=8).denoiser.process.T == 7


def test_everything_read_is_shown(tmp_path):
    pipeline = diffusers.DDPMPipeline(unet=pipelines.unet(), scheduler=diffusers.DDPMScheduler(T))
    text = load_diffusers(pipeline).describe()
    for part in ("DDPMScheduler", "linear with 20 steps", "epsilon", "fixed_small", "clipped to [-1, 1]", "T = 20"):
        assert part in text


def test_what_is_no_pipeline_is_refused(tmp_path):
    (tmp_path / "unet").mkdir()
    with pytest.raises(UnsupportedModelError, match=r"model_index\.json"):
        load_diffusers(tmp_path)
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "DDPMPipeline"}))
    with pytest.raises(UnsupportedModelError, match="could not load it"):
        load_diffusers(tmp_path)
    with pytest.raises(UnsupportedModelError, match="A network alone has no noise schedule"):
        load_diffusers(pipelines.unet())
    pipeline = diffusers.DDPMPipeline(unet=pipelines.unet(), scheduler=diffusers.DDPMScheduler(T))
    with pytest.raises(UnsupportedModelError, match="has none"):
        load_diffusers(pipeline, guidance_scale=2.0)
    with pytest.raises(UnsupportedModelError, match="fixed steps"):
        load_diffusers(pipeline, T=5)
    ldm = diffusers.ScoreSdeVePipeline(unet=pipelines.unet(), scheduler=diffusers.ScoreSdeVeScheduler())
    with pytest.raises(UnsupportedModelError, match="not a pipeline that dpstride knows"):
        load_diffusers(ldm)
