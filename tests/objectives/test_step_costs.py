"""One class of step costs, and a Solution that chooses, draws, tells and saves alike whatever the objective behind it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import Denoiser, ForwardProcess, Lines, ScheduleSet, StepCosts, elbo_costs, estimate, solve
from dpstride.objectives import engine
from dpstride.objectives.continuous import continuous_costs
from dpstride.objectives.mixed import mixed_costs
from dpstride.objectives.schedules import best_schedules
from dpstride.objectives.trajectory import trajectory_costs
from dpstride.statistics.trajectory import estimate_trajectory
from gaussian import LN2, MixtureNetwork, ideal_statistics, mixture_data, paths_of

MEANS = np.array([[0.7, -0.4, 0.1], [-0.6, 0.5, 0.9], [0.0, -0.9, -0.7]])
T, DIMS, WEIGHT = 9, 3, 5.0
VARIANCES: Any = ("posterior", "upper", "optimal")


def lines_of(costs: StepCosts) -> StepCosts:
    """The ELBO of `posterior` variance without its table."""
    snr = np.append(np.inf, costs.process.snr[1:])
    weights = np.array([0.0, 0.0, *(2.0 * costs.L[t, 1] / (snr[1] - snr[t]) for t in range(2, T + 1))])
    return replace(costs, table=None, lines=Lines(snr, weights, costs.L[:, 0]))


@pytest.fixture(scope="module")
def objectives() -> dict[str, StepCosts]:
    process = ForwardProcess.vp_linear(T)
    denoiser = Denoiser(
        MixtureNetwork(process, MEANS, 0.02), process, predicts="x0", clip=None, shape=(3,), time_input="index0"
    )
    data = torch.from_numpy(mixture_data(MEANS, 0.02, 20, seed=0))
    statistics = estimate(denoiser, data, data_range="continuous", progress=False)
    trajectory = estimate_trajectory(denoiser, samples=20)
    elbo, distance = elbo_costs(statistics, "posterior"), trajectory_costs(trajectory)
    continuous = continuous_costs(statistics, "posterior")
    return {
        "elbo": elbo,
        "lines": lines_of(elbo),
        "respaced": elbo_costs(statistics, "posterior", "respaced"),
        "ddim": distance,
        "dpmpp_2m": trajectory_costs(trajectory, "dpmpp_2m"),
        "mixed": mixed_costs(elbo, distance, WEIGHT),
        "mixed respaced": mixed_costs(elbo_costs(statistics, "posterior", "respaced"), distance, WEIGHT),
        "continuous": continuous.on(process),
    }


NAMES = ["elbo", "lines", "respaced", "ddim", "dpmpp_2m", "mixed", "mixed respaced", "continuous"]
SCORED = [name for name in NAMES if name not in ("ddim", "dpmpp_2m")]


def first_budget(name: str) -> int:
    return 2 if "respaced" in name else 1


@pytest.mark.parametrize("name", NAMES)
def test_the_best_path_of_every_budget_is_the_least_of_all(objectives: dict[str, StepCosts], name: str) -> None:
    costs = objectives[name]
    solution = solve(costs)
    for K in range(first_budget(name), costs.T + 1):
        least = min(costs.cost(path) for path in paths_of(costs.T, K))
        assert solution.cost(K) == pytest.approx(least, rel=1e-12, abs=1e-15)
        assert costs.cost(solution.path(K)) == pytest.approx(least, rel=1e-12, abs=1e-15)
        assert costs.cost(solution.path(K)) == costs.step_costs(solution.path(K)).sum()


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_makes_schedules_of_every_objective(objectives: dict[str, StepCosts], name: str) -> None:
    costs = objectives[name]
    solution, schedules = solve(costs), best_schedules(costs)
    for K in range(first_budget(name), costs.T + 1):
        schedule = solution.schedule(K)
        assert (schedule.steps, schedule.stride, schedule.options) == (tuple(solution.path(K)), "dp", costs.options)
        assert schedules[K].steps == schedule.steps
        assert schedules[K].bpd == schedule.bpd
        if name in SCORED:
            assert schedule.bpd == solution.bpd(K)
            assert "cost" not in schedule.provenance
            if name != "continuous":  # interpolated statistics have no samples
                assert schedules[K].standard_error == pytest.approx(schedule.standard_error, rel=1e-12)
        else:
            assert (schedule.bpd, schedule.standard_error) == (None, None)
            assert schedule.provenance["cost"] == solution.cost(K)
            assert schedules.provenance["costs"][schedules.budgets.index(K)] == solution.cost(K)


def test_bits_per_dim_of_a_mixed_path_are_those_of_the_elbo_alone(objectives: dict[str, StepCosts]) -> None:
    elbo, distance, mixed = (objectives[name] for name in ("elbo", "ddim", "mixed"))
    for K in range(1, T + 1):
        path = solve(mixed).path(K)
        bpd, apart = elbo.path_bpd(path), distance.cost(path)
        assert solve(mixed).bpd(K) == bpd
        # The mixed cost is in nats, so that in bits/dim it is the sum that was to be minimised.
        total = (mixed.cost(path) + elbo.prior_nats) / (DIMS * LN2)
        assert total == pytest.approx(bpd + WEIGHT * apart, rel=1e-12)
        assert mixed.standard_errors([path]) == elbo.standard_errors([path])
        assert solve(mixed).schedule(K).provenance["trajectory_cost"] == apart


def test_a_table_of_the_grid_itself_is_that_of_its_statistics(objectives: dict[str, StepCosts]) -> None:
    below = np.tri(T + 1, k=-1, dtype=bool)
    assert objectives["continuous"].L[below] == pytest.approx(objectives["elbo"].L[below], rel=1e-9)


def test_lines_give_what_their_table_gives(objectives: dict[str, StepCosts]) -> None:
    lines, elbo = objectives["lines"], objectives["elbo"]
    below = np.tri(T + 1, k=-1, dtype=bool)
    assert lines.L[below] == pytest.approx(elbo.L[below], rel=1e-10)
    for K in range(1, T + 1):
        assert solve(lines).path(K) == solve(elbo).path(K)
        assert solve(lines).bpd(K) == pytest.approx(solve(elbo).bpd(K), rel=1e-12)


def test_fine_grids_take_lines_where_costs_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ForwardProcess.vp_linear(60)
    statistics = ideal_statistics(process, np.array([0.4, -0.8]), np.array([0.25, 1.0]))
    tables = {
        options: elbo_costs(statistics, *options) for options in itertools.product(VARIANCES, ("upper", "respaced"))
    }
    monkeypatch.setattr(engine, "FINE", 59)
    for options, table in tables.items():
        costs = elbo_costs(statistics, *options)
        assert (costs.lines is not None) == (options == ("posterior", "upper"))
        below = np.tri(61, k=-1, dtype=bool)
        assert costs.L[below] == pytest.approx(table.L[below], rel=1e-9)
        lines, plain = best_schedules(costs), best_schedules(table)
        assert lines.budgets == plain.budgets
        assert [lines[K].bpd for K in lines.budgets] == pytest.approx([plain[K].bpd for K in lines.budgets], rel=1e-12)
        assert costs.path_bpd(lines[9].steps) == pytest.approx(table.path_bpd(lines[9].steps), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_costs_in_their_unit(objectives: dict[str, StepCosts], name: str) -> None:
    solution = solve(objectives[name])
    scored = name in SCORED
    value: Callable[[int], float] = solution.bpd if scored else solution.cost
    unit = "bits/dim" if scored else "mean square distance per dimension from the teacher"
    markup = solution._repr_html_()
    assert f">{unit}<" in markup
    cells = [float(cell) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", markup)]
    budgets = [K for K in (1, 2, 4, 8, solution.T) if first_budget(name) <= K]
    assert cells == pytest.approx([value(K) for K in budgets], rel=1e-3, abs=1e-3)
    left, right = solution.plot().axes
    assert left.get_ylabel() == unit
    drawn: Any = left.lines[0]
    assert list(drawn.get_ydata()) == pytest.approx([value(int(K)) for K in drawn.get_xdata()])
    assert [list(line.get_xdata()) for line in right.lines] == [solution.path(K) for K in (2, 4, 8)]


def test_sets_of_every_objective_are_saved_and_read(objectives: dict[str, StepCosts], tmp_path: Any) -> None:
    for name in NAMES:
        schedules = best_schedules(objectives[name])
        schedules.save(tmp_path / "schedules.json")
        again = ScheduleSet.load(tmp_path / "schedules.json")
        assert again.entries == schedules.entries
        assert again.provenance == schedules.provenance


def test_costs_word_their_own_errors(objectives: dict[str, StepCosts]) -> None:
    with pytest.raises(ValueError, match=r"bits/dim need the costs of the ELBO, .* \(mean square distance per dim"):
        solve(objectives["ddim"]).bpd(3)
    for name in ("respaced", "mixed respaced"):
        with pytest.raises(
            ValueError, match=r"Budget 1 is undefined\. The respaced decoder takes its variance from a se"
        ):
            solve(objectives[name]).bpd(1)
        with pytest.raises(ValueError, match="a path needs two steps"):
            objectives[name].step_costs((T, 0))
    with pytest.raises(ValueError, match="a table or lines: give one of the two"):
        StepCosts(process=objectives["ddim"].process, dims=1)


def test_steps_with_memory_cost_what_their_triples_say(objectives: dict[str, StepCosts]) -> None:
    costs = objectives["dpmpp_2m"]
    assert costs.triples is not None
    path = (9, 7, 4, 3, 1, 0)
    inner = [costs.triples[r, t, s] for r, t, s in zip(path, path[1:-1], path[2:-1], strict=False)]
    assert list(costs.step_costs(path)) == [costs.L[9, 7], *inner, costs.L[1, 0]]
    assert list(costs.step_costs((9, 4, 0))) == [costs.L[t, s] for t, s in itertools.pairwise((9, 4, 0))]
