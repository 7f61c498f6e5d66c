"""OpenAI checkpoints: the mapping against a network written from its description, folders, and bits/dim by the formulas."""

from __future__ import annotations

import dataclasses
import json
import math

import diffusers
import numpy as np
import pytest
import torch
from openai_network import Walk

import dpstride
from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.loaded import UnsupportedModelError
from dpstride.integrations.openai import load_openai, save_as_diffusers
from dpstride.integrations.openai_flags import PRESETS, OpenAIFlags
from dpstride.statistics.decoder import decoder_nats
from dpstride.statistics.noise import standard_normal

SMALL = {"num_channels": 32, "num_res_blocks": 1, "image_size": 16, "attention_resolutions": "8,4"}
KINDS = {
    "cifar10": (SMALL | {"channel_mult": "1,2,2"}, "cifar10-l-hybrid"),
    "imagenet64: constant heads, widths 64 and 96": (SMALL | {"channel_mult": "1,2,3"}, "imagenet64-l-hybrid"),
    "imagenet64 class-conditional": (SMALL | {"channel_mult": "1,2,3"}, "imagenet64-class-conditional"),
    "lsun: no scale shift": (SMALL | {"channel_mult": "1,2", "attention_resolutions": "8"}, "lsun-bedroom"),
    "guided 64": (SMALL | {"channel_mult": "1,2,3", "num_head_channels": 16}, "guided-imagenet64"),
    "guided 128": (SMALL | {"channel_mult": "1,1,2"}, "guided-imagenet128"),
    "heads differ on the way up": (
        SMALL | {"channel_mult": "1,2", "num_heads_upsample": 2, "learn_sigma": False},
        "cifar10-l-vlb",
    ),
    "x0, T = 300": (
        SMALL | {"channel_mult": "1,2", "learn_sigma": False, "predict_xstart": True, "diffusion_steps": 300},
        "cifar10-l-vlb",
    ),
}


