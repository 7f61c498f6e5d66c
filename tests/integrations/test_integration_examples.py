"""Every example of examples/integrations runs as it stands, in a folder of its own, and has at most twenty lines."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import diffusers
import pipelines
import pytest
import torch
from openai_network import Walk

from dpstride.integrations.openai_flags import OpenAIFlags

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "integrations").glob("*.py"))
FLAGS = "--image_size 16 --num_channels 32 --num_res_blocks 1 --channel_mult 1,2 --attention_resolutions 8 "
FLAGS += "--learn_sigma True --noise_schedule cosine"


def arguments_of(name: str) -> list[str]:
    """What the examples that read a file are given: small random weights in the format they ask for."""
    if name == "openai_checkpoint.py":
        walk = Walk(OpenAIFlags.parse(FLAGS))
        walk(torch.zeros(1, 3, 16, 16), torch.zeros(1))
        torch.save(walk.state, "model.pt")
        return ["model.pt", FLAGS]
    if name == "text_to_image.py":
        pipelines.stable_diffusion_3(diffusers.FlowMatchEulerDiscreteScheduler(20, shift=3.0)).save_pretrained("sd3")
        return ["sd3"]
    return []


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_example(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), *arguments_of(example.name)])
    capsys.readouterr()
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip(), "an example shows what it did"
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 20


def test_every_integration_has_one():
    assert {"diffusers_pipeline.py", "openai_checkpoint.py", "from_any_callable.py"} <= {path.name for path in EXAMPLES}
