"""Images and networks of a training, and the model that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import TINY, tiny_images

import dpstride
from dpstride import zoo
from dpstride.process import ForwardProcess
from dpstride.training.checkpoint import FILE, load_checkpoint
from dpstride.training.export import ddpm_scheduler
from dpstride.training.images import Images
from dpstride.training.network import build_network, default_channels, load_weights
from dpstride.training.settings import TrainingSettings
from dpstride.training.train import train
from small_network import tiny_process


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def test_images_are_checked(tmp_path):
    with pytest.raises(ValueError, match="uint8 of shape"):
        train(torch.zeros(4, 1, 8, 8), tmp_path)
    with pytest.raises(ValueError, match="batch of 64 needs as many images"):
        train(tiny_images(8), tmp_path)
    few = torch.zeros(4, 1, 10, 10, dtype=torch.uint8)
    with pytest.raises(ValueError, match="cannot be halved 2 times"):
        train(few, tmp_path, TrainingSettings(batch_size=2, channels=(8, 8, 8)))
    with pytest.raises(ValueError, match=r"too small for 4 levels, of which the coarsest would be 1.25×1.25"):
        train(few, tmp_path, TrainingSettings(batch_size=2, channels=(8, 8, 8, 8)))
    with pytest.raises(ValueError, match=r"height 4, but the levels have the heights 10, 5"):
        train(few, tmp_path, TrainingSettings(batch_size=2, channels=(8, 8), attention=(4,)))
    with pytest.raises(
        ValueError, match=r"Held-out images must have the shape \(1, 10, 10\) of training images, not \(1, 8, 8\)"
    ):
        train(few, tmp_path, TrainingSettings(batch_size=2), held_out=tiny_images(4))
    assert not (tmp_path / FILE).exists()


def test_labels_are_checked(tmp_path):
    images = tiny_images(8)
    settings = TrainingSettings(steps=1, classes=3, **TINY)
    for labels, message in [
        (None, "3 classes needs a label for every image"),
        (torch.arange(8), r"0 … 2 for 3 classes, but they span 0 … 7"),
        (torch.arange(8) - 1, r"they span -1 … 6"),
        (torch.zeros(8), "whole numbers from 0 to 2, not torch.float32"),
        (torch.zeros(5, dtype=torch.int64), r"one label per image, \[8\], but labels have shape \(5,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            train(images if labels is None else (images, labels), tmp_path, settings)


# --- colour, classes, flips -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((1, 28, 28), (24, 48, 64)),
        ((3, 32, 32), (32, 64, 64)),
        ((3, 64, 64), (32, 64, 64, 64)),
        ((3, 16, 24), (32, 64, 64)),
        ((3, 16, 16), (32, 64)),
        ((1, 8, 8), (24,)),
        ((3, 15, 15), (32,)),
    ],
)
def test_the_default_network_suits_the_image_size(shape, channels):
    assert default_channels(shape) == channels
    network = build_network(shape, learned_variance=True)
    x = torch.zeros(1, *shape)
    assert network(x, torch.tensor([3])).sample.shape == (1, 2 * shape[0], *shape[1:])


def test_attention_stands_where_it_is_asked_for():
    def heights(attention):
        network = build_network((3, 16, 16), False, (8, 8, 8), attention=attention)
        return [16 >> i for i, block in enumerate(network.down_blocks) if "Attn" in type(block).__name__]

    assert (heights(None), heights((16, 4)), heights(())) == ([4], [16, 4], [])
    assert not any(
        "attentions" in name for name in build_network((3, 16, 16), False, (8, 8), attention=()).state_dict()
    )


def test_a_colour_model_of_classes_is_trained_sampled_and_scored(tmp_path):
    """The label decides the colour, so a network that uses it predicts what one without it cannot."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (64,), generator=generator)
    images = torch.zeros(64, 3, 8, 8, dtype=torch.uint8)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[2 * label] = 255
    settings = TrainingSettings(
        objective="flow",
        steps=150,
        learning_rate=3e-3,
        ema_decay=0.9,
        classes=2,
        channels=(16, 16),
        batch_size=16,
        warmup=5,
    )
    folder = train((images, labels), tmp_path, settings, process=ForwardProcess.rectified_flow(20))
    denoiser = zoo.load_folder(folder)
    schedule = dpstride.even_stride(denoiser.process, 5)
    drawn = dpstride.sample(denoiser, schedule, n=4, seed=0, conditioning={"labels": torch.tensor([0, 1, 0, 1])})
    means = drawn.mean(dim=(2, 3))
    assert bool((means[:, 0] > means[:, 2])[[0, 2]].all())
    assert bool((means[:, 0] < means[:, 2])[[1, 3]].all())
    right, wrong = (
        dpstride.bits_per_dim(denoiser, (images[:16], {"labels": given}), schedule, seed=1, progress=False).bpd
        for given in (labels[:16], 1 - labels[:16])
    )
    assert right < wrong


