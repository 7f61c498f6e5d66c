"""The adaptive mode, against populations known in closed form: what it spends, what it believes, and when it stops."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from dpstride import (
    AdaptiveReport,
    Denoiser,
    ForwardProcess,
    ScheduleSet,
    Statistics,
    elbo_costs,
    estimate_adaptively,
    optimise,
    schedules_from,
    solve,
)
from dpstride.adaptive.candidates import candidate_grid
from dpstride.adaptive.loop import Goal, _verdict, check_budgets, first_steps, next_steps, refine
from dpstride.adaptive.regret import Belief
from dpstride.adaptive.report import Regret, samples_for
from dpstride.statistics.coordinate import noise_coordinate
from dpstride.statistics.probes import PASSES
from gaussian import LN2, Array, gaussian_denoiser
from spectrum import BUDGETS, DIMS, POPULATION, POSTERIOR, PROCESS, SPECTRUM, T, drawn_statistics, gaussian_images


@pytest.fixture(autouse=True)
def fewer_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a 95% quantile of what is tested here."""
    monkeypatch.setattr("dpstride.adaptive.regret.REPLICATES", 60)


def denoiser_of_images() -> Any:
    return gaussian_denoiser(PROCESS, np.zeros(DIMS), SPECTRUM)


def true_regret(statistics: Statistics, budgets: Sequence[int] = BUDGETS) -> list[float]:
    """Of the paths that the statistics choose, where the population is known."""
    truth, chosen = elbo_costs(POPULATION), schedules_from(statistics, max_budget=max(budgets))
    best = solve(truth, max(budgets))
    return [(truth.step_nats(chosen[K].steps).sum() - best.cost_nats(K)) / (DIMS * LN2) for K in budgets]


class Counted:
    """A network that counts the samples it is given, and can be interrupted."""

    samples: ClassVar[list[int]] = []
    interrupted_at: ClassVar[int] = 0

    def __init__(self, inner: Any, interrupted_at: int = 0) -> None:
        self.inner = inner
        self.samples.clear()
        type(self).interrupted_at = interrupted_at

    def __repr__(self) -> str:
        return "Counted"

    def __call__(self, x: Any, time: Any) -> Any:
        self.samples.append(len(x))
        if len(self.samples) == self.interrupted_at:
            raise KeyboardInterrupt
        return self.inner(x, time)


class Watching:
    """A network that notes, whenever it runs, whether a file is there."""

    path: ClassVar[Path]
    written: ClassVar[list[bool]] = []

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, x: Any, time: Any) -> Any:
        self.written.append(self.path.exists())
        return self.inner(x, time)


def ideal_network(process: ForwardProcess, spectrum: Array) -> Any:
    """E[x_0 given x_t] of Gaussian data, as a function without a state."""
    f, g, v = torch.tensor(process.f), torch.tensor(process.g), torch.tensor(spectrum)

    def ideal(x: Any, time: Any) -> Any:
        f_t, g_t = f[time + 1][:, None], g[time + 1][:, None]
        return v * f_t * x / (v * f_t**2 + g_t**2)

    return ideal


# --- end to end -------------------------------------------------------------------------------------------------------


def test_few_evaluations_find_paths_within_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpstride.statistics.probes.LARGE", 2)
    monkeypatch.setattr("dpstride.statistics.spots.SPOTS", 2)
    network = Counted(ideal_network(PROCESS, SPECTRUM))
    denoiser = Denoiser(network, PROCESS, predicts="x0", clip=None, shape=(DIMS,))
    statistics, report = estimate_adaptively(
        denoiser, gaussian_images(128, 1), data_range="continuous", budgets=BUDGETS, tolerance=0.02
    )
    assert report.stopped == "reached"
    assert report.evaluations <= T * 128 / 7
    assert report.evaluations + report.evaluations_saved == T * 128
    assert statistics.evaluated.sum() == len(report.steps)
    assert {1, T} <= set(report.steps)
    for regret, K in zip(true_regret(statistics), BUDGETS, strict=True):
        assert 0.0 <= regret <= report.regret[K].high <= report.tolerance
    # probes and spot checks are passed alone and, here, in twos
    assert sum(count for count in network.samples if count > 2) == report.evaluations, "nothing is evaluated twice"


