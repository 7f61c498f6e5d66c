"""Paths chosen from smoothed statistics, against laws whose errors are known exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstride import ForwardProcess, Statistics, elbo_costs, even_stride, quadratic_stride, schedules_from, solve
from dpstride.statistics.artefact import DataRange
from dpstride.statistics.coordinate import breaks
from dpstride.statistics.interpolate import fill, smoothed
from dpstride.statistics.smooth import own_noise, smooth_values
from dpstride.study.plan import choosing_steps
from flawed import LAWS, Flawed
from gaussian import LN2, Array, ideal_statistics
from spectrum import DIMS, SPECTRUM, drawn_statistics
from test_interpolate import learned_statistics

LONG = 400
BUDGETS = (8, 16, 32, 64, 128, 256)


def smooth(statistics: Statistics) -> Statistics:
    """``statistics`` smoothed, even where every row is evaluated, which is left as it is for choosing."""
    return fill(statistics, statistics.evaluated, smooth=True)


def regrets(process: ForwardProcess, statistics: Statistics) -> tuple[Array, Array]:
    """What paths cost above the best ones in truth, [budgets] in bits/dim: chosen as they are, and from the table as it is."""
    truth = elbo_costs(ideal_statistics(process, 0.0, SPECTRUM))
    best, noisy = (solve(costs, max(BUDGETS)) for costs in (truth, elbo_costs(statistics)))
    chosen = schedules_from(statistics, max_budget=max(BUDGETS))
    costs = [
        [truth.step_nats(path).sum() - best.cost_nats(K) for path in (chosen[K].steps, noisy.path(K))] for K in BUDGETS
    ]
    return tuple(np.array(costs).T / (DIMS * LN2))  # type: ignore[return-value]


@pytest.mark.parametrize("times", [60, LONG // 2], ids=["few times", "every other time"])
@pytest.mark.parametrize("law", [ForwardProcess.linear, ForwardProcess.cosine], ids=["linear", "cosine"])
def test_paths_do_not_follow_the_noise_of_their_table(law: Any, times: int) -> None:
    """Every row has noise of its own; from the table as it is, paths of 64 steps lose at least three times as much."""
    process = law(LONG)
    mask = np.isin(np.arange(LONG + 1), choosing_steps(process, times))
    found = [regrets(process, fill(drawn_statistics(32, seed, process), mask)) for seed in range(4)]
    ours, noisy = np.mean(found, axis=0)
    long_ = np.array(BUDGETS) >= 64
    assert (ours <= noisy + 1e-4).all(), (ours, noisy)
    assert (ours[long_] <= noisy[long_] / 3.0).all(), (ours, noisy)
    truth = elbo_costs(ideal_statistics(process, 0.0, SPECTRUM))
    for K in BUDGETS:
        best = truth.step_nats(solve(truth, K).path(K)).sum()
        made = min(truth.step_nats(rule(process, K).steps).sum() for rule in (even_stride, quadratic_stride))
        assert (best / (DIMS * LN2)) + ours[BUDGETS.index(K)] <= made / (DIMS * LN2), K


def test_means_are_told_better_by_the_curve_than_by_their_rows() -> None:
    process = ForwardProcess.linear(LONG)
    truth = ideal_statistics(process, 0.0, SPECTRUM).squared_error[1:, 0]
    every = drawn_statistics(32, 0, process)
    # What samples have in common at all rows is left; it does not lead a path astray.
    before, after = (
        np.diff(np.log(each.squared_error[1:].mean(axis=1) / truth), 2).std() for each in (every, smooth(every))
    )
    assert after < before / 10.0


def test_own_noise_is_the_noise_that_was_drawn() -> None:
    """Rows whose samples share a level and a slope, and have noise of their own that grows along them."""
    rng = np.random.default_rng(0)
    u, deviation = np.linspace(0.0, 3.0, 200), np.linspace(0.1, 1.0, 200)
    shared = rng.standard_normal(400) + u[:, None] * rng.standard_normal(400)
    units = shared + deviation[:, None] * rng.standard_normal((200, 400))
    assert own_noise(u, units) == pytest.approx(deviation**2 / 400.0, rel=0.35)


def test_a_line_through_noise_is_a_line_and_a_wave_stays_a_wave() -> None:
    rng = np.random.default_rng(1)
    u = np.sort(rng.uniform(0.0, 6.0, 300))
    noise = rng.standard_normal((300, 100))
    for curve, least in ((2.0 - u, 0.02), (np.sin(2.0 * u), 0.05)):
        units = curve[:, None] + noise
        found = smooth_values(u, units.mean(axis=1), units)
        assert np.abs(found - curve).max() < 4.0 * least
        assert np.sqrt(np.square(found - curve).mean()) < least  # a row's own noise is 0.1


def test_rows_that_all_but_coincide_are_smoothed_like_one() -> None:
    rng = np.random.default_rng(2)
    even = np.linspace(0.0, 6.0, 121)
    for u in (np.sort(np.append(even, even[3:-3] + 1e-9)), np.append(even, 6.0 + 1e-9 * np.arange(1, 40))):
        units = (2.0 - u)[:, None] + rng.standard_normal((u.size, 100))
        assert np.abs(smooth_values(u, units.mean(axis=1), units) - (2.0 - u)).max() < 0.08
    clumps = np.append(1e-9 * np.arange(6), 6.0 + 1e-9 * np.arange(6))
    units = rng.standard_normal((12, 100))
    np.testing.assert_array_equal(smooth_values(clumps, units[:, 0], units), units[:, 0])


@pytest.mark.parametrize("law", ["kinked", "jumping", "thinned", "cosine"])
def test_nothing_is_smoothed_across_a_break_of_the_noise_law(law: str) -> None:
    """Rows beside a jump are told by their own side: their errors do not depend on what lies beyond it."""
    model = Flawed(LAWS[law](200), "x0", None, DataRange.parse("continuous"), np.array([1.0] * 8 + [0.01] * 24))
    every = model.drawn(64, seed=3)
    at = [t for t in breaks(model.process) if t + 1 in breaks(model.process) and t < 180]
    low = int(at[0]) if at else int(breaks(model.process)[0])
    beyond = np.arange(201) > low
    other = replace(every, squared_error=np.where(beyond[:, None], 7.0 * every.squared_error, every.squared_error))
    one, two = (smooth(each).squared_error for each in (every, other))
    np.testing.assert_array_equal(one[: low + 1], two[: low + 1])
    assert not np.array_equal(one[: low + 1], every.squared_error[: low + 1])


def test_what_has_no_noise_is_left_as_it_is() -> None:
    exact = ideal_statistics(ForwardProcess.linear(60), 0.0, SPECTRUM)
    assert smoothed(exact) is exact  # a single sample does not tell
    measured = drawn_statistics(32, 0, ForwardProcess.linear(60))
    assert smoothed(measured) is measured  # a table of every step is the paper's, whose best path is the best of it
    alike = replace(exact, squared_error=exact.squared_error.repeat(3, axis=1), data_square=exact.data_square.repeat(3))
    np.testing.assert_allclose(smooth(alike).squared_error, alike.squared_error, rtol=1e-12)


def test_learned_and_discretised_statistics_stay_in_line_with_their_means() -> None:
    """Distributions of φ and residuals have the smoothed means, so every variance and decoder has costs from one curve."""
    measured = learned_statistics(ForwardProcess.linear(40))
    found = smooth(measured)
    assert (found.evaluated == measured.evaluated).all()
    assert not np.allclose(found.squared_error, measured.squared_error, rtol=1e-6)
    assert found.fraction_bins is not None
    assert found.fraction_sum is not None
    for t in range(1, 41):
        bins, weights = found.fraction_bins.row(t)
        phi = found.fraction_mesh(t).points(bins)
        of_one, of_error = weights.swapaxes(0, 1).reshape(2, -1) / found.samples
        assert of_one.sum() == pytest.approx(16.0)
        assert of_one @ phi.ravel() == pytest.approx(found.fraction_sum[t].mean(), abs=1e-9)
        assert of_error.sum() == pytest.approx(found.squared_error[t].mean(), rel=1e-9)
    for variance, decoder in (("learned_range", "respaced"), ("posterior", "respaced"), ("learned_optimal", "optimal")):
        ours, raw = (elbo_costs(each, variance, decoder) for each in (found, measured))  # type: ignore[arg-type]
        path = [40, 30, 20, 10, 4, 1, 0]
        assert ours.path_bpd(path) == pytest.approx(raw.path_bpd(path), rel=0.1)
        assert ours.path_bpd(path) != raw.path_bpd(path)


def errors_of(kind: str, u: Array, rng: np.random.Generator) -> Array:
    """Squared errors [rows, samples] that rise with u and have noise of their own, of a network that is not smooth in t."""
    units = np.exp(3.0 * u)[:, None] * rng.gamma(5.0, 0.2, 64) * rng.gamma(50.0, 0.02, (u.size, 64))
    match kind:
        case "another network from some t on":
            units[: u.size // 4] *= 1e-6
        case "errors that end in zero":
            units[: u.size // 4] = 0.0
        case "samples whose errors end in zero":
            units *= u[:, None] > rng.uniform(0.2, 0.35, 64)
        case "one wrong t":
            units[u.size // 2] *= 1e3
        case "some outliers":
            units[rng.random(units.shape) < 0.01] *= 1e4
    return units


@pytest.mark.attack("noise laws with jumps and kinks")
@pytest.mark.parametrize("rows", [60, 200, 1000])
@pytest.mark.parametrize(
    "kind",
    [
        "another network from some t on",
        "errors that end in zero",
        "samples whose errors end in zero",
        "one wrong t",
        "some outliers",
    ],
)
def test_no_row_is_moved_by_more_than_its_own_noise_may_be(kind: str, rows: int) -> None:
    u = np.linspace(0.0, 1.0, rows)
    units = errors_of(kind, u, np.random.default_rng(rows))
    mean = np.maximum(units.mean(axis=1), 1e-300)
    shares = np.where(mean[:, None] > 1e-300, units / mean[:, None], 1.0)
    moved = np.abs(smooth_values(u, np.log(mean), shares) - np.log(mean))
    assert (moved <= 5.0 * np.sqrt(own_noise(u, shares)) + 1e-12).all()
    if kind != "some outliers":
        assert moved[rows // 2] < 0.2  # where one t is wrong, and elsewhere as well
