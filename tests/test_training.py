"""Objectives against textbook formulas, samplers against their definitions, and real training of a tiny network."""

from __future__ import annotations

import gzip
import json
import math
import os
import resource
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from scipy import stats
from torch import Tensor

from dpstride.denoiser import NonFiniteError
from dpstride.process import ForwardProcess
from dpstride.runs.lock import BusyError, ProgressError
from dpstride.training.checkpoint import FILE, load_checkpoint
from dpstride.training.command import train_command
from dpstride.training.export import ddpm_scheduler
from dpstride.training.network import build_network, load_weights
from dpstride.training.objectives import (
    HYBRID_WEIGHT,
    Coefficients,
    discretised_log_likelihood,
    sample_losses,
    vlb_terms,
)
from dpstride.training.timesteps import HISTORY, UNIFORM_SHARE, LossAwareSampler, stratified, uniform_indices
from dpstride.training.train import TrainingSettings, learning_rate_at, train

TINY = {"channels": (8, 8), "batch_size": 8, "warmup": 2}
OBJECTIVES = ["simple", "hybrid", "vlb", "continuous", "flow"]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def tiny_images(n: int = 64, size: int = 8, seed: int = 0) -> Tensor:
    """Squares of random place and grey: something a network can learn in a few steps."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(n, 1, size, size, dtype=torch.uint8)
    for image in images:
        i, j = torch.randint(0, size // 2, (2,), generator=generator).tolist()
        image[0, i : i + size // 2, j : j + size // 2] = int(torch.randint(128, 256, (), generator=generator))
    return images


def tiny_process(objective: str) -> ForwardProcess:
    return {
        "simple": ForwardProcess.linear(20),
        "hybrid": ForwardProcess.cosine(20),
        "vlb": ForwardProcess.cosine(20),
        "continuous": ForwardProcess.vp_cosine(20),
        "flow": ForwardProcess.rectified_flow(20),
    }[objective]


def lattice(n: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (n, 1, 4, 4), generator=generator).float() / 127.5 - 1.0


# --- objectives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [ForwardProcess.cosine(60), ForwardProcess.linear(60)], ids=lambda p: p.name)
def test_vlb_terms_are_the_gaussian_kl_of_the_textbook(process):
    T, generator = process.T, torch.Generator().manual_seed(1)
    t = torch.arange(2, T + 1)
    x0, eps = lattice(T - 1, generator), torch.randn(T - 1, 1, 4, 4, generator=generator)
    eps_hat = eps + 0.3 * torch.randn(eps.shape, generator=generator)
    v = 2.0 * torch.randn(eps.shape, generator=generator)
    at = Coefficients.at(process, t)
    x_t = at.f.reshape(-1, 1, 1, 1) * x0 + at.g.reshape(-1, 1, 1, 1) * eps
    found = vlb_terms(eps_hat, v, x0, x_t, eps, at).double().numpy()

    for i, step in enumerate(t.tolist()):
        f, g, f_s, g_s = process.f[step], process.g[step], process.f[step - 1], process.g[step - 1]
        beta = 1.0 - (f / f_s) ** 2
        low = g_s**2 / g**2 * beta
        clean, noise, guess = (each[i].double().numpy() for each in (x0, eps, eps_hat))
        noisy = f * clean + g * noise

        def posterior_mean(estimate, f=f, g=g, f_s=f_s, g_s=g_s, beta=beta, noisy=noisy):
            return f_s * beta / g**2 * estimate + (f / f_s) * g_s**2 / g**2 * noisy

        phi = (v[i].double().numpy() + 1.0) / 2.0
        variance = np.exp(phi * np.log(beta) + (1.0 - phi) * np.log(low))
        gap = posterior_mean(clean) - posterior_mean((noisy - g * guess) / f)
        kl = 0.5 * (np.log(variance / low) + (low + gap**2) / variance - 1.0)
        # float32 inputs; weights of adjacent steps are themselves differences of order 1e-3
        assert found[i] == pytest.approx(kl.mean() / math.log(2.0), rel=3e-5)


def test_vlb_at_the_first_step_is_the_discretised_decoder():
    process, generator = ForwardProcess.cosine(50), torch.Generator().manual_seed(2)
    x0, eps = lattice(3, generator), torch.randn(3, 1, 4, 4, generator=generator)
    eps_hat, v = eps + 0.2 * torch.randn(eps.shape, generator=generator), torch.randn(eps.shape, generator=generator)
    at = Coefficients.at(process, torch.tensor([1, 7, 1]))
    x_t = at.f.reshape(-1, 1, 1, 1) * x0 + at.g.reshape(-1, 1, 1, 1) * eps
    found = vlb_terms(eps_hat, v, x0, x_t, eps, at)

    f, g = process.f[1], process.g[1]
    for i in (0, 2):
        clean, guess = x0[i].double().numpy(), eps_hat[i].double().numpy()
        mean = (f * clean + g * eps[i].double().numpy() - g * guess) / f
        phi = (v[i].double().numpy() + 1.0) / 2.0
        scale = np.exp(0.5 * (phi * np.log(g**2) + (1.0 - phi) * np.log(process.posterior_variance(2, 1))))
        upper = np.where(clean > 0.999, np.inf, clean + 1.0 / 255.0)
        lower = np.where(clean < -0.999, -np.inf, clean - 1.0 / 255.0)
        nats = -np.log(stats.norm.cdf((upper - mean) / scale) - stats.norm.cdf((lower - mean) / scale))
        assert float(found[i]) == pytest.approx(nats.mean() / math.log(2.0), rel=1e-4)


def test_discretised_likelihood_sums_to_one_and_keeps_its_gradient_in_the_tail():
    levels = torch.arange(256, dtype=torch.float64) / 127.5 - 1.0
    for mean, scale in ((0.0, 0.02), (0.97, 0.3), (-1.2, 0.001), (0.4, 2.0)):
        log_p = discretised_log_likelihood(levels, torch.tensor(mean), torch.tensor(scale, dtype=torch.float64).log())
        assert float(log_p.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    mean = torch.tensor(0.9, requires_grad=True)
    far = discretised_log_likelihood(torch.tensor(-0.5), mean, torch.tensor(0.01).log())
    far.backward()
    assert math.isfinite(float(far.detach()))
    assert float(mean.grad) < -1e3  # d/dmean of -(x - mean)²/2σ² is (x - mean)/σ² = -14,000


def test_hybrid_stops_the_gradient_of_the_mean_in_the_bound():
    process, generator = ForwardProcess.cosine(30), torch.Generator().manual_seed(3)
    x0, eps = lattice(6, generator), torch.randn(6, 1, 4, 4, generator=generator)
    t = torch.tensor([1, 2, 5, 12, 25, 30])

    def gradient(objective: str) -> Tensor:
        output = (0.5 * torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(4))).requires_grad_()
        sample_losses(lambda x, time: output, process, objective, x0, t, eps).sum().backward()
        assert output.grad is not None
        return output.grad

    hybrid, vlb = gradient("hybrid"), gradient("vlb")
    output = (0.5 * torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(4)))[:, :1].requires_grad_()
    sample_losses(lambda x, time: output, process, "simple", x0, t, eps).sum().backward()
    assert torch.equal(hybrid[:, :1], output.grad)
    torch.testing.assert_close(hybrid[:, 1:], HYBRID_WEIGHT * vlb[:, 1:])
    assert bool((vlb[:, :1].flatten(1).abs().sum(dim=1) > 0).all())


@pytest.mark.parametrize("objective", ["simple", "continuous", "flow"])
def test_a_network_that_knows_the_clean_image_has_no_loss(objective):
    """The target is the quantity from which the Denoiser's own formula returns x_0."""
    from dpstride.denoiser import Denoiser

    process, generator = tiny_process(objective), torch.Generator().manual_seed(5)
    x0, eps = lattice(8, generator), torch.randn(8, 1, 4, 4, generator=generator)
    index = torch.arange(3, 11)
    t = index if process.kind == "discrete" else torch.from_numpy(process.times[index.numpy()])
    f, g = (torch.from_numpy(array[index.numpy()]).float().reshape(-1, 1, 1, 1) for array in (process.f, process.g))
    target = {"simple": eps, "continuous": f * eps - g * x0, "flow": eps - x0}[objective]
    seen = {}

    def network(x: Tensor, time: Tensor) -> Tensor:
        seen["time"] = time
        return target

    losses = sample_losses(network, process, objective, x0, t, eps)
    assert losses.shape == (8,)
    assert float(losses.max()) < 1e-10
    expected = index - 1 if process.kind == "discrete" else 1000.0 * t
    torch.testing.assert_close(seen["time"].double(), expected.double())
    predicts = {"simple": "eps", "continuous": "v", "flow": "flow"}[objective]
    denoiser = Denoiser(
        network,
        process,
        predicts=predicts,
        clip=None,
        time_input="index0" if process.kind == "discrete" else "time",
    )
    torch.testing.assert_close(denoiser(f * x0 + g * eps, index).x0_hat.float(), x0, rtol=1e-4, atol=1e-4)


