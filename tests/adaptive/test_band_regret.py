"""Adaptive estimates for samples: regret is a share of what a path costs, and what is stated holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpstride import estimate, estimate_adaptively, optimise, solve
from dpstride.adaptive.band import BandJudge
from dpstride.adaptive.loop import Goal
from dpstride.objectives.band import DEFAULT, Band, costs_over
from dpstride.options import CostOptions
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

BUDGETS = (4, 8)


@pytest.mark.parametrize("band", [Band(), Band(cap=0.5), Band(cap=1.5, evenness=0.5)], ids=lambda band: band.words)
def test_the_stated_regret_holds_against_every_step(band: Band) -> None:
    """With 95% confidence: at least 5 of 6 hold with a chance of 0.97, and none of these seeds was chosen."""
    denoiser = mixture_denoiser(T=60)
    truth = estimate(denoiser, mixture_data(1000, seed=999), batch_size=500, progress=False)
    held = []
    for seed in range(3):
        few, report = estimate_adaptively(
            denoiser, mixture_data(48, seed=seed), budgets=BUDGETS, tolerance=0.02, band=band, progress=False
        )
        assert "of what it costs" in report.sentence()
        # Noise levels are measured by the data that choose.
        costs = costs_over(band, replace(truth, data={**truth.data, "deviation": few.data["deviation"]}))
        chosen, best = solve(costs_over(band, few)), solve(costs)
        held += [costs.cost(chosen.path(K)) <= (1.0 + report.regret[K].high) * best.cost(K) for K in BUDGETS]
    assert sum(held) >= 5


def test_a_tolerance_that_is_none_is_refused_in_its_own_unit() -> None:
    with pytest.raises(ValueError, match="shares of a path's cost"):
        Goal(CostOptions("posterior"), BUDGETS, tolerance=0.0, band=Band())


def test_optimise_takes_the_objective_for_samples() -> None:
    denoiser, data = mixture_denoiser(T=40), mixture_data(32, seed=3)
    schedules = optimise(denoiser, data, objective="samples", sampler="ddim", eta=0.5, progress=False)
    assert (schedules.sampler, schedules.eta) == ("ddim", 0.5)
    assert schedules.options["variance"] == "optimal"
    costs = costs_over(DEFAULT, estimate(denoiser, data, progress=False))
    for K in BUDGETS:
        assert list(schedules[K].steps) == solve(costs).path(K)
        assert schedules[K].bpd is not None
    few = optimise(denoiser, data, objective="samples", tolerance=0.1, budgets=BUDGETS, progress=False)
    assert few.provenance["adaptive"]["unit"] == "of what it costs"
    with pytest.raises(ValueError, match="sampler is for objective='samples'"):
        optimise(denoiser, data, sampler="ddim", progress=False)
    with pytest.raises(ValueError, match="objective must be one of 'elbo', 'samples'"):
        optimise(denoiser, data, objective="mixed", progress=False)


@pytest.mark.parametrize("band", [Band(), Band(cap=0.5), Band(cap=1.5, evenness=0.5)], ids=lambda band: band.words)
def test_the_judge_has_the_costs_that_paths_are_chosen_by(band: Band) -> None:
    """With every time evaluated and no error, its table is that of the objective."""
    statistics = estimate(mixture_denoiser(T=30), mixture_data(40, seed=1), progress=False)
    judge = BandJudge(statistics, np.arange(31) > 0, band)
    still = np.ones((3, judge.grid.size))
    table = judge.table(judge.steps(judge.sizes, still), judge.decoder @ judge.sizes, 6)
    costs = costs_over(band, statistics).L
    inner = np.tri(31, k=-1, dtype=bool)
    inner[:, 0] = False
    np.testing.assert_allclose(table.L[inner], costs[inner], rtol=1e-10)
    below = np.flatnonzero(statistics.squared_error.mean(axis=1) < band.cap * statistics.data["deviation"] ** 2 * 16)[
        1:
    ]
    np.testing.assert_allclose(table.L[below, 0], costs[below, 0], rtol=1e-10)
