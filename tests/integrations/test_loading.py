"""MODEL strings, and life without diffusers."""

from __future__ import annotations

import sys

import diffusers
import pipelines
import pytest
import torch
from openai_network import Walk

import dpstride
from dpstride.integrations.loaded import LoadedModel, UnsupportedModelError
from dpstride.integrations.loading import load_model
from dpstride.integrations.openai_flags import OpenAIFlags


def test_a_folder_is_a_diffusers_pipeline(tmp_path):
    pipeline = diffusers.DDPMPipeline(unet=pipelines.unet(), scheduler=diffusers.DDPMScheduler(20))
    pipeline.save_pretrained(tmp_path / "mine")
    model = load_model(str(tmp_path / "mine"), variance="upper")
    assert model.denoiser.variance == "upper"
    assert load_model(tmp_path / "mine").denoiser.name == "mine"


def test_a_pt_file_is_an_openai_checkpoint(tmp_path):
    line = "--image_size 16 --num_channels 32 --num_res_blocks 1 --channel_mult 1,2 --attention_resolutions 8"
    walk = Walk(OpenAIFlags.parse(line))
    walk(torch.zeros(1, 3, 16, 16), torch.zeros(1))
    torch.save(walk.state, tmp_path / "ema.pt")
    assert load_model(tmp_path / "ema.pt", flags=line).denoiser.shape == (3, 16, 16)


def test_a_function_runs_the_users_code(tmp_path, monkeypatch):
    (tmp_path / "my_denoisers.py").write_text(
        "import dpstride\n"
        "def make(T=10):\n"
        "    return dpstride.Denoiser(lambda x, t: 0 * x, dpstride.ForwardProcess.cosine(T))\n"
        "def named():\n"
        "    return dpstride.Denoiser(lambda x, t: 0 * x, dpstride.ForwardProcess.cosine(9), name='mine')\n"
        "def wrong():\n"
        "    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    model = load_model("my_denoisers:make", T=12)
    assert isinstance(model, LoadedModel)
    assert model.denoiser.process.T == 12
    assert "ran your code" in model.describe()
    assert model.denoiser.name == "my_denoisers:make"  # as typed, since it was given no name
    assert load_model("my_denoisers:named").denoiser.name == "mine"
    for text, message in (
        ("my_denoisers:wrong", r"must return a dpstride\.Denoiser"),
        ("my_denoisers:none", "has no function"),
        ("no_such_module:make", "cannot be imported"),
    ):
        with pytest.raises(UnsupportedModelError, match=message):
            load_model(text)


def test_what_is_nothing_of_these_is_refused(tmp_path):
    (tmp_path / "model.ckpt").write_bytes(b"")
    with pytest.raises(UnsupportedModelError, match=r"\.pt, \.pth"):
        load_model(tmp_path / "model.ckpt")
    with pytest.raises(UnsupportedModelError, match="no such folder"):
        load_model("no/such/folder/anywhere")
    with pytest.raises(UnsupportedModelError, match="could not load it"):
        load_model("nobody/nothing")  # HF_HUB_OFFLINE is set


def test_without_diffusers_the_core_works_and_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "model_index.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "diffusers", None)
    for text in (tmp_path, "owner/name", tmp_path / "ema.pt"):
        with pytest.raises(UnsupportedModelError, match=r'pip install "dpstride\[diffusers\]"'):
            load_model(text)
    process = dpstride.ForwardProcess.cosine(20)
    denoiser = dpstride.Denoiser(lambda x, t: 0 * x, process, predicts="x0")
    schedules = dpstride.optimise(denoiser, torch.zeros(2, 1, 2, 2, dtype=torch.uint8), progress=False)
    assert schedules[3].for_diffusers()[0] == 19