def test_believed_regret_covers_the_truth() -> None:
    """Budgets of one draw miss together: of 16 draws 0.8 are expected to miss, and 4 or more do with probability 0.007."""
    missed = 0
    for seed in range(16):
        full = drawn_statistics(64, seed)
        filled, report = refine(
            PROCESS, lambda steps, full=full: full, Goal(POSTERIOR, BUDGETS, 0.05), float(SPECTRUM.sum())
        )
        truth = true_regret(filled)
        missed += any(regret > report.regret[K].high for regret, K in zip(truth, BUDGETS, strict=True))
    assert missed <= 3


def test_rows_that_were_not_asked_for_are_not_looked_at() -> None:
    full = drawn_statistics(32, 3)
    asked: list[list[int]] = []

    def evaluate(steps: Sequence[int]) -> Statistics:
        asked.append(list(steps))
        mask = np.isin(np.arange(T + 1), steps)
        return replace(
            full, squared_error=np.where(mask[:, None] | (np.arange(T + 1) == 0)[:, None], full.squared_error, 1e9)
        )

    filled, report = refine(PROCESS, evaluate, Goal(POSTERIOR, BUDGETS, 0.05), float(SPECTRUM.sum()))
    again, same = refine(PROCESS, lambda steps: full, Goal(POSTERIOR, BUDGETS, 0.05), float(SPECTRUM.sum()))
    assert report == same
    np.testing.assert_array_equal(filled.squared_error, again.squared_error)
    assert all(set(one) < set(other) for one, other in itertools.pairwise(asked)), "every round adds times"
    assert tuple(asked[-1]) == report.steps


def test_an_interrupted_estimate_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    process = ForwardProcess.linear(50)
    images = gaussian_images(32, 2)[:, :16]

    def run(checkpoint: Path | None, interrupted_at: int = 0) -> tuple[Statistics, AdaptiveReport]:
        network = Counted(ideal_network(process, SPECTRUM[:16]), interrupted_at)
        denoiser = Denoiser(network, process, predicts="x0", clip=None, shape=(16,))
        return estimate_adaptively(
            denoiser, images, data_range="continuous", budgets=(4, 8), tolerance=0.2, batch_size=32, checkpoint=checkpoint
        )  # fmt: skip

    path = tmp_path / "rows.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(path, interrupted_at=14)
    resumed, report = run(path)
    uninterrupted, same = run(None)
    assert same == report
    np.testing.assert_allclose(resumed.squared_error, uninterrupted.squared_error, rtol=1e-12)


def test_the_whole_table_is_filled_and_written_once_at_the_end(tmp_path: Path) -> None:
    """A table of thousands of steps takes longer to fill and to write than a round takes to run the network."""
    path, seen = tmp_path / "rows.safetensors", Watching.written
    Watching.path = path
    seen.clear()
    denoiser = Denoiser(Watching(ideal_network(PROCESS, SPECTRUM)), PROCESS, predicts="x0", clip=None, shape=(DIMS,))
    arguments: dict[str, Any] = {"data_range": "continuous", "budgets": BUDGETS, "tolerance": 0.05}
    statistics, report = estimate_adaptively(denoiser, gaussian_images(32, 1), checkpoint=path, **arguments)
    assert report.rounds > 1
    assert seen
    assert not any(seen)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name], "what was kept meanwhile is gone"
    saved = Statistics.load(path)
    np.testing.assert_array_equal(saved.squared_error, statistics.squared_error)
    assert (saved.squared_error[1:] > 0.0).all()
    seen.clear()
    again, same = estimate_adaptively(denoiser, gaussian_images(32, 1), checkpoint=path, **arguments)
    assert same == report
    # Nothing but the probes of each round, and a batch of spot checks for the file, at the end for what the rounds found too.
    assert len(seen) == report.rounds * (PASSES + 1) + PASSES + 2
    np.testing.assert_array_equal(again.squared_error, statistics.squared_error)


