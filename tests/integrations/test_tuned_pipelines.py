"""Races of guided pipelines, class-conditional and prompted: labels are common to all candidates, passes are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pipelines
import pytest
import torch

from dpstride import Schedule, ScheduleSet, sample, tune
from dpstride.integrations.diffusers import load_diffusers
from dpstride.integrations.loaded import LoadedModel
from dpstride.racing.outcome import Race

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # within diffusers
IMAGES = torch.randint(0, 256, (64, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
SMALL: dict[str, Any] = {
    "budgets": (2,), "samples": 4, "race_samples": 4, "first_samples": 4, "choosing": 2, "reference": 4,
    "features": "none", "progress": False,
}  # fmt: skip


def guided(kind: str) -> LoadedModel:
    scheduler = diffusers.DDPMScheduler(pipelines.T, clip_sample=False, steps_offset=int(kind == "stable_diffusion"))
    return load_diffusers(getattr(pipelines, kind)(scheduler), guidance_scale=3.0)


def check(race: Race, model: LoadedModel, conditions: Any, folder: Path) -> None:
    """Two passes an evaluation are counted and said, and the schedules draw from the guided pipeline."""
    assert "each of 2 passes of the guided network" in race.answer
    measured = {entry.steps for entry in (race.finish.reference, *race.finish.entries.values())}
    assert race.evaluations["finish"] == 2 * 4 * sum(len(steps) - 1 for steps in measured)
    assert any("classifier-free" in note for note in model.notes)
    assert "2 passes of the guided network" in (folder / "report.html").read_text()
    assert model.encode is not None
    _, given = model.encode(IMAGES[:2], conditions[:2])
    chosen = ScheduleSet.load(folder / "schedules.json")[2]
    assert torch.isfinite(sample(model.denoiser, chosen, 2, conditioning=given)).all()


def test_a_guided_pipeline_of_prompts_is_raced(tmp_path: Path) -> None:
    model, prompts = guided("stable_diffusion"), ["dog", "cat"] * 32
    check(tune(model, (IMAGES, prompts), tmp_path / "out", **SMALL), model, prompts, tmp_path / "out")


def test_candidates_of_a_class_conditional_pipeline_share_their_labels(tmp_path: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def one_step(denoiser: Any, schedule: Schedule, noise: torch.Tensor, conditioning: Any) -> torch.Tensor:
        seen.append(tuple(conditioning["class_labels"].tolist()))
        return denoiser(noise, schedule.steps[-2], conditioning).x0_hat

    model, labels = guided("dit"), np.arange(64) % 10
    race = tune(model, (IMAGES, labels), tmp_path / "out", sampler=one_step, **SMALL)
    check(race, model, labels, tmp_path / "out")
    order = np.random.default_rng(0).permutation(64)
    drawn = {each for each in seen if len(each) == SMALL["samples"]}  # fewer are those of the sampler's trial
    assert drawn == {tuple(labels[order[:4]]), tuple(labels[order[32:36]])}  # of the race, and of the end
