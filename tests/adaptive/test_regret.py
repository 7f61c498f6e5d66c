"""What is believed of the paths chosen from a few evaluated times, against tables of every time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstride import ForwardProcess, Statistics, elbo_costs, estimate, solve
from dpstride.adaptive.gaps import around
from dpstride.adaptive.loop import first_steps
from dpstride.adaptive.regret import Judge
from dpstride.objectives.elbo import check_options
from dpstride.statistics.coordinate import noise_coordinate
from dpstride.statistics.interpolate import fill
from dpstride.statistics.place import coordinate_of
from gaussian import Array
from spectrum import BUDGETS, POSTERIOR, PROCESS, SPECTRUM, T, drawn_statistics, without_noise


@pytest.fixture(autouse=True)
def fewer_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a 95% quantile of what is tested here."""
    monkeypatch.setattr("dpstride.adaptive.regret.REPLICATES", 60)


def test_noise_alone_is_never_worth_another_time() -> None:
    """Forty times of a smooth curve: what leaving one out misses is noise, and it is seen to be."""
    u = noise_coordinate(PROCESS, float(SPECTRUM.sum()))
    for seed in range(5):
        candidates = Judge(drawn_statistics(32, seed), np.isin(np.arange(T + 1), first_steps(u, 40)), POSTERIOR)
        where = np.searchsorted(candidates.grid, candidates.known)
        weights = np.random.default_rng(seed).dirichlet(np.ones(32), 50).T
        weights = np.concatenate([np.full((32, 1), 1.0 / 32.0), weights], axis=1)
        _, worth = candidates.unknown(np.log(candidates.squared_error[where] @ weights))
        assert worth.mean() < 0.1


def test_a_replicate_is_the_table_of_resampled_data() -> None:
    """The oracle draws the samples again, builds the whole table and solves it."""
    process = ForwardProcess.linear(30)
    for options in ({"variance": "posterior"}, {"variance": "upper"}, {"variance": "optimal"}):
        full = drawn_statistics(12, 9, process)
        chosen_options = check_options(process, "posterior", **options)  # type: ignore[arg-type]
        mask = np.ones(31, dtype=bool)
        candidates = Judge(full, mask, chosen_options)
        drawn = np.random.default_rng(0).integers(12, size=12)
        weights = np.bincount(drawn, minlength=12) / 12.0
        table = elbo_costs(full, **options)  # type: ignore[arg-type]
        again = elbo_costs(replace(full, squared_error=full.squared_error[:, drawn]), **options)  # type: ignore[arg-type]
        chosen = [np.array(solve(table).path(K)) for K in (3, 7)]
        found, _ = candidates._regret(chosen, (3, 7), weights, np.ones((3, 30)), candidates.decoder @ weights)
        best = solve(again)
        with_fit = elbo_costs(replace(full, squared_error=full.squared_error[:, drawn]), fitted=table.fitted, **options)
        expected = [with_fit.step_nats(path).sum() - best.cost_nats(len(path) - 1) for path in chosen]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_learned_variance_and_every_decoder_have_beliefs_too() -> None:
    from test_interpolate import OPTIONS, learned_statistics, spread

    process = ForwardProcess.linear(24)
    full = learned_statistics(process)
    mask = spread(full, 9)
    for variance, decoder in OPTIONS:
        options = check_options(process, "learned_range", variance, decoder)
        belief = Judge(full, mask, options).belief((3, 6))
        assert (belief.regret > -1e-9).all(), (variance, decoder)
        assert (belief.upper > 0.0).all(), (variance, decoder)
        assert (belief.mean < 0.3).all(), (variance, decoder)
        whole = Judge(full, np.ones(25, dtype=bool), options)
        table = elbo_costs(full, variance, decoder)
        # With every step evaluated the candidates' own table is the whole table, and chooses the same paths.
        ones = np.ones((3, 24))
        found = whole.table(whole.steps(whole.sizes, ones), whole.decoder @ whole.sizes, 6)
        expected = solve(table, 6)
        rtol = 1e-3 if decoder == "optimal" else 1e-9  # its variance is found to a few percent, where the cost is flat
        np.testing.assert_allclose(found.least[3:], expected.costs[3:], rtol=rtol)
        if decoder != "optimal":
            assert found.best(6).tolist() == expected.path(6)