def test_continuous_time_takes_any_f_and_g():
    process = ForwardProcess.from_functions(lambda t: (1.0 - t) ** 2, lambda t: t**3, np.linspace(0.0, 1.0, 5))
    at = Coefficients.at(process, torch.tensor([0.25, 0.3], dtype=torch.float64))
    np.testing.assert_allclose(at.f.numpy(), [0.5625, 0.49], rtol=1e-6)
    np.testing.assert_allclose(at.g.numpy(), [0.015625, 0.027], rtol=1e-6)


def test_wrong_process_or_channels_are_refused():
    x0, eps, t = torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 4), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="needs a discrete process, but 'rectified_flow' is continuous"):
        sample_losses(lambda x, time: x, ForwardProcess.rectified_flow(4), "simple", x0, t, eps)
    with pytest.raises(ValueError, match="2 output channels, but it returned 1"):
        sample_losses(lambda x, time: x, ForwardProcess.cosine(4), "vlb", x0, t, eps)
    with pytest.raises(ValueError, match="objective must be one of simple, hybrid"):
        sample_losses(lambda x, time: x, ForwardProcess.cosine(4), "elbo", x0, t, eps)


# --- how t is drawn -------------------------------------------------------------------------------------------------


def test_stratified_points_have_one_in_every_interval():
    generator = torch.Generator().manual_seed(0)
    points = stratified(16, generator).sort().values
    assert bool(((points > 0.0) & (points <= 1.0)).all())
    assert torch.equal(torch.ceil(points * 16), torch.arange(1.0, 17.0, dtype=torch.float64))
    assert sorted(uniform_indices(16, 16, generator).tolist()) == list(range(1, 17))


