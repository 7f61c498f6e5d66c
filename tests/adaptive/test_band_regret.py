"""Adaptive estimates for samples: regret is a share of what a path costs, and what is stated holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpstride import band_costs, estimate, estimate_adaptively, optimise, solve
from dpstride.adaptive.loop import Goal
from dpstride.objectives.band import Band
from dpstride.options import CostOptions
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

BUDGETS = (4, 8)


def test_the_stated_regret_holds_against_every_step() -> None:
    """With 95% confidence: at least 5 of 6 hold with a chance of 0.97, and none of these seeds was chosen."""
    denoiser, band = mixture_denoiser(T=60), Band()
    truth = estimate(denoiser, mixture_data(1000, seed=999), batch_size=500, progress=False)
    held = []
    for seed in range(3):
        few, report = estimate_adaptively(
            denoiser, mixture_data(48, seed=seed), budgets=BUDGETS, tolerance=0.02, band=band, progress=False
        )
        assert "of what it costs" in report.sentence()
        # Noise levels are measured by the data that choose.
        costs = band_costs(replace(truth, data={**truth.data, "deviation": few.data["deviation"]}))
        chosen, best = solve(band_costs(few)), solve(costs)
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
    costs = band_costs(estimate(denoiser, data, progress=False))
    for K in BUDGETS:
        assert list(schedules[K].steps) == solve(costs).path(K)
        assert schedules[K].bpd is not None
    few = optimise(denoiser, data, objective="samples", tolerance=0.1, budgets=BUDGETS, progress=False)
    assert few.provenance["adaptive"]["unit"] == "of what it costs"
    with pytest.raises(ValueError, match="sampler is for objective='samples'"):
        optimise(denoiser, data, sampler="ddim", progress=False)
    with pytest.raises(ValueError, match="objective must be one of 'elbo', 'samples'"):
        optimise(denoiser, data, objective="mixed", progress=False)