def test_the_respaced_decoder_of_the_last_time_is_looked_at_where_it_is_filled_in() -> None:
    """On a grid with more times than candidates, T − 1 is none of them."""
    from test_interpolate import learned_statistics, spread, without

    process = ForwardProcess.linear(700)
    full = learned_statistics(process)
    mask = spread(full, 14)
    for variance in ("learned_range", "posterior"):
        judge = Judge(without(full, mask), mask, check_options(process, "learned_range", variance, "respaced"))
        assert 699 not in judge.grid
        table = elbo_costs(fill(full, mask), variance, "respaced")  # type: ignore[arg-type]
        expected = table.pairs[700, 699] - table.L[700, 699]
        assert (judge.decoder @ judge.sizes)[-1] == pytest.approx(expected, rel=0.02)  # blocks are for spreads


def test_a_single_time_has_a_belief() -> None:
    from test_interpolate import learned_statistics

    full = learned_statistics(ForwardProcess.linear(1))
    belief = Judge(full, np.ones(2, dtype=bool), check_options(full.process, "learned_range", None)).belief((1,))
    assert (belief.regret == 0.0).all()


def test_blocks_of_a_learned_variance_average_to_its_cost() -> None:
    """Each block's own cost, weighted by size, against the table's: deviations must add up to nothing."""
    from test_interpolate import learned_statistics

    process = ForwardProcess.linear(12)
    full = learned_statistics(process)
    options = check_options(process, "learned_range", None)
    candidates = Judge(full, np.ones(13, dtype=bool), options)
    single = np.zeros(candidates.sizes.size)
    single[3] = 1.0
    only_block_3 = candidates.steps(single, np.ones((3, 12)))
    members = np.flatnonzero(full.block_of_sample == 3)
    part = estimate_block(process, members)
    table = elbo_costs(part, "learned_range").L
    expected = table[candidates.t + 1, candidates.s + 1]
    np.testing.assert_allclose(only_block_3, expected, rtol=1e-4, atol=1e-4)