def checkpoint(changes, preset):
    """Flags, a random checkpoint of them, inputs, and what the network described in the papers returns."""
    repository, line = PRESETS[preset]
    flags = OpenAIFlags.parse(line, repository, changes)
    walk = Walk(flags)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, flags.image_size, flags.image_size, generator=generator)
    t = torch.tensor([2, flags.diffusion_steps])
    labels = torch.tensor([7, 999]) if flags.class_cond else None
    time = (t - 1).float() * (1000.0 / flags.diffusion_steps if flags.rescale_timesteps else 1.0)
    return flags, walk, x, t, labels, walk(x, time, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_mapping_is_exact_and_survives_as_a_diffusers_folder(tmp_path, kind):
    changes, preset = KINDS[kind]
    _, walk, x, t, labels, expected = checkpoint(changes, preset)
    torch.save(walk.state, tmp_path / "model.pt")
    model = load_openai(tmp_path / "model.pt", preset=preset, **changes)
    condition = () if labels is None else (labels,)
    with torch.inference_mode():
        found = model.denoiser.network(x, t - 1, *condition)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    save_as_diffusers(model, tmp_path / "folder")
    pipeline = diffusers.DDPMPipeline.from_pretrained(tmp_path / "folder")
    with torch.inference_mode():
        again = pipeline.unet(x, t - 1, **({} if labels is None else {"class_labels": labels})).sample
    torch.testing.assert_close(again, found, rtol=0, atol=0)
    reloaded = load_diffusers(tmp_path / "folder")
    assert reloaded.denoiser.process.fingerprint == model.denoiser.process.fingerprint
    for name in ("predicts", "variance", "clip", "shape"):
        assert getattr(reloaded.denoiser, name) == getattr(model.denoiser, name)
    prediction = reloaded.denoiser(x.double(), t, *condition)
    torch.testing.assert_close(prediction.x0_hat, model.denoiser(x.double(), t, *condition).x0_hat, rtol=0, atol=0)


def test_folders_name_dpstride_only_where_diffusers_has_no_configuration(tmp_path):
    for kind, plain in (("guided 64", True), ("imagenet64: constant heads, widths 64 and 96", False)):
        changes, preset = KINDS[kind]
        _, walk, *_ = checkpoint(changes, preset)
        save_as_diffusers(load_openai(walk.state, preset=preset, **changes), tmp_path / preset)
        library = json.loads((tmp_path / preset / "model_index.json").read_text())["unet"][0]
        assert (library == "diffusers") == plain


def test_presets_are_the_released_flags():
    hybrid = OpenAIFlags.parse(PRESETS["cifar10-l-hybrid"][1])
    assert (hybrid.num_channels, hybrid.num_res_blocks, hybrid.num_heads) == (128, 3, 4)
    assert (hybrid.diffusion_steps, hybrid.noise_schedule, hybrid.dropout) == (4000, "cosine", 0.3)
    assert hybrid.learn_sigma
    assert hybrid.rescale_timesteps
    assert hybrid.use_scale_shift_norm
    assert hybrid.attention_levels == {1, 2}
    assert OpenAIFlags.parse(PRESETS["imagenet64-l-vlb"][1]).attention_levels == {2, 3}
    assert not OpenAIFlags.parse(PRESETS["guided-imagenet64"][1], "guided-diffusion").rescale_timesteps


@pytest.mark.parametrize(
    ("learn_sigma", "sigma_small", "variance"),
    [(True, False, "learned_range"), (False, True, "posterior"), (False, False, "upper")],
)
def test_bits_per_dim_of_a_respaced_chain_by_the_stated_formulas(learn_sigma, sigma_small, variance):
    """improved-diffusion's calc_bpd_loop, formula by formula: respaced betas, elementwise KL, tanh CDF, open bins."""
    changes = SMALL | {"channel_mult": "1,2", "learn_sigma": learn_sigma, "sigma_small": sigma_small}
    _, walk, *_ = checkpoint(changes, "cifar10-l-hybrid")
    denoiser = load_openai(walk.state, preset="cifar10-l-hybrid", **changes).denoiser
    assert denoiser.variance == variance
    path = (4000, 2500, 900, 120, 20, 0)
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    found = dpstride.bits_per_dim(
        denoiser, images, dpstride.Schedule(denoiser.process, path), seed=5, decoder="respaced", cdf="tanh"
    )
    x0 = images.double().numpy() / 127.5 - 1.0
    cosine = np.cos((np.arange(4001) / 4000 + 0.008) / 1.008 * np.pi / 2) ** 2
    original = np.cumprod(1.0 - np.minimum(1.0 - cosine[1:] / cosine[:-1], 0.999))
    kept = original[[t - 1 for t in reversed(path[:-1])]]  # alpha_bar of the respaced chain, least noise first
    before = np.concatenate([[1.0], kept[:-1]])
    betas = 1.0 - kept / before
    small = betas * (1.0 - before) / (1.0 - kept)
    small_log = np.log(np.append(small[1], small[1:]))  # the first is replaced by the second, as that code does
    large_log = np.log(np.append(small[1], betas[1:])) if variance == "upper" else np.log(betas)
    expected = []
    for i, t in enumerate(reversed(path[:-1])):
        noise = standard_normal(5, "forward", t, 0, 2, (3, 16, 16)).numpy()
        x_t = np.sqrt(kept[i]) * x0 + np.sqrt(1.0 - kept[i]) * noise
        with torch.inference_mode():
            output = denoiser.network(torch.from_numpy(x_t).float(), torch.full((2,), t - 1)).double().numpy()
        eps, v = output[:, :3], output[:, 3:]
        estimate = np.clip((x_t - np.sqrt(1.0 - kept[i]) * eps) / np.sqrt(kept[i]), -1.0, 1.0)

        def mean(x, i=i, x_t=x_t):
            return (
                betas[i] * np.sqrt(before[i]) / (1.0 - kept[i]) * x
                + (1.0 - before[i]) * np.sqrt(1.0 - betas[i]) / (1.0 - kept[i]) * x_t
            )

        log_variance = {"posterior": small_log[i], "upper": large_log[i]}.get(variance)
        if log_variance is None:
            fraction = (v + 1.0) / 2.0
            log_variance = fraction * np.log(betas[i]) + (1.0 - fraction) * small_log[i]
        if i > 0:
            gap = (mean(x0) - mean(estimate)) ** 2
            nats = 0.5 * (
                -1.0 + log_variance - small_log[i] + np.exp(small_log[i] - log_variance) + gap * np.exp(-log_variance)
            )
        else:
            nats = -tanh_log_likelihood(x0, mean(estimate), np.exp(0.5 * log_variance))
        expected.append(np.broadcast_to(nats, x0.shape).mean() / math.log(2.0))
    prior = 0.5 * (-1.0 - np.log(1.0 - kept[-1]) + (1.0 - kept[-1]) + kept[-1] * x0**2).mean() / math.log(2.0)
    np.testing.assert_allclose([*found.terms["steps"], found.terms["decoder"]], expected[::-1], rtol=2e-6)
    assert found.bpd == pytest.approx(sum(expected) + prior, rel=2e-6)


def tanh_log_likelihood(x, mean, sigma):
    def cdf(z):
        return 0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3)))

    above, below = cdf((x - mean + 1 / 255) / sigma), cdf((x - mean - 1 / 255) / sigma)
    inside = np.where(x < -0.999, above, np.where(x > 0.999, 1.0 - below, above - below))
    return np.log(np.maximum(inside, 1e-12))