def test_uniform_indices_are_uniform_when_the_batch_does_not_divide_T():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([uniform_indices(10, 4, generator) for _ in range(5000)])
    share = torch.bincount(drawn[:, 0], minlength=11)[1:].double() / 5000
    assert float((share - 0.1).abs().max()) < 5 * math.sqrt(0.1 * 0.9 / 5000)


def test_importance_sampler_follows_the_root_of_the_second_moment():
    T, generator = 6, torch.Generator().manual_seed(0)
    sampler = LossAwareSampler(T)
    history = np.random.default_rng(0).exponential(size=(HISTORY + 3, T)) * np.arange(1, T + 1)
    for row in history[:-4]:
        sampler.update(torch.arange(1, T + 1), torch.from_numpy(row))
    np.testing.assert_array_equal(sampler.probabilities, 1.0 / T)  # 9 losses each: still uniform
    for row in history[-4:]:
        sampler.update(torch.arange(1, T + 1), torch.from_numpy(row))

    size = np.sqrt((history[-HISTORY:] ** 2).mean(axis=0))
    expected = (1.0 - UNIFORM_SHARE) * size / size.sum() + UNIFORM_SHARE / T
    np.testing.assert_allclose(sampler.probabilities, expected, rtol=1e-12)
    t, weights = sampler.draw(60_000, generator)
    shares = np.bincount(t.numpy(), minlength=T + 1)[1:] / 60_000
    np.testing.assert_allclose(shares, expected, atol=2 / 60_000)  # stratified: a count is off by less than 2
    np.testing.assert_allclose(weights.numpy(), 1.0 / (T * expected[t.numpy() - 1]), rtol=1e-6)
    # Unbiased: the weighted mean of any function of t is its mean over uniform t.
    assert float((weights * t).mean()) == pytest.approx((T + 1) / 2, rel=1e-3)

    copy = LossAwareSampler(T)
    copy.load_state_dict(sampler.state_dict())
    np.testing.assert_array_equal(copy.probabilities, sampler.probabilities)