def test_optimise_with_a_tolerance_records_what_it_believes(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"data_range": "continuous", "max_budget": 16}
    data = gaussian_images(64, 4)
    schedules = optimise(denoiser_of_images(), data, tolerance=0.05, budgets=BUDGETS, **arguments)
    schedules.save(tmp_path / "schedules.json")
    report = AdaptiveReport.from_dict(ScheduleSet.load(tmp_path / "schedules.json").provenance["adaptive"])
    assert tuple(report.regret) == BUDGETS
    every = optimise(denoiser_of_images(), data, **arguments)
    truth = elbo_costs(POPULATION)
    for K in BUDGETS:
        sparse, full = (truth.step_nats(found[K].steps).sum() / (DIMS * LN2) for found in (schedules, every))
        assert sparse < full + report.regret[K].high
    with pytest.raises(ValueError, match="budgets are those that a tolerance is for"):
        optimise(denoiser_of_images(), data, budgets=BUDGETS, **arguments)


# --- when it stops ----------------------------------------------------------------------------------------------------


def test_noise_stops_it_and_a_few_times_the_samples_it_guesses_are_enough() -> None:
    few = drawn_statistics(24, 5)
    _, report = refine(PROCESS, lambda steps: few, Goal(POSTERIOR, BUDGETS, 0.01), float(SPECTRUM.sum()))
    assert report.stopped == "noise"
    assert not report.reached
    assert len(report.steps) < T / 2, "it saw that more times do not help"
    assert report.samples_needed is not None
    assert report.samples_needed > 24
    more = drawn_statistics(4 * report.samples_needed, 6)
    _, enough = refine(PROCESS, lambda steps: more, Goal(POSTERIOR, BUDGETS, 0.01), float(SPECTRUM.sum()))
    assert enough.stopped == "reached"


def test_it_never_evaluates_more_times_than_allowed() -> None:
    full = drawn_statistics(8, 7)
    _, report = refine(PROCESS, lambda steps: full, Goal(POSTERIOR, BUDGETS, 1e-4, max_steps=7), float(SPECTRUM.sum()))
    assert len(report.steps) <= 7
    assert not report.reached
    _, report = refine(PROCESS, lambda steps: full, Goal(POSTERIOR, BUDGETS, 10.0, max_steps=7), float(SPECTRUM.sum()))
    assert (report.stopped, report.reached) == ("reached", True)


@pytest.mark.parametrize("T", [1, 2, 3, 5, 12])
def test_short_grids_are_evaluated_whole(T: int) -> None:
    process = ForwardProcess.linear(T)
    full = drawn_statistics(8, 8, process)
    goal = Goal(POSTERIOR, check_budgets(None, T, "upper"))
    filled, report = refine(process, lambda steps: full, goal, float(SPECTRUM.sum()))
    assert len(report.steps) == T
    assert filled is full
    assert report.stopped in ("reached", "noise")


# --- where it looks next ----------------------------------------------------------------------------------------------


def test_the_next_times_are_the_middles_of_the_gaps_that_matter() -> None:
    u = np.concatenate([[-np.inf], np.arange(1.0, 101.0)])
    gaps = np.array([[1, 21], [21, 41], [41, 43], [43, 100]])
    worth = np.array([True, True, True, False])
    found = next_steps(Belief((8,), np.zeros((1, 1)), gaps, np.array([0.1, 0.0, 0.5, 0.7]), worth), u, u, 3)
    assert found.tolist()[:2] == [42, 11]
    assert found[2] in (71, 72), "then the widest"


