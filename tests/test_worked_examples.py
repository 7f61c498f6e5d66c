"""Every example of CONTRIBUTING.md is put where a contributor would put it, and works."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import dpstride
from dpstride import options, samplers
from dpstride.decoders import find as find_decoder
from dpstride.fitted import Fitted
from dpstride.training import objectives
from dpstride.variances import Errors, Steps, find as find_variance

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
PROCESS = dpstride.ForwardProcess.cosine(12)


def installed(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module of the package under its own name."""
    name = "dpstride." + path.removesuffix(".py").replace("/", ".")
    module = ModuleType(name)
    exec(compile(EXAMPLES[path], path, "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_every_kind_has_an_example_of_under_sixty_lines() -> None:
    assert {path.rsplit("/", 1)[0] for path in EXAMPLES} == {
        "variances",
        "decoders",
        "samplers",
        "training/objectives",
        "strides.py",
        "objectives",
        "integrations",
        "cli",
    }
    assert all(code.count("\n") < 60 for code in EXAMPLES.values())


def test_the_variance_costs_what_two_gaussians_do(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("variances/middle.py", monkeypatch)
    record, (t, s), dims, error = find_variance("middle"), (7, 4), 5, 0.8
    _, b = PROCESS.posterior_mean(t, s)
    own, low = record.value(PROCESS, t, s, None, Fitted()), float(PROCESS.posterior_variance(t, s))
    textbook = 0.5 * (dims * (low / own - 1.0 - np.log(low / own)) + float(b) ** 2 * error / own)
    found = record.nats(Steps(process=PROCESS, t=t, s=s, dims=dims), Errors(squared_error=error), Fitted())
    assert float(found) == pytest.approx(textbook, rel=1e-10)


def test_the_decoder_has_its_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("decoders/halved.py", monkeypatch)
    assert find_decoder("halved").value(PROCESS, 3, None, Fitted()) == 0.5 * PROCESS.g[3] ** 2


def test_the_sampler_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("samplers/renoised.py", monkeypatch)
    monkeypatch.setattr(samplers, "SAMPLERS", (*options.SAMPLERS, "renoised"))
    move = samplers.Move(process=PROCESS, t=7, s=4, x=torch.ones(2), x0_hat=torch.full((2,), 0.5))
    x, variance = samplers.find("renoised").step(move)
    assert variance == PROCESS.g[4] ** 2
    assert torch.equal(x, torch.full((2,), 0.5) * float(PROCESS.f[4]))


def test_the_training_objective_is_least_for_its_own_target(monkeypatch: pytest.MonkeyPatch) -> None:
    installed("training/objectives/clean.py", monkeypatch)
    monkeypatch.setattr(objectives, "TRAINING_OBJECTIVES", (*options.TRAINING_OBJECTIVES, "clean"))
    x0, eps, t = torch.zeros(3, 1, 2, 2), torch.ones(3, 1, 2, 2), torch.tensor([1, 5, 12])
    f = torch.as_tensor(PROCESS.f[t.numpy()]).float().reshape(-1, 1, 1, 1)
    losses = objectives.sample_losses(lambda x, time: f * eps, PROCESS, "clean", x0=x0, t=t, eps=eps)
    assert losses.tolist() == pytest.approx([0.0] * 3, abs=1e-12)


def test_the_stride_and_the_objective_make_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = installed("strides.py", monkeypatch).RULES
    assert rules["early"].make(PROCESS, 4).steps == (12, 3, 2, 1, 0)
    shortest = installed("objectives/shortest.py", monkeypatch)
    path = shortest.shortest_path(PROCESS, 4)
    assert (path[0], path[-1], len(path)) == (12, 0, 5)


def test_the_adapter_gives_a_denoiser(monkeypatch: pytest.MonkeyPatch) -> None:
    load = installed("integrations/two_arguments.py", monkeypatch).load_two_arguments
    model = load(lambda time, x: 0.0 * x + time.reshape(-1, 1), T=10, shape=(3,))
    assert model.denoiser(torch.zeros(2, 3, dtype=torch.float64), 5).x0_hat.shape == (2, 3)
    assert "time first" in model.notes[0]


def test_the_verb_parses_and_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = installed("cli/budgets.py", monkeypatch).budgets_command
    schedule = dpstride.even_stride(PROCESS, 4)
    dpstride.ScheduleSet.of([schedule]).save(tmp_path / "schedules.json")
    result = CliRunner().invoke(command, [str(tmp_path / "schedules.json"), "--json"])
    assert json.loads(result.output) == {"budgets": [4]}