def test_loss_aware_draws_need_a_grid():
    with pytest.raises(ValueError, match="continuous time"):
        TrainingSettings(objective="flow", loss_aware=True)


def test_a_checkpoint_from_before_loss_aware_draws_is_gone_on_with(tmp_path):
    images, process = tiny_images(20), tiny_process("simple")
    train(images, tmp_path, TrainingSettings(steps=4, **TINY), process=process, stop_at=2)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    del state["settings"]["loss_aware"]
    torch.save(state, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="loss_aware = False, not True"):
        train(images, tmp_path, TrainingSettings(steps=4, loss_aware=True, **TINY), process=process)
    train(images, tmp_path, TrainingSettings(steps=4, **TINY), process=process)


# --- the loop -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_training_lowers_the_held_out_loss(objective, tmp_path):
    settings = TrainingSettings(objective=objective, steps=40, learning_rate=3e-3, ema_decay=0.9, seed=1, **TINY)
    records = []
    folder = train(
        tiny_images(),
        tmp_path,
        settings,
        process=tiny_process(objective),
        held_out=tiny_images(32, seed=9),
        evaluate_every=10,
        report=records.append,
    )
    assert [record["step"] for record in records] == [10, 20, 30, 40]
    assert records[-1]["held_out_loss"] < 0.9 * records[0]["held_out_loss"]
    assert json.loads((tmp_path / "log.json").read_text())["log"] == records
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"
    facts = json.loads((folder / "dpstride.json").read_text())
    assert facts["objective"] == objective
    assert facts["steps_done"] == 40
    assert facts["time_input"] == ("1000*time" if objective in ("continuous", "flow") else "index0")
    assert facts["variance"] == ("learned_range" if objective in ("hybrid", "vlb") else "posterior")


@pytest.mark.parametrize(
    ("objective", "loss_aware"), [("simple", False), ("simple", True), ("vlb", False), ("flow", False)]
)
def test_an_interrupted_run_ends_bit_for_bit_as_an_undisturbed_one(objective, loss_aware, tmp_path):
    images, process = tiny_images(20), tiny_process(objective)  # 2 batches an epoch, 4 images left out of each
    settings = TrainingSettings(objective=objective, steps=20, seed=3, loss_aware=loss_aware, **TINY)
    options = {"process": process, "held_out": images[:10], "evaluate_every": 4, "checkpoint_every": 3}
    whole = train(images, tmp_path / "whole", settings, **options)

    def interrupt(record: dict) -> None:
        if record["step"] == 8:  # the last checkpoint is then of step 6
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(images, tmp_path / "cut", settings, report=interrupt, **options)
    (tmp_path / "cut" / "checkpoint.pt.123.tmp").write_bytes(b"half of one")  # as a kill may leave
    torch.rand(7)  # the global generator's state must not matter
    assert train(images, tmp_path / "cut", settings, stop_at=14, **options) == tmp_path / "cut"
    cut = train(images, tmp_path / "cut", settings, **options)

    states = [load_checkpoint(folder.parent) for folder in (whole, cut)]
    for part in ("network", "ema"):
        for name, tensor in states[0][part].items():
            assert torch.equal(tensor, states[1][part][name]), name
    for i, moments in states[0]["optimiser"]["state"].items():
        for name, tensor in moments.items():
            assert torch.equal(tensor, states[1]["optimiser"]["state"][i][name])
    if objective == "vlb" or loss_aware:
        assert torch.equal(states[0]["sampler"]["losses"], states[1]["sampler"]["losses"])
    losses = [[(r["step"], r["train_loss"], r["held_out_loss"]) for r in state["log"]] for state in states]
    assert losses[0] == losses[1]
    weights = "unet/diffusion_pytorch_model.safetensors"
    assert (whole / weights).read_bytes() == (cut / weights).read_bytes()
    assert {path.name for path in (tmp_path / "cut").iterdir()} == {
        path.name for path in (tmp_path / "whole").iterdir()
    }


