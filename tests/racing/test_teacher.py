"""Paths of the trajectory objective race with deterministic samplers, from a teacher whose cost is stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dpstride import Denoiser, ScheduleSet, estimate_trajectory, even_stride, trajectory_schedules, tune
from dpstride.racing.sampling import BuiltIn, Own
from dpstride.racing.teacher import evaluations, followed, teacher_of, trajectory_paths
from dpstride.runs.execution import Execution
from dpstride.statistics.data import Samples
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

SMALL: dict[str, Any] = {
    "budgets": (3,), "samples": 8, "race_samples": 8, "first_samples": 8, "choosing": 16, "reference": 8, "progress": False,
}  # fmt: skip
DATA = mixture_data(100, seed=0)


def test_only_deterministic_samplers_that_the_objective_knows_have_a_teacher() -> None:
    assert followed(BuiltIn("dpmpp_2m")) == "dpmpp_2m"
    assert followed(BuiltIn("ddim")) == "ddim"
    assert followed(BuiltIn("ddim", 0.5)) is None
    assert followed(BuiltIn("ancestral")) is None
    assert followed(BuiltIn("heun")) is None
    assert followed(Own(lambda denoiser, schedule, noise: noise)) is None


def test_paths_are_those_of_the_objective_on_128_steps_and_cost_what_is_said(tmp_path: Path) -> None:
    made, model = {"passes": 0}, mixture_denoiser(300)

    def network(x: Tensor, time: Tensor) -> Tensor:
        made["passes"] += len(x)
        return model.network(x, time)

    counted = Denoiser(network, model.process, predicts="x0", shape=(1, 4, 4))
    data = Samples.read(DATA, None, "uint8")
    how = Execution(seed=3, batch_size=64, progress=False)
    found = trajectory_paths(counted, "ddim", data, 6, how, tmp_path)
    assert found.budgets == [1, 2, 3, 4, 5, 6]
    said = evaluations(counted, data)
    assert 0.7 * said < made["passes"] < 1.2 * said
    before = made["passes"]
    assert trajectory_paths(counted, "ddim", data, 6, how, tmp_path).entries == found.entries
    assert made["passes"] - before < 50  # probes: trajectories are kept
    teacher = teacher_of(model)
    assert teacher.process.T == 128
    own = trajectory_schedules(estimate_trajectory(teacher, 32, 3, progress=False), "ddim", 6)
    assert [found[K].steps for K in found.budgets] == [own[K].steps for K in found.budgets]


def test_they_race_under_a_name_that_nothing_else_may_have(tmp_path: Path) -> None:
    race = tune(mixture_denoiser(60), DATA, tmp_path / "out", sampler="dpmpp_2m", **SMALL)
    assert "trajectory" in race.heats[0].rounds[0].distances
    assert race.finish.entries["trajectory", 3].distance > 0.0  # and it is measured again beside the winner
    assert "trajectory" in race.table()
    assert (tmp_path / "out" / "trajectory.safetensors").is_file()
    other = ScheduleSet.of([even_stride(mixture_denoiser(60).process, 3)])
    with pytest.raises(ValueError, match="'trajectory' is the name of another candidate"):
        tune(mixture_denoiser(60), DATA, tmp_path / "other", also={"trajectory": other}, **SMALL)


def test_a_grid_of_few_steps_has_them_too(tmp_path: Path) -> None:
    model = mixture_denoiser(4)
    found = trajectory_paths(model, "ddim", Samples.read(DATA, None, "uint8"), 4, Execution(0, 8, False), tmp_path)
    assert found[4].steps == (4, 3, 2, 1, 0)
    assert isinstance(found[2].steps, tuple)
    assert torch.isfinite(torch.tensor(found[2].steps)).all()