def test_first_times_are_even_in_the_noise_coordinate() -> None:
    u = noise_coordinate(PROCESS, float(SPECTRUM.sum()))
    steps = first_steps(u, 12)
    assert steps[0] == 1
    assert steps[-1] == T
    assert np.diff(u[steps]).max() < 2.0 * (u[T] - u[1]) / 11
    grid = candidate_grid(u, np.array([1, 77, T]), 40)
    assert {1, 77, T} <= set(grid.tolist())
    assert 30 <= grid.size <= 42


# --- the report -------------------------------------------------------------------------------------------------------

REPORT = AdaptiveReport(
    T=1000, samples=128, steps=(1, 5, 1000), rounds=2, tolerance=0.01,
    regret={8: Regret(0.002, 0.0, 0.004), 64: Regret(0.004, 0.0, 0.02)}, stopped="noise", samples_needed=260,
)  # fmt: skip


def test_a_report_is_saved_and_loaded(tmp_path: Path) -> None:
    REPORT.save(tmp_path / "adaptive.json")
    assert AdaptiveReport.load(tmp_path / "adaptive.json") == REPORT
    document = json.loads((tmp_path / "adaptive.json").read_text(encoding="utf-8"))
    assert (document["evaluations"], document["evaluations_saved"], document["reached"]) == (384, 127616, False)
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="not a report that an adaptive estimate wrote"):
        AdaptiveReport.load(tmp_path / "other.json")


def test_a_report_says_what_was_spent_and_what_to_do() -> None:
    text = REPORT.sentence()
    assert "384 network evaluations (3 of 1,000 times, 128 samples) instead of 128,000" in text
    assert "at most 0.0200 with 95% confidence (tolerance 0.01)" in text
    assert "about 260 samples would" in text


@pytest.mark.parametrize(
    "samples, regret, tolerance, needed", [(100, 0.02, 0.01, 200), (64, 0.0211, 0.01, 140), (3, 0.01, 0.01, 3)]
)
def test_samples_needed_grow_with_the_regret(samples: int, regret: float, tolerance: float, needed: int) -> None:
    assert samples_for(samples, regret, tolerance) == needed


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"budgets": (0, 8)}, "budgets must be a list of whole numbers of steps between 1 and T = 120"),
        ({"budgets": ()}, "at least one, not"),
        ({"budgets": (8, 300)}, "between 1 and T = 120"),
        ({"budgets": (1, 8), "decoder": "respaced"}, "between 2 and T = 120"),
        ({"tolerance": 0.0}, "tolerance must be a positive number of bits/dim, not 0.0"),
        ({"max_steps": 2}, "max_steps must be a whole number of at least 4"),
        ({"samples": 1}, "needs at least 2, but the data has 1"),
        ({"variance": "learned_range"}, "needs a model with a learned variance"),
    ],
)
def test_wrong_requests_are_refused_before_the_network_runs(arguments: dict[str, Any], message: str) -> None:
    denoiser = denoiser_of_images()
    with pytest.raises(ValueError, match=message):
        estimate_adaptively(denoiser, gaussian_images(4, 0), data_range="continuous", **arguments)
    assert denoiser.network.calls == 0


@pytest.mark.parametrize(
    ("upper", "weights", "verdict"),
    [
        (0.009, [0.5, 0.5], "reached"),  # nothing more is asked
        (
            0.011,
            [0.002, 0.5],
            "noise",
        ),  # 0.002 of cost hangs on the gap that is worth it: regret moves by 0.004 at most
        (0.011, [0.0051, 0.0], None),
    ],
)
def test_steps_that_could_not_lower_regret_to_the_tolerance_are_not_evaluated(
    upper: float, weights: list[float], verdict: str | None
) -> None:
    gaps = np.array([[1, 5], [5, 9]])
    belief = Belief((8,), np.full((200, 1), upper), gaps, np.array(weights), np.array([True, False]))
    assert _verdict(belief, 0.01, 10, 1000) == verdict
    assert _verdict(belief, 0.01, 1000, 1000) == (verdict or "limit")