def test_a_checkpoint_is_not_gone_on_with_under_other_settings_but_may_be_made_longer(tmp_path):
    images = tiny_images(16)
    options = {"process": ForwardProcess.linear(20)}
    train(images, tmp_path, TrainingSettings(steps=4, **TINY), **options)
    with pytest.raises(ValueError, match="made with seed = 0, not 5"):
        train(images, tmp_path, TrainingSettings(steps=4, seed=5, **TINY), **options)
    folder = train(images, tmp_path, TrainingSettings(steps=6, **TINY), **options)
    assert json.loads((folder / "dpstride.json").read_text())["plans"] == [[0, 4], [4, 6]]
    torch.save({"format": "other"}, tmp_path / FILE)
    with pytest.raises(ValueError, match="format 'other' is not"):
        train(images, tmp_path, TrainingSettings(steps=6, **TINY), **options)


def test_a_second_run_in_the_same_folder_is_told_so(tmp_path):
    settings = TrainingSettings(steps=4, **TINY)

    def again(record: dict) -> None:
        with pytest.raises(BusyError, match=rf"process {os.getpid()} on"):
            train(tiny_images(20), tmp_path, settings, process=tiny_process("simple"))

    train(tiny_images(20), tmp_path, settings, process=tiny_process("simple"), evaluate_every=2, report=again)
    assert not (tmp_path / "lock").exists()


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path):
    images, settings = tiny_images(20), TrainingSettings(steps=6, **TINY)
    options = {"process": tiny_process("simple"), "checkpoint_every": 1}
    train(images, tmp_path / "whole", settings, **options)
    train(images, tmp_path / "cut", settings, stop_at=2, **options)
    before = (tmp_path / "cut" / "checkpoint.pt").read_bytes()
    limits, answer = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))  # as a disk that is full half-way
    try:
        with pytest.raises(ProgressError, match="step 3 could not be written"):
            train(images, tmp_path / "cut", settings, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, answer)
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["checkpoint.pt"]
    assert (tmp_path / "cut" / "checkpoint.pt").read_bytes() == before
    train(images, tmp_path / "cut", settings, **options)
    name = "unet/diffusion_pytorch_model.safetensors"
    whole, cut = (load_file(tmp_path / run / "model" / name) for run in ("whole", "cut"))
    assert all(torch.equal(whole[key], cut[key]) for key in whole)


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path):
    settings = TrainingSettings(
        steps=4, learning_rate=1e30, warmup=0, **{k: v for k, v in TINY.items() if k != "warmup"}
    )
    with pytest.raises(NonFiniteError, match=r"The loss is (nan|inf) at step \d"):
        train(tiny_images(20), tmp_path, settings, process=tiny_process("simple"))


def test_the_rate_warms_up_linearly_and_decays_to_nothing():
    settings = TrainingSettings(steps=100, warmup=10, learning_rate=0.5)
    assert learning_rate_at(0, settings) == pytest.approx(0.05)
    assert learning_rate_at(10, settings) == pytest.approx(0.5)
    assert learning_rate_at(55, settings) == pytest.approx(0.25)
    assert learning_rate_at(100, settings) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"steps": 0}, "steps must be above 0"),
        ({"ema_decay": 1.0}, "ema_decay must lie in"),
        ({"warmup": -1}, "warmup must be"),
        ({"objective": "elbo"}, "objective must be one of"),
    ],
)
def test_settings_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**wrong)


def test_images_are_checked(tmp_path):
    with pytest.raises(ValueError, match="uint8 of shape"):
        train(torch.zeros(4, 1, 8, 8), tmp_path)
    with pytest.raises(ValueError, match="batch of 64 needs as many images"):
        train(tiny_images(8), tmp_path)
    with pytest.raises(ValueError, match="cannot be halved 2 times"):
        train(torch.zeros(4, 1, 10, 10, dtype=torch.uint8), tmp_path, TrainingSettings(batch_size=2))


# --- what it leaves behind ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    settings = TrainingSettings(steps=5, **TINY)
    return train(tiny_images(16), tmp_path_factory.mktemp("run"), settings, process=ForwardProcess.linear(20))


def test_the_folder_is_an_ordinary_diffusers_pipeline(trained):
    from diffusers import DDPMPipeline

    pipeline = DDPMPipeline.from_pretrained(trained)
    pipeline.set_progress_bar_config(disable=True)
    x, time = torch.randn(3, 1, 8, 8), torch.tensor([0, 7, 19])
    network = build_network((1, 8, 8), False, TINY["channels"])
    ema = load_checkpoint(trained.parent)["ema"]
    network.load_state_dict({name.removeprefix("module."): ema[name] for name in ema if name.startswith("module.")})
    with torch.no_grad():
        assert torch.equal(pipeline.unet(x, time).sample, network.eval()(x, time).sample)
    images = pipeline(batch_size=2, num_inference_steps=20, output_type="np").images
    assert images.shape == (2, 8, 8, 1)


