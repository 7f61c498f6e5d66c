"""Runs kept in half precision: training goes on from them, and logs of earlier runs stay."""

from __future__ import annotations

import torch

from dpstride import ForwardProcess
from dpstride.training.settings import TrainingSettings
from dpstride.training.train import train
from dpstride.zoo.models import load_unet, read_description
from keep_run import keep


def test_training_goes_on_from_what_is_kept(tmp_path):
    images = torch.randint(0, 256, (64, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    process = ForwardProcess.linear(25)
    settings = TrainingSettings(objective="simple", steps=3, channels=(8, 8), batch_size=4, warmup=1)
    train(images, tmp_path / "run", settings, process=process)
    kept = keep(tmp_path / "run", tmp_path / "kept")
    whole, half = (load_unet(folder / "model" / "unet").state_dict() for folder in (tmp_path / "run", kept))
    for name, tensor in whole.items():
        assert half[name].dtype == torch.float32
        torch.testing.assert_close(half[name], tensor.half().float(), rtol=0.0, atol=0.0)

    again = train(images, tmp_path / "again", settings, process=process, warm_start=kept / "model")
    assert read_description(again)["trained_before"]["steps"] == 3
    keep(tmp_path / "again", kept)
    logs = sorted(path.name for path in kept.glob("*-log.json"))
    assert logs == ["0000003-log.json", "0000006-log.json"]
