"""Every verb takes CIFAR's files; labels reach a network that cannot do without them, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import dpstride
from cifar_files import IMAGES, LABELS, write_folder
from dpstride import zoo
from dpstride.cli import main
from dpstride.integrations.loading import load_model

MODEL = """
import dpstride, torch
process = dpstride.ForwardProcess.linear(6)
def plain(): return dpstride.Denoiser(lambda x, time: 0.1 * x, process, shape=(3, 32, 32))
def by_class():
    def network(x, time, class_labels):
        assert class_labels.dtype == torch.int64 and class_labels.shape == x.shape[:1]
        return (0.1 + 0.01 * class_labels.reshape(-1, 1, 1, 1)) * x
    return dpstride.Denoiser(network, process, shape=(3, 32, 32))
def may_have_class():
    def network(x, time, class_labels=None):
        assert class_labels is None
        return 0.1 * x
    return dpstride.Denoiser(network, process, shape=(3, 32, 32))
"""


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, printed.out, printed.err


@pytest.mark.parametrize("data", ["cifar", "cifar/data_batch_1.bin", "python", "python/test_batch", "cifar-train"])
def test_labels_reach_only_a_network_that_cannot_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: str
) -> None:
    (tmp_path / "cifar_model.py").write_text(MODEL)
    write_folder(tmp_path / "cifar", ".bin")
    write_folder(tmp_path / "python", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "cifar_model", raising=False)
    for function in ("plain", "by_class", "may_have_class"):
        words = (
            "find",
            f"cifar_model:{function}",
            data,
            "-o",
            f"out-{function}",
            "--samples",
            4,
            "--heldout-samples",
            4,
        )
        code, _, err = run(capsys, *words, "--every-step")
        assert code == 0, err
        assert "4 samples of shape (3, 32, 32) choose the path" in err
        assert ("its training half" in err) == (data in ("cifar", "python"))
    words = ("sample", "cifar_model:by_class", "out-by_class/schedules.json", "-k", 3, "-n", 4, "--conditioning", data)
    code, _, err = run(capsys, *words, "-o", "samples.npy")
    assert code == 0, err


def test_a_class_conditional_model_without_labels_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cifar_model.py").write_text(MODEL)
    np.save(tmp_path / "images.npy", IMAGES.numpy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "cifar_model", raising=False)
    code, _, err = run(capsys, "estimate", "cifar_model:by_class", "images.npy", "-o", "out.safetensors")
    assert code == 2
    assert "images.npy: holds no labels" in err


def test_the_embedded_data_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "models")
    assert code == 0
    for name in zoo.data_names():
        assert name in out
    assert "the first 512 test images of CIFAR-10" in out
    assert json.loads(run(capsys, "models", "--json")[1])["data"] == [*zoo.data_names(), *zoo.text_names()]


def test_a_class_conditional_pipeline_gets_the_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    blocks = {"block_out_channels": (8, 8), "layers_per_block": 1, "norm_num_groups": 4, "num_class_embeds": 10}
    unet = diffusers.UNet2DModel(
        sample_size=32,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        **blocks,
    )
    diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler(5)).save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "cifar", ".bin")
    capsys.readouterr()
    code, _, err = run(capsys, "estimate", "model", "cifar", "-o", "from-files.safetensors", "--samples", 3)
    assert code == 0, err
    code, _, err = run(capsys, "estimate", "model", "cifar-train", "-o", "embedded.safetensors", "--samples", 3)
    assert code == 0, err
    first, second = (dpstride.Statistics.load(f"{name}.safetensors") for name in ("from-files", "embedded"))
    np.testing.assert_array_equal(first.squared_error, second.squared_error)
    # Labels matter to this network, and those of the data are the ones that were used.
    with_others = dpstride.estimate(
        load_model(tmp_path / "model").denoiser, (IMAGES[:3], 9 - LABELS[:3]), progress=False
    )
    assert not np.array_equal(with_others.squared_error, first.squared_error)
