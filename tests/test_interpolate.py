"""Statistics filled in between evaluated steps, against exact denoisers and against statistics of every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import ForwardProcess, Statistics, elbo_costs, estimate, schedules_from
from dpstride.adaptive.loop import opening_steps
from dpstride.evaluate.comparison import compare
from dpstride.statistics import artefact
from dpstride.statistics.artefact import DataRange
from dpstride.statistics.bins import BinnedRows
from dpstride.statistics.coordinate import noise_coordinate
from dpstride.statistics.interpolate import fill
from flawed import LAWS, Flawed
from gaussian import Array, gaussian_denoiser, ideal_statistics

T = 40
PROCESS = ForwardProcess.linear(T)
FIELDS = (
    "squared_error",
    "decoder_upper",
    "decoder_blocks",
    "fraction_sum",
    "fraction_blocks",
    "learned_decoder",
    "learned_decoder_blocks",
)
# Every variance and every decoder; the respaced decoder reads what is learned, or what is binned.
OPTIONS = [
    ("posterior", "upper"),
    ("upper", "first_pair"),
    ("learned_range", "upper"),
    ("learned_range", "respaced"),
    ("posterior", "respaced"),
    ("optimal", "optimal"),
    ("learned_optimal", "upper"),
]


class WavyNetwork:
    """Predicts shrunken x_t; v varies over pixels, samples and noise levels, so that φ and e² depend on each other."""

    def __init__(self, process: ForwardProcess) -> None:
        self.f, self.g = torch.tensor(process.f), torch.tensor(process.g)

    def __call__(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        f, g = (a[time + 1].reshape(-1, 1, 1, 1) for a in (self.f, self.g))
        x0 = (0.2 * f * x / (0.2 * f**2 + g**2)).clamp(-1.0, 1.0)
        return torch.cat([x0, 0.4 * torch.tanh(2.0 * x) - 0.3 * torch.log(g)], dim=1)


def learned_statistics(process: ForwardProcess = PROCESS, data_range: str = "uint8", seed: int = 0) -> Statistics:
    from dpstride import Denoiser

    denoiser = Denoiser(WavyNetwork(process), process, predicts="x0", variance="learned_range", shape=(1, 4, 4))
    images = torch.randint(60, 200, (40, 1, 4, 4), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    data = images if data_range == "uint8" else images.double() / 127.5 - 1.0
    return estimate(denoiser, data, data_range=data_range, progress=False)


@pytest.fixture(scope="module")
def learned() -> Statistics:
    return learned_statistics()


def spread(statistics: Statistics, count: int) -> Array:
    """A mask of about ``count`` steps, even in the noise coordinate, 1 and T among them."""
    u = noise_coordinate(statistics.process, float(statistics.data_square.mean()))
    mask = np.zeros(u.size, dtype=bool)
    mask[[1 + int(np.abs(u[1:] - at).argmin()) for at in np.linspace(u[1], u[-1], count)]] = True
    return mask


def without(statistics: Statistics, mask: Array) -> Statistics:
    """The statistics with NaN, and empty bins, wherever they were not evaluated."""
    changes: dict[str, Any] = {}
    unknown = ~mask & (np.arange(mask.size) > 0)
    for name in FIELDS:
        if (value := getattr(statistics, name)) is not None:
            changes[name] = np.where(unknown.reshape(-1, *[1] * (value.ndim - 1)), np.nan, value)
    for name in ("residual_bins", "fraction_bins"):
        if (binned := getattr(statistics, name)) is not None:
            rows = [np.arange(binned.offsets[t], binned.offsets[t + int(mask[t])]) for t in range(mask.size)]
            changes[name] = BinnedRows.from_rows([(binned.bins[row], binned.moments[row]) for row in rows])
    return replace(statistics, **changes)


# --- means against closed forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "process",
    [ForwardProcess.linear(400), ForwardProcess.cosine(400), ForwardProcess.rectified_flow(400)],
    ids=lambda process: process.name,
)
def test_squared_error_of_gaussian_data_is_recovered_from_one_step_in_twenty(process: ForwardProcess) -> None:
    """Data of two scales, so that E e² bends twice; PCHIP errs by its step in u to the third power or so."""
    exact = ideal_statistics(process, 0.0, np.array([1.0] * 4 + [0.01] * 12))
    coarse, fine = (
        np.abs(fill(without(exact, mask), mask).squared_error[1:] / exact.squared_error[1:] - 1.0).max()
        for mask in (spread(exact, 12), spread(exact, 24))
    )
    assert fine < 0.01
    assert fine < coarse / 2.0


def test_rectified_flow_is_filled_up_to_pure_noise() -> None:
    """f_T = 0: log-SNR is infinite at T, the coordinate is not."""
    process = ForwardProcess.rectified_flow(50)
    assert process.f[-1] == 0.0
    u = noise_coordinate(process, 16.0)
    assert np.isfinite(u[1:]).all()
    assert (np.diff(u[1:]) > 0.0).all()


# --- every field ------------------------------------------------------------------------------------------------------


def test_nothing_of_a_row_that_was_not_evaluated_is_read(learned: Statistics) -> None:
    mask = spread(learned, 12)
    filled, ignorant = fill(learned, mask), fill(without(learned, mask), mask)
    for name in FIELDS:
        one, other = getattr(filled, name), getattr(ignorant, name)
        assert np.isfinite(other).all(), name
        np.testing.assert_array_equal(one, other, err_msg=name)
    for name in ("residual_bins", "fraction_bins"):
        np.testing.assert_array_equal(getattr(filled, name).moments, getattr(ignorant, name).moments)


def test_evaluated_rows_are_left_alone(learned: Statistics) -> None:
    mask = spread(learned, 12)
    filled = fill(learned, mask)
    np.testing.assert_array_equal(filled.evaluated, mask)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(filled, name)[mask], getattr(learned, name)[mask], err_msg=name)
    for t in np.flatnonzero(mask):
        for name in ("residual_bins", "fraction_bins"):
            for one, other in zip(getattr(filled, name).row(t), getattr(learned, name).row(t), strict=True):
                np.testing.assert_array_equal(one, other)


def test_statistics_of_every_step_are_returned_as_they_are(learned: Statistics) -> None:
    mask = np.ones(T + 1, dtype=bool)
    mask[0] = False
    assert fill(learned, mask) is learned


@pytest.mark.parametrize("variance, decoder", OPTIONS)
@pytest.mark.parametrize("data_range", ["uint8", "continuous"])
def test_costs_and_errors_of_every_option_are_near_those_of_every_step(
    learned: Statistics, variance: Any, decoder: Any, data_range: str
) -> None:
    """Monte Carlo noise of 40 samples is in both tables, so paths are compared within their standard errors."""
    full = learned if data_range == "uint8" else learned_statistics(data_range="continuous")
    mask = spread(full, 16)
    assert mask.sum() < 20
    tables = [elbo_costs(statistics, variance, decoder) for statistics in (full, fill(without(full, mask), mask))]
    paths = [(T, 3, 0), (T, 30, 20, 10, 5, 2, 0), tuple(range(T, -1, -1)), (T, T - 1, T - 3, 0)]
    for path in paths:
        exact, filled = (table.bpd(table.step_nats(path).sum()) for table in tables)
        errors = [table.standard_errors([path])[0] for table in tables]
        assert abs(exact - filled) < max(3.0 * errors[0], 0.02 * abs(exact)), path
        assert errors[1] == pytest.approx(errors[0], rel=0.5), path


def test_parts_of_a_filled_row_agree_with_each_other(learned: Statistics) -> None:
    """The same mean is stored several times: per sample, in bins, in blocks. Costs are differences of them."""
    mask = spread(learned, 10)
    filled = fill(learned, mask)
    sizes = np.bincount(filled.block_of_sample) / filled.samples
    for t in np.flatnonzero(~mask[1:]) + 1:
        bins, weights = filled.residual_bins.row(t)
        points = filled.residual_mesh(t).points(bins % filled.residual_mesh(t).bins)
        assert weights.sum() == pytest.approx(filled.dims * filled.samples, rel=1e-12)
        assert (weights * points**2).sum() == pytest.approx(filled.squared_error[t].sum(), rel=1e-9)
        bins, weights = filled.fraction_bins.row(t)
        phi = filled.fraction_mesh(t).points(bins)
        assert weights[:, 0].sum() == pytest.approx(filled.dims * filled.samples, rel=1e-12)
        assert (weights[:, 0] * phi).sum() == pytest.approx(filled.fraction_sum[t].sum(), rel=1e-11)
        assert weights[:, 1].sum() == pytest.approx(filled.squared_error[t].sum(), rel=1e-12)
        lowest = filled.fraction_blocks[t, :, :, 0]  # the node nearest δ = 0
        near = np.exp(-phi * artefact.chebyshev_nodes(*artefact.fraction_range(PROCESS, t), 12)[0])
        both = (weights * near[:, None]).sum(axis=(0, 2)) / filled.samples
        np.testing.assert_allclose(sizes @ np.exp(lowest), both, rtol=1e-12)
        if t < T:
            np.testing.assert_allclose(sizes @ filled.learned_decoder_blocks[t], filled.learned_decoder[t], rtol=1e-12)


def test_steps_between_neighbours_cost_no_less_than_nothing(learned: Statistics) -> None:
    """A divergence is not negative; that of adjacent steps is a difference of numbers a million times larger."""
    mask = spread(learned, 10)
    L = elbo_costs(fill(learned, mask), "learned_range").L
    assert (L[np.tril_indices(T + 1, -1)] > 0.0).all()


def test_filled_statistics_are_saved_scored_and_compared_like_others(learned: Statistics, tmp_path: Any) -> None:
    mask = spread(learned, 16)
    filled = fill(learned, mask)
    filled.save(tmp_path / "filled.safetensors")
    back = Statistics.load(tmp_path / "filled.safetensors")
    np.testing.assert_array_equal(back.squared_error, filled.squared_error)
    schedules = schedules_from(back, "learned_range", "respaced", max_budget=8)
    comparison = compare(schedules, learned_statistics(seed=1))
    bpd, error = comparison.curves["dp"][8]
    assert bpd < comparison.curves["even"][8][0]
    assert bpd == pytest.approx(schedules[8].bpd, abs=5.0 * (error + schedules[8].standard_error))


def test_one_step_and_two_steps_have_nothing_to_fill() -> None:
    process = ForwardProcess.linear(2)
    statistics = estimate(
        gaussian_denoiser(process, np.zeros((1, 2, 2)), np.ones((1, 2, 2))), np.zeros((3, 1, 2, 2)), data_range="continuous"
    )  # fmt: skip
    assert fill(statistics, np.array([False, True, True])) is statistics


def test_a_perfect_denoiser_is_filled_with_zeros() -> None:
    process = ForwardProcess.linear(20)
    ideal = ideal_statistics(process, 0.5, 0.0)
    mask = np.zeros(21, dtype=bool)
    mask[[1, 7, 20]] = True
    assert (np.abs(fill(ideal, mask).squared_error) < 1e-250).all()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [1, T])
def test_the_ends_must_be_evaluated(learned: Statistics, missing: int) -> None:
    mask = spread(learned, 10)
    mask[missing] = False
    with pytest.raises(ValueError, match=f"never extrapolated, but {missing} is not. Add it"):
        fill(learned, mask)


@pytest.mark.parametrize("mask", [np.ones(T, dtype=bool), np.ones(T + 1), [1, 5, T]])
def test_a_mask_has_one_boolean_per_grid_index(learned: Statistics, mask: Any) -> None:
    with pytest.raises(ValueError, match=f"one boolean per grid index, {T + 1} of them"):
        fill(learned, mask)


# --- beside jumps of the process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["cosine", "almost zero", "kinked", "jumping"])
@pytest.mark.parametrize("clip", [None, (-1.0, 1.0)], ids=["unclipped", "clipped"])
def test_an_eps_network_is_recovered_on_laws_with_jumps(law: str, clip: tuple[float, float] | None) -> None:
    """From a first round: e² of x̂_0 spans up to ten orders of magnitude there, and with it the cost of the decoder."""
    model = Flawed(LAWS[law](300), "eps", clip, DataRange.parse("uint8"), 0.3 * np.array([1.0, 0.3, 0.1]))
    exact = model.exact(12)
    square = float(exact.data_square.mean())
    u, along = noise_coordinate(model.process, square), noise_coordinate(model.process, square, "eps")
    mask = np.isin(np.arange(301), opening_steps(model.process, u, along, 300))
    assert mask.sum() < 26
    filled = fill(without(exact, mask), mask)
    for name in ("squared_error", "decoder_upper"):
        ratio = getattr(filled, name)[1:, 0] / getattr(exact, name)[1:, 0]
        # Where clipping sets in, e² turns inside a single gap of up to six nats; the next rounds look there if it matters.
        assert np.abs(np.log(ratio)).max() < (0.1 if clip is None else np.log(2.0)), name


def test_single_samples_do_not_take_after_the_neighbour_with_the_larger_error() -> None:
    """Beside a jump one neighbour's error is a million times the other's: a sample is a mean of what it is at each."""
    process = ForwardProcess.cosine(100)
    squared = np.ones((101, 2))
    squared[1:] = 1.0 / process.snr[1:, None]
    squared[99:] *= np.array([0.5, 1.5])  # only towards the noise do the two samples differ
    statistics = replace(
        ideal_statistics(process, 0.0, 1.0),
        squared_error=squared,
        data_square=np.ones(2),
        model={"name": "two", "variance": "posterior", "predicts": "eps", "clip": None},
    )
    mask = np.isin(np.arange(101), [1, 90, 99, 100])
    filled = fill(statistics, mask).squared_error
    relative = filled[91:99] / filled[91:99].mean(axis=1, keepdims=True)
    w = (process.log_snr[90] - process.log_snr[91:99]) / (process.log_snr[90] - process.log_snr[99])
    np.testing.assert_allclose(relative[:, 1], 1.0 + 0.5 * w, rtol=1e-6)


@pytest.mark.parametrize("decoder", ["optimal", "respaced"])
def test_blocks_of_the_decoder_follow_an_error_that_jumps(decoder: Any) -> None:
    """Standard errors of paths through filled rows, where e² changes a thousandfold between neighbours."""
    process = ForwardProcess.cosine(T)
    denoiser = gaussian_denoiser(process, np.full((1, 2, 2), 0.1), np.full((1, 2, 2), 0.1), predicts="eps")
    ideal = denoiser.network
    flawed = replace_network(denoiser, lambda x, time: 0.9 * ideal(x, time) + 0.05)
    images = torch.randint(60, 200, (32, 1, 2, 2), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    full = estimate(flawed, images, progress=False)
    mask = np.isin(np.arange(T + 1), [1, 2, 4, 8, 14, 20, 26, 31, 34, 39, 40])
    tables = [elbo_costs(statistics, "posterior", decoder) for statistics in (full, fill(without(full, mask), mask))]
    for last in (35, 36, 37, 38):
        exact, filled = (table.standard_errors([(T, T - 1, last, 0)])[0] for table in tables)
        assert filled == pytest.approx(exact, rel=0.5), last


def replace_network(denoiser: Any, network: Any) -> Any:
    from dpstride import Denoiser

    return Denoiser(network, denoiser.process, predicts=denoiser.predicts, clip=denoiser.clip, shape=denoiser.shape)
