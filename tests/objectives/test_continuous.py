"""Refinement in continuous time against grids so fine that their optimum is the continuous one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dpstride import Denoiser, ForwardProcess, Lines, bits_per_dim, elbo_costs, solve
from dpstride.objectives.continuous import continuous_costs, refine_path
from gaussian import GaussianNetwork, ideal_statistics

MEAN, VARIANCE = np.array([0.4, -0.8, 0.0]), np.array([0.25, 1.0, 0.05])
MAKE = {"vp_linear": ForwardProcess.vp_linear, "rectified_flow": ForwardProcess.rectified_flow}


def exact_cost(process: ForwardProcess, variance: str, decoder: str) -> float:
    """Cost of visiting every point of ``process``, from the closed form of E e²: no interpolation."""
    table = elbo_costs(ideal_statistics(process, MEAN, VARIANCE), variance, decoder)  # type: ignore[arg-type]
    path = range(process.T, -1, -1)
    return float(sum(table.L[t, s] for t, s in itertools.pairwise(path)))


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("K", [3, 8])
def test_refined_paths_reach_the_optimum_of_a_very_fine_grid(name: str, K: int) -> None:
    """T = 60 → continuous, against T = 6,000, which holds every point of the coarse grid."""
    coarse, fine = MAKE[name](60), MAKE[name](6000)
    # Neither may go below the first time of the coarse grid, where it knows nothing.
    allowed = fine.subset(np.arange(100, 6001))
    statistics = ideal_statistics(allowed, MEAN, VARIANCE)
    table = elbo_costs(ideal_statistics(coarse, MEAN, VARIANCE))
    grid = solve(table, K)
    squared_error = statistics.squared_error[:, 0]
    decoder = 0.5 * 3 * np.log(2.0 * np.pi * allowed.g[1:] ** 2) + 0.5 * squared_error[1:] / allowed.g[1:] ** 2
    best = solve(Lines(np.append(0.0, allowed.snr[1:]), squared_error, np.append(0.0, decoder)), K)
    refined = refine_path(continuous_costs(ideal_statistics(coarse, MEAN, VARIANCE)), grid.path(K))
    reached = exact_cost(refined.schedule.process, "posterior", "upper")
    gain = grid.cost_nats(K) - best.cost_nats(K)
    assert gain > 1e-5  # that there is something to gain
    assert reached < best.cost_nats(K) + 0.05 * gain
    assert refined.grid_cost_nats == pytest.approx(
        grid.cost_nats(K), abs=1e-9
    )  # at grid points nothing is interpolated
    assert refined.cost_nats <= refined.grid_cost_nats
    assert refined.schedule.budget == K


@pytest.mark.parametrize(("variance", "decoder"), [("upper", "upper"), ("optimal", "optimal")])
def test_other_options_are_refined_too(variance: Any, decoder: Any) -> None:
    process = ForwardProcess.vp_linear(50)
    statistics = ideal_statistics(process, MEAN, VARIANCE)
    costs = continuous_costs(statistics, variance, decoder)
    path = solve(costs.grid, 6).path(6)
    refined = refine_path(costs, path)
    exact = exact_cost(refined.schedule.process, variance, decoder)
    assert refined.cost_nats == pytest.approx(exact, abs=2e-3)
    before = exact_cost(costs.process(process.times[path[::-1]]), variance, decoder)
    assert exact < before + 1e-4
    # A local optimum: moving any time either way does not help.
    times = refined.schedule.process.times
    for k, sign in itertools.product(range(1, 6), (-1.0, 1.0)):
        moved = times.copy()
        moved[k] += sign * 1e-3 * (times[k + 1] - times[k])
        if times[1] <= moved[k]:
            table = costs.on(costs.process(moved)).L
            assert np.diagonal(table, -1).sum() >= refined.cost_nats - 1e-9


def test_refined_schedules_are_scored_like_any_other() -> None:
    process = ForwardProcess.vp_linear(50)
    network = GaussianNetwork(process, MEAN, VARIANCE)
    denoiser = Denoiser(network, process, predicts="x0", clip=None, shape=(3,), time_input="time")
    costs = continuous_costs(ideal_statistics(process, MEAN, VARIANCE), "optimal", "optimal")
    schedule = refine_path(costs, solve(costs.grid, 5).path(5)).schedule
    x = MEAN + np.sqrt(VARIANCE) * np.random.default_rng(0).standard_normal((4000, 3))
    found = bits_per_dim(denoiser.on_grid(schedule.process), x, schedule, data_range="continuous", batch_size=4000)
    assert schedule.bpd is not None
    assert abs(found.bpd - schedule.bpd) < 5.0 * found.standard_error + 1e-3


def test_processes_without_functions_and_other_options_are_refused() -> None:
    with pytest.raises(ValueError, match="known at its grid points only"):
        continuous_costs(ideal_statistics(ForwardProcess.linear(20), MEAN, VARIANCE))
    statistics = ideal_statistics(ForwardProcess.vp_linear(20), MEAN, VARIANCE)
    with pytest.raises(ValueError, match="not 'posterior' with 'respaced'"):
        continuous_costs(statistics, decoder="respaced")