def test_held_out_images_are_of_every_class_though_data_are_sorted():
    labels = torch.arange(10).repeat_interleave(20)
    images = Images(torch.arange(200, dtype=torch.uint8).reshape(200, 1, 1, 1), labels)
    kept, followed = images.split(50)
    assert len(set(kept.labels.tolist())) == 10
    assert len(set(followed.labels.tolist())) >= 8
    assert sorted([*kept.pixels.flatten().tolist(), *followed.pixels.flatten().tolist()]) == list(range(200))
    assert images.split(50)[1].fingerprint == followed.fingerprint


def test_a_model_of_classes_checks_labels_and_takes_them_under_their_name(tmp_path):
    images = Images(tiny_images(16), torch.arange(16) % 3, key="kind")
    folder = train(images, tmp_path, TrainingSettings(steps=1, classes=3, **TINY), process=ForwardProcess.linear(20))
    network = zoo.load_folder(folder).network
    x, time, kinds = torch.zeros(2, 1, 8, 8), torch.tensor([3, 3]), torch.tensor([0, 2])
    named = network(x, time, kind=kinds.to(torch.uint8), other=torch.zeros(2))
    assert torch.equal(named, network(x, time, kinds))
    for wrong in (torch.tensor([0, 3]), torch.tensor([-1, 0]), torch.tensor([0.0, 1.0])):
        with pytest.raises(ValueError, match="whole numbers from 0 to 2 for this model of 3 classes"):
            network(x, time, wrong)
    with pytest.raises(ValueError, match="has 3 classes and needs the label of every sample"):
        network(x, time)


def test_half_of_the_images_are_flipped_and_nothing_else_changes(tmp_path):
    images = Images(torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4))
    plain, _ = images.batch(slice(None))
    flipped, _ = images.batch(slice(None), torch.tensor([True, False]))
    assert torch.equal(flipped[0], plain[0].flip(-1))
    assert torch.equal(flipped[1], plain[1])

    runs = {}
    for flip in (False, True):
        settings = TrainingSettings(steps=3, flip=flip, **TINY)
        train(tiny_images(16), tmp_path / str(flip), settings, process=tiny_process("simple"))
        runs[flip] = load_checkpoint(tmp_path / str(flip))["network"]
    assert any(not torch.equal(runs[True][name], runs[False][name]) for name in runs[True])
    symmetric = tiny_images(16)
    symmetric = torch.maximum(symmetric, symmetric.flip(-1))
    for flip in (False, True):
        settings = TrainingSettings(steps=3, flip=flip, **TINY)
        train(symmetric, tmp_path / f"same-{flip}", settings, process=tiny_process("simple"))
        runs[flip] = load_checkpoint(tmp_path / f"same-{flip}")["network"]
    assert all(torch.equal(runs[True][name], runs[False][name]) for name in runs[True])


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
    with pytest.raises(ValueError, match=r"no diffusers model .* Did you mean \S+model\?"):
        load_weights(source, trained.parent)
    with pytest.raises(ValueError, match=r"another architecture: \S*attentions\S* is \(8,\) there and absent here"):
        load_weights(build_network((1, 8, 8), False, (8, 8), attention=()), trained)


def test_training_goes_on_from_another_model(trained, tmp_path):
    settings = TrainingSettings(objective="hybrid", steps=2, **TINY)
    folder = train(tiny_images(16), tmp_path, settings, process=ForwardProcess.cosine(20), warm_start=trained)
    facts = json.loads((folder / "dpstride.json").read_text())
    assert facts["warm_start"] == str(trained)
    assert facts["trained_before"]["steps"] == 5
    for _ in range(2):  # once more changes nothing, though the source is now the result itself
        own = train(tiny_images(16), tmp_path, settings, process=ForwardProcess.cosine(20), warm_start=trained)
        assert json.loads((own / "dpstride.json").read_text())["trained_before"]["steps"] == 5
    again = train(tiny_images(16), tmp_path / "again", settings, process=ForwardProcess.cosine(20), warm_start=folder)
    assert json.loads((again / "dpstride.json").read_text())["trained_before"]["steps"] == 7
