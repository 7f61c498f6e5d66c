"""Budgets are evaluations: how many steps they pay for, what is said of it, and what a guided model costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dpstride import Denoiser, tune
from dpstride.integrations.guidance import Guided
from dpstride.racing.outcome import Race
from dpstride.racing.passes import Passes
from dpstride.racing.sampling import BuiltIn, Own, sampling_of
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

T = 60
DATA = mixture_data(160, seed=0)
SMALL: dict[str, Any] = {
    "samples": 8, "race_samples": 8, "first_samples": 8, "choosing": 16, "reference": 8, "progress": False,
}  # fmt: skip


@pytest.mark.parametrize("passes", [Passes(), Passes(2), Passes(2, last=1), Passes(3, last=2)])
def test_a_budget_pays_for_the_most_steps_that_it_can(passes: Passes) -> None:
    for evaluations in range(passes.along(1), 40):
        steps = passes.steps(evaluations)
        assert passes.along(steps) <= evaluations < passes.along(steps + 1)


def test_what_steps_cost_is_said_where_it_is_not_one_evaluation() -> None:
    assert Passes().words == ""
    assert Passes(2, last=1).words == "K steps take 2K − 1 evaluations"
    assert Passes(3).words == "K steps take 3K evaluations"
    assert BuiltIn("heun").cost == Passes(2, last=1)
    assert sampling_of("euler") == BuiltIn("ddim")
    with pytest.raises(ValueError, match=r"passes must be a whole number of network evaluations in every step"):
        Own(lambda denoiser, schedule, noise: noise, passes=0)


def test_heun_races_paths_of_half_as_many_steps(tmp_path: Path) -> None:
    made = {"passes": 0}
    model = mixture_denoiser(T)

    def network(x: Tensor, time: Tensor) -> Tensor:
        made["passes"] += len(x)
        return model.network(x, time)

    counted = Denoiser(network, model.process, predicts="x0", shape=(1, 4, 4))
    race = tune(counted, DATA, tmp_path / "out", sampler="heun", budgets=(4, 5, 7), **SMALL)
    assert [heat.budget for heat in race.heats] == [2, 3, 4]
    assert race.answer.startswith("With Heun (K steps take 2K − 1 evaluations), ")
    assert "4 steps (7 evaluations)" in race.table()
    assert Race.load(tmp_path / "out" / "race.json", race.schedules).cost == Passes(2, last=1)
    assert race.schedules.sampler == "heun"
    before, spent = made["passes"], sum(race.evaluations.values())
    tune(counted, DATA, tmp_path / "out", sampler="heun", budgets=(4, 5, 7), **SMALL)
    probes = made["passes"] - before
    statistics = before - spent - probes
    assert 0 < statistics <= 60 * 16 + 100  # the rest of what the network was given is what is said to be spent


def guided_model(scale: float) -> Denoiser:
    """The exact denoiser, with a condition that shifts its output a little."""
    plain = mixture_denoiser(T)

    def network(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        return plain.network(x, time) + 0.02 * label.reshape(-1, 1, 1, 1).to(x)

    return Denoiser(Guided(network, {"label": torch.zeros(1)}, scale), plain.process, predicts="x0", shape=(1, 4, 4))


def test_a_guided_model_counts_two_passes_for_an_evaluation(tmp_path: Path) -> None:
    data = (DATA, {"label": torch.arange(len(DATA)) % 3})
    said: list[str] = []
    race = tune(guided_model(3.0), data, tmp_path / "out", budgets=(2, 4), say=said.append, **SMALL)
    assert [heat.budget for heat in race.heats] == [2, 4]
    assert "DDIM (each of 2 passes of the guided network)" in race.answer
    measured = {(entry.steps, entry.budget) for entry in (race.finish.reference, *race.finish.entries.values())}
    assert race.evaluations["finish"] == 2 * 8 * sum(budget for _, budget in measured)
    assert (tmp_path / "out" / "report.html").is_file()
    assert race.schedules[3].budget == 3
    with pytest.raises(ValueError, match=r"model"):  # another scale is another model
        tune(guided_model(1.5), data, tmp_path / "out", budgets=(2, 4), **SMALL)


@pytest.mark.parametrize(
    ("budgets", "sampler", "message"),
    [
        ((200,), "heun", r"whole numbers of evaluations from 1 to 119 \(1 to T = 60 steps\), not 200"),
        ((61,), "ddim", r"from 1 to 60 \(1 to T = 60 steps\), not 61"),
        ((1,), Own(lambda denoiser, schedule, noise: noise, passes=2), r"from 2 to 120 \(1 to T = 60 steps\), not 1"),
    ],
)
def test_budgets_beyond_the_grid_are_refused(budgets: Any, sampler: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        tune(mixture_denoiser(T), DATA, tmp_path / "out", budgets=budgets, sampler=sampler, **SMALL)