@pytest.mark.parametrize(
    "process, schedule",
    [
        (ForwardProcess.linear(1000), "linear"),
        (ForwardProcess.linear(250), "linear"),
        (ForwardProcess.cosine(4000), "squaredcos_cap_v2"),
        (ForwardProcess.from_alpha_bar(np.linspace(0.9, 0.1, 9)), None),
    ],
    ids=["linear-1000", "linear-250", "cosine-4000", "own"],
)
def test_the_scheduler_has_the_betas_of_the_process(process, schedule):
    scheduler = ddpm_scheduler(process, learned_variance=True)
    betas = 1.0 - (process.f[1:] / process.f[:-1]) ** 2
    np.testing.assert_allclose(scheduler.betas.numpy(), betas, rtol=1e-5)
    assert scheduler.config.variance_type == "learned_range"
    if schedule is not None:
        assert scheduler.config.beta_schedule == schedule
        assert scheduler.config.trained_betas is None


def test_a_warm_start_keeps_the_prediction_and_starts_phi_at_one_half(trained):
    source, widened = build_network((1, 8, 8), False, (8, 8)), build_network((1, 8, 8), True, (8, 8))
    load_weights(source, trained)
    load_weights(widened, trained)
    x, time = torch.randn(2, 1, 8, 8), torch.tensor([3, 11])
    with torch.no_grad():
        prediction, v = widened(x, time).sample.chunk(2, dim=1)
        torch.testing.assert_close(prediction, source(x, time).sample, rtol=1e-5, atol=1e-6)
    assert float(v.abs().max()) == 0.0
    with pytest.raises(ValueError, match="another architecture"):
        load_weights(build_network((1, 8, 8), False, (8, 16)), trained)
    with pytest.raises(ValueError, match="no diffusers model"):
        load_weights(source, trained.parent)


def test_training_goes_on_from_another_model(trained, tmp_path):
    settings = TrainingSettings(objective="hybrid", steps=2, **TINY)
    folder = train(tiny_images(16), tmp_path, settings, process=ForwardProcess.cosine(20), warm_start=trained)
    assert json.loads((folder / "dpstride.json").read_text())["warm_start"] == str(trained)


# --- the command ----------------------------------------------------------------------------------------------------


def write_idx(folder: Path, split: str, images: np.ndarray) -> None:
    header = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
    (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    header = struct.pack(">4BI", 0, 0, 8, 1, len(images))
    (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + bytes(len(images))))


def test_the_command_trains_resumes_and_exports(tmp_path):
    write_idx(tmp_path, "train", np.random.default_rng(0).integers(0, 256, (1010, 8, 8), dtype=np.uint8))
    arguments = ["simple", "-o", str(tmp_path / "run"), "--data", str(tmp_path), "--channels", "8,8"]
    arguments += ["--batch-size", "4", "--threads", "1"]
    result = CliRunner().invoke(train_command, [*arguments, "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert "step 2: training loss" in result.stderr
    assert result.stdout.startswith(f"{tmp_path / 'run' / 'model'}: step 2: training loss")
    result = CliRunner().invoke(train_command, [*arguments, "--steps", "3", "--export-only", "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert (printed["model"], printed["step"]) == (str(tmp_path / "run" / "model"), 2)
    facts = json.loads((tmp_path / "run" / "model" / "dpstride.json").read_text())
    assert facts["steps_done"] == 2
    assert facts["images"] == 10  # the last 1,000 are held out
    assert facts["command"].startswith("dpstride train simple --output")
    assert "--steps 3" in facts["command"]


def test_the_command_explains_mistakes(tmp_path):
    result = CliRunner().invoke(train_command, ["simple", "-o", str(tmp_path / "run"), "--data", str(tmp_path)])
    assert result.exit_code == 2
    assert "apt install dataset-fashion-mnist" in result.output.replace("\n", " ")
    result = CliRunner().invoke(train_command, ["simple", "-o", str(tmp_path), "--channels", "8,x"])
    assert result.exit_code == 2
    assert "not a list of whole numbers" in result.output
