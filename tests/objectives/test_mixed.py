"""The mixed objective and its trade-off against all paths of small grids."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import Denoiser, ForwardProcess, compare, elbo_costs, estimate, solve
from dpstride.objectives.mixed import mixed_costs, mixed_schedules, trade_off
from dpstride.objectives.trajectory import trajectory_costs, trajectory_schedules
from dpstride.statistics.trajectory import estimate_trajectory
from gaussian import LN2, MixtureNetwork, mixture_data, paths_of

MEANS = np.array([[0.7, -0.4, 0.1], [-0.6, 0.5, 0.9], [0.0, -0.9, -0.7]])
T = 9
PROCESS = ForwardProcess.linear(T)


@pytest.fixture(scope="module")
def model() -> Any:
    denoiser = Denoiser(MixtureNetwork(PROCESS, MEANS, 0.02), PROCESS, predicts="x0", clip=None, shape=(3,))
    data = torch.from_numpy(mixture_data(MEANS, 0.02, 20, seed=0))
    statistics = estimate(denoiser, data, data_range="continuous", progress=False)
    return statistics, estimate_trajectory(denoiser, samples=20)


def all_costs(elbo: Any, distance: Any, K: int) -> dict[tuple[int, ...], tuple[float, float]]:
    """Bits/dim and distance of every path, from the two tables' entries."""
    found = {}
    for path in paths_of(T, K):
        nats = elbo.step_nats(path).sum() + elbo.prior_nats
        found[path] = (nats / (3 * LN2), sum(distance.L[t, s] for t, s in itertools.pairwise(path)))
    return found


@pytest.mark.parametrize(("variance", "decoder"), [("posterior", "upper"), ("upper", "respaced")])
@pytest.mark.parametrize("weight", [0.0, 0.3, 40.0])
def test_the_path_is_the_best_of_the_weighted_sum(model: Any, variance: Any, decoder: Any, weight: float) -> None:
    statistics, trajectory = model
    elbo, distance = elbo_costs(statistics, variance, decoder), trajectory_costs(trajectory)
    schedules = mixed_schedules(statistics, trajectory, weight, variance, decoder)
    assert (1 in schedules) == (decoder == "upper")
    for K in range(2, T + 1):
        costs = all_costs(elbo, distance, K)
        least = min(bpd + weight * d for bpd, d in costs.values())
        bpd, reached = costs[schedules[K].steps]
        assert bpd + weight * reached == pytest.approx(least, rel=1e-12)
        assert schedules[K].bpd == pytest.approx(bpd, rel=1e-12)
        distances = schedules.provenance["trajectory_costs"]
        assert distances[schedules.budgets.index(K)] == pytest.approx(reached, rel=1e-12)


@pytest.mark.parametrize("decoder", ["upper", "respaced"])
def test_the_trade_off_has_every_corner_of_the_hull_of_all_paths(model: Any, decoder: Any) -> None:
    statistics, trajectory = model
    elbo, distance = elbo_costs(statistics, "posterior", decoder), trajectory_costs(trajectory)
    fronts = trade_off(elbo, distance, [3, 4, 5])
    sizes = []
    for K, front in fronts.items():
        costs = all_costs(elbo, distance, K)
        points = np.array(list(costs.values()))
        for point in front:
            assert costs[point.steps] == pytest.approx((point.bpd, point.trajectory_cost), rel=1e-12)
        # A point is on the hull if it is the best for a λ; every λ of a fine scan must be served by the corner that says so.
        for weight in np.geomspace(1e-3, 1e3, 400):
            least = (points[:, 0] + weight * points[:, 1]).min()
            (corner,) = [p for p in front if p.weights[0] <= weight < p.weights[1]]
            assert corner.bpd + weight * corner.trajectory_cost == pytest.approx(least, rel=1e-11)
        assert front[0].bpd == pytest.approx(points[:, 0].min(), rel=1e-12)
        assert front[-1].trajectory_cost == pytest.approx(points[:, 1].min(), rel=1e-12)
        assert all(a.bpd < b.bpd and a.trajectory_cost > b.trajectory_cost for a, b in itertools.pairwise(front))
        assert (front[0].weights[0], front[-1].weights[1]) == (0.0, math.inf)
        sizes.append(len(front))
    assert max(sizes) >= 3  # that there was a trade-off to find


def test_the_ends_are_the_single_objectives(model: Any) -> None:
    statistics, trajectory = model
    elbo = elbo_costs(statistics)
    assert mixed_schedules(statistics, trajectory, 0.0)[4].steps == tuple(solve(elbo).path(4))
    alone = trajectory_schedules(trajectory)
    assert alone[4].steps == tuple(solve(trajectory_costs(trajectory)).path(4))
    assert alone[4].bpd is None
    assert alone.options["sampler"] == "ddim"
    assert alone.provenance["costs"][3] == pytest.approx(trajectory_costs(trajectory).step_costs(alone[4].steps).sum())


def test_tables_that_do_not_fit_are_refused(model: Any) -> None:
    statistics, trajectory = model
    elbo = elbo_costs(statistics)
    with pytest.raises(ValueError, match="depends on two steps"):
        mixed_costs(elbo, trajectory_costs(trajectory, "dpmpp_2m"), 1.0)
    with pytest.raises(ValueError, match="weight must be a finite number of at least 0, not -1"):
        mixed_costs(elbo, trajectory_costs(trajectory), -1)
    denoiser = Denoiser(lambda x, time: 0.1 * x, ForwardProcess.linear(7), predicts="x0", clip=None, shape=(3,))
    other = trajectory_costs(estimate_trajectory(denoiser, samples=2), weight="gaussian")
    with pytest.raises(ValueError, match="different grids"):
        mixed_costs(elbo, other, 1.0)


def test_paths_that_were_asked_to_weigh_samples_are_not_blamed_for_bits(model: Any) -> None:
    statistics, trajectory = model
    heldout = replace(statistics, data={**statistics.data, "fingerprint": "other"})
    asked = mixed_schedules(statistics, trajectory, 1e6)
    silent = replace(asked, options={name: asked.options[name] for name in ("variance", "decoder", "cdf")})
    for schedules, said in ((asked, False), (silent, True)):
        notes = [note for note in compare(schedules, heldout).warnings if "the DP stride is worse than" in note]
        assert bool(notes) == said
        assert all("use more samples" in note for note in notes)