def estimate_block(process: ForwardProcess, members: Array) -> Statistics:
    """Statistics of a few of the samples of `learned_statistics`, with the noise that they had there."""
    import torch

    from dpstride import Denoiser
    from dpstride.statistics.noise import standard_normal
    from test_interpolate import WavyNetwork

    images = torch.randint(60, 200, (40, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    network = WavyNetwork(process)

    def with_their_noise(x: Any, time: Any) -> Any:
        x_0 = images[members].double() / 127.5 - 1.0
        t = int(time[0]) + 1
        noise = torch.cat(
            [standard_normal(0, "forward", int(process.origin[t]), int(i), 1, (1, 4, 4)) for i in members]
        )
        return network(process.f[t] * x_0 + process.g[t] * noise, time)

    denoiser = Denoiser(with_their_noise, process, predicts="x0", variance="learned_range", shape=(1, 4, 4))
    return estimate(denoiser, images[members], progress=False, batch_size=len(members))


@pytest.mark.parametrize("variance", ["learned_range", "learned_optimal"])
def test_what_learned_rows_miss_is_the_difference_of_two_whole_tables(variance: Any) -> None:
    """One table of all evaluated rows, one with the row left out and filled in by the others."""
    from test_interpolate import learned_statistics, spread

    process = ForwardProcess.linear(40)
    full = learned_statistics(process)
    mask = spread(full, 12)
    judge = Judge(full, mask, check_options(process, "learned_range", variance))
    found, u = judge._learned_misses(), coordinate_of(full)
    table = elbo_costs(full, variance)
    for row, t in enumerate(judge.known[1:-1].tolist(), start=1):
        others, (low, high) = mask.copy(), around(u[judge.known], row)
        others[judge.known[low + 1 : high]] = False
        without = elbo_costs(fill(full, others), variance, fitted=table.fitted)
        for column, reach in enumerate((1 / 16, 1 / 2, 1.0)):
            far = (u[t] - u[1:t]) / (u[t] - u[1])
            s = int(np.flatnonzero(far >= reach)[-1]) + 1  # the nearest that is as far
            assert found[row, column] == pytest.approx(np.log(without.L[t, s] / table.L[t, s]), abs=1e-6)


def test_misses_that_are_small_by_chance_are_not_believed() -> None:
    """Three neighbours lie just where the others say; those beyond do not, and the curve is the same kind everywhere."""
    u = noise_coordinate(PROCESS, float(SPECTRUM.sum()))
    judge = Judge(without_noise(2), np.isin(np.arange(T + 1), first_steps(u, 11)), POSTERIOR)
    missed = np.full(11, 0.1)
    lucky = np.where(np.isin(np.arange(11), (4, 5, 6)), 0.0, missed)
    between = (judge.grid > judge.known[4]) & (judge.grid < judge.known[6])
    there, by_luck = (judge.unknown(np.zeros((11, 3)), each)[0][between].max() for each in (missed, lucky))
    assert 0.4 * there < by_luck < there


def test_what_is_unknown_vanishes_at_evaluated_times_and_falls_with_the_gap() -> None:
    exact = without_noise(2)
    u = noise_coordinate(PROCESS, float(SPECTRUM.sum()))
    largest = []
    for count in (8, 16):
        steps = first_steps(u, count)
        mask = np.isin(np.arange(T + 1), steps)
        candidates = Judge(exact, mask, POSTERIOR)
        where = np.searchsorted(candidates.grid, candidates.known)
        levels = np.log(candidates.squared_error[where])
        unknown, worth = candidates.unknown(levels)
        assert worth[1:].any(), "without noise any error is worth an evaluation"
        assert (unknown[where] == 0.0).all()
        error = np.abs(np.log(candidates.squared_error[:, 0] / exact.squared_error[candidates.grid, 0]))
        assert error.max() < 3.0 * unknown.max(), "judged no smaller than it is"
        largest.append(unknown.max())
    assert largest[1] < largest[0] / 2.0


def test_without_noise_or_gaps_there_is_no_regret() -> None:
    exact = without_noise(4)
    belief = Judge(exact, np.ones(T + 1, dtype=bool), POSTERIOR).belief(BUDGETS)
    np.testing.assert_allclose(belief.regret, 0.0, atol=1e-12)
    assert belief.gaps.size == 0


# --- what is left out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at, expected",
    [
        (1, (0, 2)),
        (2, (1, 4)),  # 5.1 is the other side of the kink at 5: it would tell 5 by itself
        (3, (1, 4)),
        (5, (4, 6)),  # the last before the end, which has to stay
    ],
)
def test_both_sides_of_a_kink_are_left_out_together(at: int, expected: tuple[int, int]) -> None:
    assert around(np.array([0.0, 2.0, 5.0, 5.1, 8.0, 9.9, 10.0]), at) == expected


def test_a_second_time_beside_another_makes_nothing_surer() -> None:
    """Either of a pair, left out alone, is told by the other; what lies in the wide gap between two pairs is not."""
    u = noise_coordinate(PROCESS, float(SPECTRUM.sum()))
    even = first_steps(u, 9)
    single = np.union1d(even[(even < 30) | (even > 80)], [30, 80])
    between = []
    for known in (single, np.union1d(single, [31, 79])):
        judge = Judge(without_noise(2), np.isin(np.arange(T + 1), known), POSTERIOR)
        bends = np.logaddexp(0.0, 3.0 * (u[judge.known] - u[50]))
        believed, _ = judge.unknown(np.repeat(bends[:, None], 3, axis=1))
        between.append(believed[(judge.grid > 31) & (judge.grid < 79)].max())
    assert between[1] > 0.7 * between[0] > 0.0
