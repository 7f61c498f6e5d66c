"""Costs of the last step, against their definition: the best variance, and the one that takes two steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from dpstride import Denoiser, ForwardProcess, elbo_costs, estimate, solve
from gaussian import (
    DirectChain,
    discretised_nats,
    ideal_statistics,
    paths_of,
)
from small_images import learned_network, rough_network, small_images

Network = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
VARIANCES = ("posterior", "upper", "learned_range", "optimal", "learned_optimal")


# --- the decoder ------------------------------------------------------------------------------------------------------


def blurry_network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """A network that is poor at low noise: its residuals stay large where g_t is small."""
    return 0.5 * x


@pytest.mark.parametrize("network", [rough_network, blurry_network])
@pytest.mark.parametrize("kind", ["linear", "cosine", "rectified_flow"])
@pytest.mark.parametrize("data_range", ["uint8", ("levels", 5, 0.0, 1.0)])
def test_optimal_decoder_variance_minimises_the_direct_cost(network: Network, kind: str, data_range: object) -> None:
    levels, low, high = (256, -1.0, 1.0) if data_range == "uint8" else (5, 0.0, 1.0)
    # Ten steps of a fine grid, the cleanest among them.
    process = getattr(ForwardProcess, kind)(1000).subset([1, 2, 3, 10, 50, 200, 400, 600, 800, 1000])
    values = small_images(3, levels)
    denoiser = Denoiser(network, process, predicts="x0", clip=(low, high))
    statistics = estimate(denoiser, values, data_range=data_range, seed=4, progress=False)
    table = elbo_costs(statistics, decoder="optimal")
    chain = DirectChain(denoiser, low + values * (high - low) / (levels - 1), data_range, seed=4)
    assert table.fitted.decoder_variance is not None
    for t in range(1, 11):

        def cost(log_sigma: float, t: int = t) -> float:
            x_0, mean = chain.x_0, chain.x0_hat[t]
            return float(discretised_nats(x_0, mean, math.exp(log_sigma), low, high, levels).sum() / 10)

        starts = np.linspace(-8.0, 3.0, 45)
        at = starts[int(np.argmin([cost(start) for start in starts]))]
        best = minimize_scalar(cost, bounds=(at - 0.3, at + 0.3), method="bounded", options={"xatol": 1e-8})
        # Near a minimum the cost is flat: 1e-9 relative is what a search with steps of 1e-7 in ln sigma must reach.
        assert table.L[t, 0] == pytest.approx(best.fun, rel=1e-9)
        assert cost(0.5 * math.log(table.fitted.decoder_variance[t])) == pytest.approx(best.fun, rel=1e-9)


# --- respaced ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("data_range", ["uint8", "continuous"])
def test_respaced_optimum_against_every_path_of_the_respaced_chain(variance: str, data_range: str) -> None:
    process, values = ForwardProcess.linear(7), small_images(8)
    x_0 = values / 127.5 - 1.0
    denoiser = Denoiser(learned_network, process, predicts="x0", variance="learned_range")
    data = values if data_range == "uint8" else x_0
    statistics = estimate(denoiser, data, data_range=data_range, seed=2, progress=False)
    table = elbo_costs(statistics, variance=variance, decoder="respaced")
    solution = solve(table)
    chain = DirectChain(denoiser, x_0, data_range, seed=2)
    for K in range(2, 8):
        costs = {path: chain.bpd(path, variance, "respaced", table.fitted) for path in paths_of(7, K)}
        best = min(costs, key=lambda path: costs[path])
        assert solution.bpd(K) == pytest.approx(costs[best], abs=1e-9)
        assert costs[tuple(solution.path(K))] == pytest.approx(costs[best], abs=1e-9)
    with pytest.raises(ValueError, match=r"Budget 1 is undefined\. The respaced decoder takes"):
        solution.path(1)


def test_respaced_table_refuses_a_path_of_one_step() -> None:
    statistics = ideal_statistics(ForwardProcess.linear(5), np.zeros(2), np.ones(2))
    table = elbo_costs(statistics, decoder="respaced")
    assert np.isinf(table.L[:, 0]).all()
    with pytest.raises(ValueError, match="a path needs two steps"):
        table.step_nats((5, 0))


def test_respaced_needs_two_grid_steps() -> None:
    with pytest.raises(ValueError, match="takes its variance from a second step; this grid has only one"):
        elbo_costs(ideal_statistics(ForwardProcess.linear(1), 0.0, 1.0), decoder="respaced")
