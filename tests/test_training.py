"""Real training of a tiny network: settings, data, interruption, what it leaves behind."""

from __future__ import annotations

import json
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import dpstride
from dpstride import zoo
from dpstride.denoiser import NonFiniteError
from dpstride.process import ForwardProcess
from dpstride.runs.lock import BusyError, ProgressError
from dpstride.training.checkpoint import FILE, load_checkpoint
from dpstride.training.export import ddpm_scheduler
from dpstride.training.images import Images
from dpstride.training.network import build_network, default_channels, load_weights
from dpstride.training.settings import TrainingSettings, learning_rate_at
from dpstride.training.train import train
from small_network import tiny_process

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
    (tmp_path / "cut" / ".dpstride-123-0.tmp").write_bytes(b"half of one")  # as a kill may leave
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
        ({"cooldown": 0}, "cooldown must be"),
        ({"classes": -1}, "classes must be"),
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
    few = torch.zeros(4, 1, 10, 10, dtype=torch.uint8)
    with pytest.raises(ValueError, match="cannot be halved 2 times"):
        train(few, tmp_path, TrainingSettings(batch_size=2, channels=(8, 8, 8)))
    with pytest.raises(ValueError, match=r"too small for 4 levels, of which the coarsest would be 1.25×1.25"):
        train(few, tmp_path, TrainingSettings(batch_size=2, channels=(8, 8, 8, 8)))
    with pytest.raises(ValueError, match=r"height 4, but the levels have the heights 10, 5"):
        train(few, tmp_path, TrainingSettings(batch_size=2, channels=(8, 8), attention=(4,)))
    with pytest.raises(
        ValueError, match=r"Held-out images have the shape \(1, 8, 8\), those to train on \(1, 10, 10\)"
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
        (torch.zeros(5, dtype=torch.int64), r"one class per image, \[8\], but have shape \(5,\)"),
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


def test_a_cooldown_keeps_the_rate_and_ends_at_nothing_whenever_it_ends():
    settings = TrainingSettings(steps=100, warmup=10, learning_rate=0.5, cooldown=20)
    assert [learning_rate_at(step, settings) for step in (0, 10, 50, 80)] == pytest.approx([0.05, 0.5, 0.5, 0.5])
    assert learning_rate_at(90, settings) == pytest.approx(0.25)
    assert learning_rate_at(100, settings) == 0.0
    longer = replace(settings, steps=200)
    assert all(learning_rate_at(step, longer) == learning_rate_at(step, settings) for step in range(81))


def test_other_images_of_the_same_number_are_not_gone_on_with(tmp_path):
    settings, process = TrainingSettings(steps=4, **TINY), tiny_process("simple")
    train(tiny_images(20), tmp_path, settings, process=process, stop_at=2)
    with pytest.raises(ValueError, match=r"it was made with other images, or with another number .* \(--held-out\)"):
        train(tiny_images(20, seed=1), tmp_path, settings, process=process)


@pytest.mark.parametrize(("before", "after"), [(None, (4,)), ((4,), None), ((4, 8), (8, 4, 4))])
def test_attention_said_in_another_way_is_the_same_setting(before, after, tmp_path):
    """Images of 8 pixels have levels of the heights 8 and 4; the coarsest has attention if nothing is said."""
    process = tiny_process("simple")
    first = TrainingSettings(steps=2, attention=before, **TINY)
    train(tiny_images(20), tmp_path, first, process=process, stop_at=1)
    train(tiny_images(20), tmp_path, replace(first, attention=after), process=process)
    assert load_checkpoint(tmp_path)["step"] == 2
    with pytest.raises(ValueError, match="it was made with attention = "):
        train(tiny_images(20), tmp_path, replace(first, attention=(8,)), process=process)


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