def test_float32_loses_the_digits_of_far_tails_and_float64_does_not():
    """improved-diffusion's decoder in float32, as it runs, and in float64: why openai.md bounds its agreement."""
    sigma, x = 0.02, np.zeros(41)
    mean = sigma * np.linspace(-6.0, 6.0, 41)
    exact = -tanh_log_likelihood(x, mean, sigma)
    single = -tanh_log_likelihood(*(np.asarray(value, dtype=np.float32) for value in (x, mean, sigma)))
    assert single.dtype == np.float32
    near = np.abs(mean) < 4.0 * sigma
    assert np.abs(single - exact)[near].max() < 2e-3
    assert np.abs(single - exact)[~near].max() > 5e-2
    ours = decoder_nats(x - mean, np.zeros(41, dtype=bool), 1.0 / 255.0, sigma, "tanh")
    np.testing.assert_allclose(ours, exact, rtol=7e-8)


def test_checkpoints_are_read_as_tensors_only(tmp_path):
    class Malicious:
        def __reduce__(self):
            return print, ("code from a checkpoint ran",)

    torch.save({"model": Malicious()}, tmp_path / "evil.pt")
    with pytest.raises(UnsupportedModelError, match=r"no code in it is run: it names .__builtin__ print"):
        load_openai(tmp_path / "evil.pt", preset="cifar10-l-vlb")
    torch.save({"step": 3}, tmp_path / "other.pt")
    with pytest.raises(UnsupportedModelError, match="not the state dictionary"):
        load_openai(tmp_path / "other.pt")
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(UnsupportedModelError, match="not a whole zip archive"):
        load_openai(tmp_path / "cut.pt")
    with pytest.raises(UnsupportedModelError, match="there is no such file"):
        load_openai(tmp_path / "none.pt")


def test_flags_that_do_not_fit_the_checkpoint_are_named():
    changes, preset = KINDS["cifar10"]
    _, walk, *_ = checkpoint(changes, preset)
    for wrong, message in (
        ({"learn_sigma": False}, "learn_sigma=False"),
        ({"num_res_blocks": 2}, "num_res_blocks"),
        ({"attention_resolutions": "8"}, "tensors that a network of these flags does not have|has no tensor"),
        ({"class_cond": True}, "label_emb"),
        ({"num_channels": 64}, "does not fit"),
        ({"noise_schedule": "quadratic"}, "'linear' or 'cosine'"),
        ({"channel_mult": "2,2,2"}, "first channel multiplier"),
        ({"image_size": 512, "channel_mult": ""}, r"multiplier 0\.5"),
        ({"image_size": 48, "channel_mult": ""}, "no default channel_mult"),
        ({"colour": 3}, "not a model or diffusion flag"),
    ):
        with pytest.raises(UnsupportedModelError, match=message):
            load_openai(walk.state, preset=preset, **(changes | wrong))
    with pytest.raises(UnsupportedModelError, match="no preset"):
        load_openai(walk.state, preset="cifar100")
    with pytest.raises(UnsupportedModelError, match="repository must be"):
        load_openai(walk.state, repository="openai")


def test_a_checkpoint_without_preset_or_flags_is_told_where_flags_come_from():
    changes, preset = KINDS["imagenet64 class-conditional"]
    flags, walk, *_ = checkpoint(changes, preset)
    hint = "-M preset=NAME"
    with pytest.raises(UnsupportedModelError, match=hint):
        load_openai(walk.state)
    known = {field.name: getattr(flags, field.name) for field in dataclasses.fields(flags)}
    for wrong, message in (
        ({"num_res_blocks": 2}, "The checkpoint has no tensor"),
        ({"class_cond": False}, "tensors that a network of these flags does not have"),
        ({"learn_sigma": False}, "learn_sigma=False"),
    ):
        with pytest.raises(UnsupportedModelError, match=f"{message}(.|\n)*{hint}"):
            load_openai(walk.state, **(known | wrong))


def test_flag_lines_are_read_as_the_readmes_write_them():
    flags = OpenAIFlags.parse("--image_size 32 --learn_sigma True --dropout=0.3 --lr 1e-4 --batch_size 128")
    assert (flags.image_size, flags.learn_sigma, flags.dropout) == (32, True, 0.3)
    for line, message in (
        ("image_size 32", "is in the place of a name"),
        ("--image_size", "has no value"),
        ("--learn_sigma maybe", "True or False"),
        ("--image_size big", "must be int"),
    ):
        with pytest.raises(UnsupportedModelError, match=message):
            OpenAIFlags.parse(line)
