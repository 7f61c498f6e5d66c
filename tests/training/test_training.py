"""Real training of a tiny network: settings, data, interruption, what it leaves behind."""

from __future__ import annotations

import json
import os
import resource
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import TINY, tiny_images

from dpstride.denoiser import NonFiniteError
from dpstride.process import ForwardProcess
from dpstride.runs.lock import BusyError, ProgressError
from dpstride.training.checkpoint import FILE, load_checkpoint
from dpstride.training.settings import TrainingSettings, learning_rate_at
from dpstride.training.train import train
from small_network import tiny_process


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


OBJECTIVES = ["simple", "hybrid", "vlb", "continuous", "flow"]


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


def test_denormal_numbers_are_zero_while_training_and_back_afterwards(tmp_path):
    def tiniest() -> float:
        return torch.tensor([1e-39]).mul(1.0).item()

    before, seen = tiniest(), []
    train(
        tiny_images(16), tmp_path, TrainingSettings(steps=2, **TINY), process=tiny_process("simple"),
        evaluate_every=1, report=lambda record: seen.append(tiniest()),
    )  # fmt: skip
    assert seen == [0.0, 0.0]
    assert before > 0.0
    assert tiniest() == before
