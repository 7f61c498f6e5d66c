"""The whole method, from a denoiser to the best schedule of every budget, against every path there is."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpstride import (
    Denoiser,
    ForwardProcess,
    ScheduleSet,
    Statistics,
    __version__,
    bits_per_dim,
    elbo_costs,
    estimate,
    even_stride,
    optimise,
    quadratic_stride,
    sample,
    schedules_from,
    score,
    solve,
)
from dpstride.evaluate.comparison import compare
from dpstride.statistics.probes import AFTER, PASSES
from dpstride.statistics.spots import OF_UNIT
from gaussian import LN2, DirectChain, GaussianNetwork, MixtureNetwork, gaussian_denoiser, mixture_data, paths_of

VARIANCES = ("posterior", "upper", "optimal")
MEANS = np.array([[0.8, 0.8], [-0.8, 0.2], [0.3, -0.9]])


def mixture_denoiser(T: int) -> Denoiser:
    process = ForwardProcess.linear(T)
    return Denoiser(MixtureNetwork(process, MEANS, 0.01), process, predicts="x0", clip=None, shape=(2,), name="mixture")


DATA = mixture_data(MEANS, 0.01, 60, seed=1)
HELDOUT = mixture_data(MEANS, 0.01, 80, seed=2)


@pytest.fixture(scope="module")
def statistics() -> Statistics:
    return estimate(mixture_denoiser(30), DATA, data_range="continuous", progress=False)


# --- the best schedules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("decoder", ["upper", "first_pair", "optimal", "respaced"])
def test_optimise_finds_the_best_of_all_paths(variance: Any, decoder: Any) -> None:
    # End to end against nothing but definitions: the ELBO of every path of a grid of 6, from the same noise.
    denoiser = mixture_denoiser(6)
    schedules = optimise(
        denoiser, DATA[:9], seed=4, data_range="continuous", variance=variance, decoder=decoder, progress=False
    )
    chain = DirectChain(denoiser, DATA[:9], "continuous", seed=4)
    first = 2 if decoder == "respaced" else 1
    assert schedules.budgets == list(range(first, 7))
    for schedule in schedules:
        costs = {path: chain.bpd(path, variance, decoder, schedules.fitted) for path in paths_of(6, schedule.budget)}
        assert schedule.bpd == pytest.approx(min(costs.values()), abs=1e-9)
        assert costs[schedule.steps] == pytest.approx(min(costs.values()), abs=1e-9)


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("decoder", ["upper", "optimal", "respaced"])
def test_no_stride_made_by_hand_is_better_on_the_choosing_data(
    statistics: Statistics, variance: Any, decoder: Any
) -> None:
    schedules = schedules_from(statistics, variance, decoder)
    costs = elbo_costs(statistics, variance, decoder)
    for schedule in schedules:
        assert schedule.bpd is not None
        for stride in (even_stride, quadratic_stride):
            other = costs.schedule(stride(schedules.process, schedule.budget).steps).bpd
            assert other is not None
            # Both are sums of at most 31 numbers, in another order.
            assert schedule.bpd <= other + 1e-13 * abs(other)


def test_the_set_is_the_solution(statistics: Statistics) -> None:
    for variance, decoder in itertools.product(VARIANCES, ("upper", "respaced")):
        solution = solve(elbo_costs(statistics, variance, decoder))  # type: ignore[arg-type]
        schedules = schedules_from(statistics, variance, decoder)  # type: ignore[arg-type]
        for schedule in schedules:
            assert schedule.bpd == solution.bpd(schedule.budget)
            assert list(schedule.steps) == solution.path(schedule.budget)
            assert schedule.budget == len(schedule.steps) - 1
        assert schedules.best_budget == solution.best_budget
        assert schedules[30].steps == tuple(range(30, -1, -1))


def test_optimise_is_its_stages(statistics: Statistics) -> None:
    whole = optimise(
        mixture_denoiser(30),
        DATA,
        data_range="continuous",
        variance="upper",
        max_budget=7,
        batch_size=7,
        progress=False,
    )
    stages = schedules_from(statistics, "upper", max_budget=7)
    assert whole.budgets == stages.budgets == [1, 2, 3, 4, 5, 6, 7]
    for one, other in zip(whole, stages, strict=True):
        assert one.steps == other.steps
        assert one.bpd == pytest.approx(other.bpd, rel=1e-12)  # another batch size: another order of sums at most
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-9)


def test_held_out_scores_of_the_chosen_schedules(statistics: Statistics) -> None:
    schedules = schedules_from(statistics, "optimal", "optimal")
    denoiser = mixture_denoiser(30)
    heldout = estimate(denoiser, HELDOUT, seed=9, data_range="continuous", progress=False)
    for schedule, scored in zip(schedules, score(heldout, schedules), strict=True):
        direct = bits_per_dim(denoiser, HELDOUT, schedule, seed=9, data_range="continuous")
        assert scored.bpd == pytest.approx(direct.bpd, abs=1e-9)
        # The held-out cost estimates the expectation that the choosing data estimated too, more or less flattered.
        assert schedule.bpd is not None
        assert abs(scored.bpd - schedule.bpd) < 5.0 * math.hypot(scored.standard_error, schedule.standard_error or 0.0)
    samples = sample(denoiser, schedules[20], n=200, seed=0)
    nearest = np.linalg.norm(samples.numpy()[:, None] - MEANS[None], axis=2).min(axis=1)
    assert (nearest < 0.6).mean() > 0.95  # components have a spread of 0.1 and lie 1.2 apart


# --- more steps can hurt ---------------------------------------------------------------------------------------------------


class PoorAtLowNoise(GaussianNetwork):
    """Ideal above step 8; below it the estimate of clean data is far off, as of a network never trained there."""

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        ideal = super().__call__(x, time)
        return torch.where((time < 8)[:, None], ideal + 0.5, ideal)


def test_the_best_budget_is_named_when_more_steps_hurt() -> None:
    process = ForwardProcess.linear(20)
    denoiser = Denoiser(PoorAtLowNoise(process, np.zeros(2), np.ones(2)), process, predicts="x0", clip=None, shape=(2,))
    rng = np.random.default_rng(0)
    schedules = optimise(denoiser, rng.standard_normal((50, 2)), data_range="continuous", progress=False)
    bpd = {schedule.budget: schedule.bpd for schedule in schedules}
    assert schedules.best_budget == min(bpd, key=lambda budget: bpd[budget])  # type: ignore[arg-type, return-value]
    assert schedules.best_budget <= 20 - 8
    # It goes nowhere near the steps that hurt.
    assert min(schedules[schedules.best_budget].steps[:-1]) > 8
    assert bpd[20] > bpd[schedules.best_budget] + 1.0  # type: ignore[operator]
    assert schedules.within(0.0) <= schedules.best_budget
    heldout = estimate(denoiser, rng.standard_normal((50, 2)), seed=5, data_range="continuous", progress=False)
    [warning] = [text for text in compare(schedules, heldout).warnings if "More steps hurt" in text]
    found = compare(schedules, heldout)
    assert f"20 steps have {found.curves['dp'][20][0]:.3f} bits/dim, fewer have less" in warning
    assert f"{found.curves['dp'][found.best_budget][0]:.3f} at {found.best_budget}" in warning


def test_a_model_worse_than_none_gets_no_number_of_steps() -> None:
    """Eight bits write a level down as it is; a network that is told wrongly needs more, and no path is close to good."""
    process = ForwardProcess.linear(20)
    rng = np.random.default_rng(0)
    images, others = (rng.integers(0, 256, (30, 2), dtype=np.uint8) for _ in range(2))
    wrong = Denoiser(lambda x, t: torch.full_like(x, 0.9), process, predicts="x0", shape=(2,))
    found = compare(optimise(wrong, images, progress=False), estimate(wrong, others, seed=5, progress=False))
    assert found.raw == 8.0
    assert found.curves["dp"][found.best_budget][0] > 8.0
    assert found.sentence().startswith("This model describes held-out data worse than no model at all")
    assert found.useless
    assert found.warnings[0].startswith("The best budget has")
    assert not any("More steps hurt" in warning for warning in found.warnings)
    assert "within 0.1 bits/dim" in dataclasses.replace(found, raw=1000.0).sentence()
    assert not dataclasses.replace(found, raw=1000.0).useless


# --- what is recorded ------------------------------------------------------------------------------------------------------


def test_options_and_origin_travel_with_the_schedules(tmp_path: Path) -> None:
    process = ForwardProcess.linear(8)
    values = np.random.default_rng(0).integers(0, 4, size=(6, 1, 3)).astype(np.uint8)
    denoiser = Denoiser(lambda x, time: 0.5 * x, process, clip=(0.0, 3.0), variance="upper", name="toy")
    schedules = optimise(
        denoiser, values, samples=5, seed=11, data_range=("levels", 4, 0.0, 3.0), decoder="respaced", progress=False
    )
    schedules.save(tmp_path / "s.json")
    loaded = ScheduleSet.load(tmp_path / "s.json")
    for found in (schedules, loaded):
        assert dict(found.options) == {"variance": "upper", "decoder": "respaced", "cdf": "exact"}
        assert dict(found[3].options) == dict(found.options)
        provenance = found[3].provenance
        assert provenance["seed"] == 11
        assert provenance["data_range"] == ["levels", 4, 0.0, 3.0]
        assert provenance["data"]["samples"] == 5
        assert provenance["data"]["fingerprint"]
        assert provenance["process"] == process.fingerprint
        assert provenance["version"] == __version__
        model = provenance["model"]
        assert (model["name"], model["clip"], model["predicts"]) == ("toy", [0.0, 3.0], "eps")
        assert model["fingerprint"] == denoiser.fingerprint
    assert found.stride == "dp"


def test_a_checkpoint_saves_the_second_run(tmp_path: Path) -> None:
    x_0 = np.random.default_rng(0).standard_normal((20, 2))
    found, passes = [], []
    for variance in ("posterior", "optimal"):  # another option needs no other statistics
        denoiser = gaussian_denoiser(ForwardProcess.linear(8), np.zeros(2), np.ones(2), dtype=torch.float64)
        found.append(
            optimise(
                denoiser,
                x_0,
                data_range="continuous",
                variance=variance,  # type: ignore[arg-type]
                progress=False,
                checkpoint=tmp_path / "work.safetensors",
            )
        )
        passes.append(denoiser.network.calls)  # type: ignore[attr-defined]
    assert passes == [PASSES + OF_UNIT + 3 + AFTER, PASSES + 1]  # spot checks: two alone, a batch of sixteen
    assert [schedules.options["variance"] for schedules in found] == ["posterior", "optimal"]


@pytest.mark.parametrize(("T", "batch_size", "passes"), [(8, 64, 3), (8, 160, 1), (8, 7, 24)])
def test_batches_of_the_network_are_full(T: int, batch_size: int, passes: int) -> None:
    denoiser = gaussian_denoiser(ForwardProcess.linear(T), np.zeros(2), np.ones(2), dtype=torch.float64)
    x_0 = np.random.default_rng(0).standard_normal((20, 2))
    optimise(denoiser, x_0, data_range="continuous", batch_size=batch_size, progress=False)
    assert denoiser.network.calls == PASSES + OF_UNIT + passes + AFTER  # type: ignore[attr-defined]


# --- bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variance": "fixed_small"}, "variance must be one of .*not 'fixed_small'"),
        ({"decoder": "best"}, "decoder must be one of .*not 'best'"),
        ({"variance": "learned_range"}, "needs a model with a learned variance"),
        ({"max_budget": 0}, "max_budget must be a whole number between 1 and T = 6, not 0"),
        ({"max_budget": 7}, "max_budget must be a whole number between 1 and T = 6, not 7"),
        ({"max_budget": 2.5}, r"max_budget must be a whole number between 1 and T = 6, not 2\.5"),
        ({"max_budget": "3"}, "max_budget must be a whole number between 1 and T = 6, not '3'"),
        ({"max_budget": True}, "max_budget must be a whole number between 1 and T = 6, not True"),
        ({"max_budget": 1, "decoder": "respaced"}, "takes its variance from a second step.*at least 2 steps"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"samples": 21}, "samples = 21, but the data has only 20"),
        ({"data_range": "float"}, "data_range must be 'uint8'"),
        ({"data_range": "uint8"}, "off its level"),
        ({"data": np.zeros((0, 2))}, "data is empty"),
        ({"data": np.full((3, 2), np.nan)}, "holds NaN or infinity"),
        ({"data": "photos/"}, "data must be a tensor"),
    ],
)
def test_bad_requests_are_refused_before_the_network_runs(change: dict[str, Any], message: str) -> None:
    denoiser = gaussian_denoiser(ForwardProcess.linear(6), np.zeros(2), np.ones(2))
    data = np.clip(np.random.default_rng(0).standard_normal((20, 2)), -1.0, 1.0)
    arguments = {"data": data, "data_range": "continuous", "progress": False, **change}
    with pytest.raises(ValueError, match=message):
        optimise(denoiser, **arguments)
    assert denoiser.network.calls == 0  # type: ignore[attr-defined]


def test_first_pair_on_a_continuous_process_is_refused_before_the_network_runs() -> None:
    denoiser = gaussian_denoiser(ForwardProcess.rectified_flow(6), np.zeros(2), np.ones(2), time_input="time")
    with pytest.raises(ValueError, match="first_pair' is defined by steps 2 → 1 of a discrete training grid"):
        optimise(denoiser, np.zeros((3, 2)), data_range="continuous", decoder="first_pair", progress=False)
    assert denoiser.network.calls == 0  # type: ignore[attr-defined]


def test_statistics_of_one_process_are_not_used_with_another(statistics: Statistics) -> None:
    schedules = schedules_from(statistics)
    other = estimate(
        gaussian_denoiser(ForwardProcess.cosine(30), np.zeros(2), np.ones(2)),
        DATA[:2],
        data_range="continuous",
        progress=False,
    )
    with pytest.raises(ValueError, match=r"estimated on the process 'cosine'.*not on 'linear'"):
        score(other, schedules)
    with pytest.raises(ValueError, match=r"estimated on the process 'cosine'.*not on 'linear'"):
        compare(schedules, other)


def test_a_table_without_a_finite_path_says_so(statistics: Statistics) -> None:
    costs = elbo_costs(statistics)
    closed = costs.L.copy()
    closed[30] = np.inf
    with pytest.raises(ValueError, match="Every path from T = 30 to 0 with at most 30 steps has infinite cost"):
        solve(dataclasses.replace(costs, table=closed))


def test_bits_per_dim_are_nats_over_dims_and_ln_2(statistics: Statistics) -> None:
    costs = elbo_costs(statistics)
    nats = solve(costs).cost_nats(5) + costs.prior_nats
    assert schedules_from(statistics)[5].bpd == pytest.approx(nats / (2 * LN2), rel=1e-14)
