"""Statistics: what one pass per (t, batch) leaves behind, against loops that compute the same from the definition."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, Statistics, estimate
from dpstride.statistics import artefact
from dpstride.statistics.bins import chebyshev_matrix, chebyshev_nodes
from dpstride.statistics.data import Samples
from dpstride.statistics.noise import standard_normal
from dpstride.statistics.probes import AFTER, PASSES
from dpstride.statistics.spots import OF_UNIT
from small_network import DIMS, IMAGES, KINDS, PROCESS, SHAPE, Net, assert_identical, denoiser_of, run

Array = NDArray[Any]


# --- the definition, by plain loops -----------------------------------------------------------------------------------


def plain_pass(denoiser: Denoiser, x: Tensor, seed: int, t: int) -> tuple[Array, Array | None]:
    """Residuals e [N, dims] and fractions at t, one sample at a time."""
    process, errors, fractions = denoiser.process, [], []
    for n, sample in enumerate(x):
        eps = standard_normal(seed, "forward", int(process.origin[t]), n, 1, tuple(sample.shape))
        prediction = denoiser(process.f[t] * sample[None] + process.g[t] * eps, t)
        errors.append((sample[None] - prediction.x0_hat).flatten().numpy())
        if prediction.fraction is not None:
            fractions.append(prediction.fraction.flatten().numpy())
    return np.array(errors), np.array(fractions) if fractions else None


def level_nats(levels: Array, x_hat: Array, sigma: Any) -> Array:
    """−ln p of 8-bit levels: the Gaussian's mass between the borders of the level, the outer two open."""
    centre = levels / 127.5 - 1.0
    low = np.where(levels == 0, -np.inf, centre - 1.0 / 255.0)
    high = np.where(levels == 255, np.inf, centre + 1.0 / 255.0)
    flip = np.where(centre > x_hat, -1.0, 1.0)  # take the difference in the tail where it does not cancel
    a, b = flip * (low - x_hat) / sigma, flip * (high - x_hat) / sigma
    a, b = np.minimum(a, b), np.maximum(a, b)
    with np.errstate(divide="ignore"):
        gap = np.where(np.isinf(a), -np.inf, norm.logcdf(a) - norm.logcdf(b))
    return np.asarray(-(norm.logcdf(b) + np.log(-np.expm1(gap))))


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_what_plain_loops_say(kind: str, learned: bool) -> None:
    """Float64 algebra: 1e-10 relative."""
    statistics = run(kind, learned, seed=3, batch_size=8)
    denoiser = denoiser_of(learned)
    x = KINDS[kind][0].double() / 127.5 - 1.0 if kind == "uint8" else KINDS[kind][0]
    levels, N = IMAGES.reshape(37, DIMS).numpy().astype(float), len(x)
    assert (statistics.samples, statistics.dims, statistics.seed) == (N, DIMS, 3)
    np.testing.assert_allclose(statistics.data_square, (x.flatten(1).numpy() ** 2).sum(1), rtol=1e-12)
    for t in range(1, PROCESS.T + 1):
        e, phi = plain_pass(denoiser, x, 3, t)
        np.testing.assert_allclose(statistics.squared_error[t], (e**2).sum(1), rtol=1e-10)
        if kind == "uint8":
            x_hat = x.flatten(1).numpy() - e
            assert statistics.decoder_upper is not None
            upper = level_nats(levels, x_hat, PROCESS.g[t])
            np.testing.assert_allclose(statistics.decoder_upper[t], upper.sum(1), rtol=1e-10)
            check_residual_bins(statistics, t, levels, x_hat)
        if learned:
            assert phi is not None
            check_fractions(statistics, t, e, phi)
        if learned and kind == "uint8" and t < PROCESS.T:
            check_learned_decoder(statistics, t, levels, x_hat, phi)
    assert (statistics.fraction_bins is None) == (not learned)
    assert (statistics.residual_bins is None) == (kind == "continuous")


def check_residual_bins(statistics: Statistics, t: int, levels: Array, x_hat: Array) -> None:
    """Mean cost at any decoder sigma of the range, from the bins."""
    from dpstride.statistics.decoder import residual_costs

    assert statistics.residual_bins is not None
    bins, weights = statistics.residual_bins.row(t)
    low, high = artefact.decoder_log_sigma_range(PROCESS, statistics.data_range, t)
    for sigma in np.exp([low, 0.5 * (low + high), high]):
        costs = residual_costs(statistics.residual_mesh(t), bins, 1.0 / 255.0, np.array([sigma]))[..., 0]
        assert (weights * costs).sum() == pytest.approx(level_nats(levels, x_hat, sigma).sum(), rel=1e-9)


def check_fractions(statistics: Statistics, t: int, e: Array, phi: Array) -> None:
    """Σφ, and Σ exp(−φδ) and Σ e² exp(−φδ) over all elements (bins) and over each block (nodes)."""
    assert statistics.fraction_sum is not None
    assert statistics.fraction_bins is not None
    assert statistics.fraction_blocks is not None
    np.testing.assert_allclose(statistics.fraction_sum[t], phi.sum(1), rtol=1e-10, atol=1e-13 * DIMS)
    bins, weights = statistics.fraction_bins.row(t)
    low, high = artefact.fraction_range(PROCESS, t)
    nodes = chebyshev_nodes(low, high, artefact.BLOCK_NODES)
    block = statistics.block_of_sample
    for number, weight in enumerate((np.ones_like(e), e**2)):
        for delta in (0.0, 0.37 * high, high):
            found = (weights[:, number] * np.exp(-statistics.fraction_mesh(t).points(bins) * delta)).sum()
            assert found == pytest.approx((weight * np.exp(-phi * delta)).sum(), rel=1e-9)
        for j, delta in enumerate(nodes):
            per_sample = (weight * np.exp(-phi * delta)).sum(1)
            means = np.bincount(block, per_sample) / np.bincount(block)
            np.testing.assert_allclose(np.exp(statistics.fraction_blocks[t, :, number, j]), means, rtol=1e-9)


def check_learned_decoder(statistics: Statistics, t: int, levels: Array, x_hat: Array, phi: Any) -> None:
    """ln σ² = φ ln g_t² + (1 − φ) ln g̃²(t, t2) for every second step t2: the grid is short, so each is a node."""
    assert statistics.learned_decoder is not None
    assert statistics.learned_decoder_blocks is not None
    block = statistics.block_of_sample
    for j, t2 in enumerate(range(t + 1, PROCESS.T + 1)):
        variance = np.exp(phi * 2 * np.log(PROCESS.g[t]) + (1 - phi) * np.log(PROCESS.posterior_variance(t2, t)))
        nats = level_nats(levels, x_hat, np.sqrt(variance)).sum(1)
        assert statistics.learned_decoder[t, j] == pytest.approx(nats.mean(), rel=1e-10)
        np.testing.assert_allclose(
            statistics.learned_decoder_blocks[t, :, j], np.bincount(block, nats) / np.bincount(block), rtol=1e-10
        )


def test_a_long_grid_interpolates_the_learned_decoder() -> None:
    """More second steps than nodes: φ in [0, 1] to 1e-9 at every one."""
    process = ForwardProcess.linear(150)
    denoiser = denoiser_of(True, process)
    statistics = estimate(denoiser, IMAGES[:3], progress=False)
    assert statistics.learned_decoder is not None
    size = statistics.learned_decoder.shape[1]
    x, levels = IMAGES[:3].double() / 127.5 - 1.0, IMAGES[:3].reshape(3, DIMS).numpy().astype(float)
    for t in (1, 20, 60):
        delta = artefact.learned_decoder_delta(process, t)
        assert delta.size > size
        e, phi = plain_pass(denoiser, x, 0, t)
        assert phi is not None
        assert ((phi >= 0.0) & (phi <= 1.0)).all()
        found = chebyshev_matrix(0.0, float(delta[0]), size, delta) @ statistics.learned_decoder[t]
        for t2 in (t + 1, t + 2, t + 30, process.T):
            variance = np.exp(phi * 2 * np.log(process.g[t]) + (1 - phi) * np.log(process.posterior_variance(t2, t)))
            nats = level_nats(levels, x.flatten(1).numpy() - e, np.sqrt(variance)).sum(1).mean()
            assert found[t2 - t - 1] == pytest.approx(nats, rel=1e-9)


@given(st.integers(1, 200))
def test_blocks_are_contiguous_and_as_equal_as_can_be(samples: int) -> None:
    block = artefact.block_of_sample(samples)
    sizes = np.bincount(block)
    assert (np.diff(block) >= 0).all()
    assert sizes.size == min(artefact.BLOCKS, samples)
    assert sizes.max() - sizes.min() <= 1


# --- Monte Carlo against the closed form ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "cosine", "sub_vp", "rectified_flow"])
def test_squared_error_of_gaussian_data_is_the_posterior_variance(name: str) -> None:
    """x_0 ~ N(μ, v) and x_t = f x_0 + g ε: E[x_0 given x_t] = μ + v f/(v f² + g²) (x_t − f μ), and what remains is
    v g²/(v f² + g²). Within 5 standard errors at each of 40 steps: a false alarm in 40 · 6e-7, if errors are normal.
    """
    process = getattr(ForwardProcess, name)(40)
    mean, variance = 0.3, 0.49
    f, g = (torch.from_numpy(np.array(array)) for array in (process.f, process.g))

    def ideal(x: Tensor, time: Tensor) -> Tensor:
        f_t, g_t = f[time + 1][:, None], g[time + 1][:, None]
        return mean + variance * f_t / (variance * f_t**2 + g_t**2) * (x - f_t * mean)

    x = mean + math.sqrt(variance) * torch.randn(
        600, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5)
    )
    statistics = estimate(
        Denoiser(ideal, process, predicts="x0", clip=None), x, data_range="continuous", progress=False, batch_size=600
    )
    exact = variance * process.g**2 / (variance * process.f**2 + process.g**2)
    deviation = (statistics.mean_squared_error - exact)[1:] / statistics.standard_error[1:]
    assert np.abs(deviation).max() < 5.0
    per_sample = statistics.squared_error[7] / 4
    assert statistics.mean_squared_error[7] == pytest.approx(per_sample.mean(), rel=1e-12)
    assert statistics.standard_error[7] == pytest.approx(per_sample.std(ddof=1) / math.sqrt(600), rel=1e-12)


def test_one_sample_has_no_standard_error() -> None:
    statistics = run(data=IMAGES[:1])
    assert np.isnan(statistics.standard_error).all()
    assert np.isfinite(statistics.mean_squared_error).all()


# --- one pass per (t, batch), and nothing depends on the batches ------------------------------------------------------


@pytest.mark.parametrize(
    ("batch_size", "passes"),
    # 9 · 37 = 333 samples in units of so many t that batches are full: 333/64 = 5.2; 4 · 37 in batches of 37; …
    [(64, 6), (37, 9), (333, 1), (1000, 1), (10, 2 * 15 + 4), (3, 9 * 13)],
)
def test_every_sample_passes_once_per_step_in_full_batches(batch_size: int, passes: int) -> None:
    denoiser = denoiser_of(learned=True)
    run(denoiser=denoiser, batch_size=batch_size)
    network = denoiser.network
    assert isinstance(network, Net)
    assert max(map(len, network.calls[:PASSES])) == min(8, batch_size)  # the probes
    calls = [call for call in network.calls[PASSES:] if len(call) > 1]
    assert len(network.calls[PASSES:]) - len(calls) == OF_UNIT + AFTER  # spot checks, and probes after the work
    assert len(calls) == passes
    assert max(map(len, calls)) <= batch_size
    assert Counter(t for call in calls for t in call) == dict.fromkeys(range(1, 10), 37)


def test_a_network_that_takes_one_time_per_batch_gets_batches_of_one_time() -> None:
    """It looks at the first time only, or refuses several; both are wrong, or of no use, in batches of several t."""
    calls: list[list[int]] = []

    def first(x: Tensor, time: Tensor) -> Tensor:
        calls.append(time.tolist())
        return torch.sin(x + 0.1 * time[0].double())

    def refusing(x: Tensor, time: Tensor) -> Tensor:
        calls.append(time.tolist())
        (only,) = set(time.tolist())
        return torch.sin(x + 0.1 * only)

    def each(x: Tensor, time: Tensor) -> Tensor:
        return torch.sin(x + 0.1 * time[:, None, None].double())

    expected = run(denoiser=Denoiser(each, PROCESS, predicts="x0"))
    for network in (first, refusing):
        calls.clear()
        found = run(denoiser=Denoiser(network, PROCESS, predicts="x0"))
        np.testing.assert_array_equal(found.squared_error, expected.squared_error)
        assert [sorted(set(call)) for call in calls[-9 - AFTER : -AFTER]] == [[t] for t in range(9)]


def assert_same_numbers(found: Statistics, expected: Statistics, rtol: float) -> None:
    """Arrays to ``rtol``; bins by the sums that they stand for, since a rounding may move an element to the next bin."""
    for name, shape in artefact.array_shapes(PROCESS, 37, expected.data_range.levels is not None, True).items():
        array = getattr(expected, name)
        if array is not None:
            assert array.shape == shape
            np.testing.assert_allclose(getattr(found, name), array, rtol=rtol, atol=rtol, err_msg=name)
    for t in range(1, PROCESS.T + 1):
        for rows, mesh in (("residual_bins", "residual_mesh"), ("fraction_bins", "fraction_mesh")):
            if getattr(expected, rows) is not None:
                sums = []
                for statistics in (found, expected):
                    bins, weights = getattr(statistics, rows).row(t)
                    points = getattr(statistics, mesh)(t).points(bins % getattr(statistics, mesh)(t).bins)
                    values = np.stack([np.ones_like(points), points, np.exp(-points)])
                    sums.append((values[:, :, None] * weights.reshape(len(bins), -1, points.shape[1])).sum((1, 3)))
                np.testing.assert_allclose(sums[0], sums[1], rtol=rtol, atol=rtol * 37 * DIMS, err_msg=rows)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_any_batch_size_and_any_split_give_the_same_statistics(
    kind: str, learned: bool, dtype: torch.dtype, rtol: float
) -> None:
    """1e-12 with a float64 network, 1e-5 with one that rounds at 6e-8: steep costs amplify its roundings."""
    data, _ = KINDS[kind]
    expected = run(kind, denoiser=denoiser_of(learned, network_dtype=dtype), batch_size=37)
    for batch_size in (4, 36):
        assert_same_numbers(
            run(kind, denoiser=denoiser_of(learned, network_dtype=dtype), batch_size=batch_size), expected, rtol
        )
    for split in ([1] * 37, [20, 1, 16]):
        batches = list(data.split(split))
        found = run(kind, denoiser=denoiser_of(learned, network_dtype=dtype), data=batches, batch_size=37)
        assert_identical(found, expected)  # how the data came is no part of the work at all


@pytest.mark.parametrize("learned", [False, True])
def test_the_first_samples_do_not_depend_on_those_after_them(learned: bool) -> None:
    few, many = run(learned=learned, samples=8, batch_size=8), run(learned=learned, batch_size=8)
    np.testing.assert_array_equal(few.squared_error, many.squared_error[:, :8])
    np.testing.assert_array_equal(few.decoder_upper, many.decoder_upper[:, :8])


def test_a_thinned_grid_repeats_the_rows_of_the_full_one_bit_for_bit() -> None:
    steps = [2, 3, 7, 9]
    full = run(learned=True, seed=11)
    thinned = run(denoiser=denoiser_of(True).on_grid(PROCESS.subset(steps)), seed=11)
    for row, t in enumerate(steps, start=1):
        for name in ("squared_error", "decoder_upper", "fraction_sum"):
            np.testing.assert_array_equal(getattr(thinned, name)[row], getattr(full, name)[t])


def test_conditioning_reaches_the_network_with_its_samples() -> None:
    """Labels are the first pixel, so a network that is given the right ones is right about it."""
    labels = IMAGES[:, 0, 0].double() / 127.5 - 1.0

    def network(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        out[:, 0, 0] = label
        return out

    denoiser = Denoiser(network, PROCESS, predicts="x0")
    rest = (IMAGES.double() / 127.5 - 1.0).flatten(1)[:, 1:].square().sum(1)
    for batch_size in (4, 37):
        found = estimate(denoiser, (IMAGES, {"label": labels}), batch_size=batch_size, progress=False)
        np.testing.assert_allclose(found.squared_error[3], rest.numpy(), rtol=1e-12)


def test_other_seeds_give_other_statistics_and_the_same_seed_the_same() -> None:
    assert_identical(run(seed=1), run(seed=1))
    assert_identical(run(seed=np.int64(1)), run(seed=1))  # type: ignore[arg-type]
    assert (run(seed=1).squared_error[1:] != run(seed=2).squared_error[1:]).all()


# --- bad input and warnings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, r"seed must be a whole number from 0 to 2\*\*64 - 1, not -1"),
        ({"seed": 2**64}, r"seed must be a whole number"),
        ({"seed": 1.5}, r"seed must be a whole number .* not 1\.5"),
        ({"seed": True}, r"seed must be a whole number .* not True"),
        ({"batch_size": 0}, r"batch_size must be a whole number of at least 1, not 0"),
        ({"batch_size": 2.0}, r"batch_size must be a whole number of at least 1, not 2\.0"),
        ({"indices": [0, 9]}, r"indices must be grid indices from 1 to T = 9, or None for every one, not \[0, 9\]"),
        ({"indices": [1, 3]}, r"Grid indices 1 and T = 9 must be evaluated"),
        ({"indices": [1, 10]}, r"indices must be grid indices from 1 to T = 9"),
        ({"indices": []}, r"indices must be grid indices"),
        ({"indices": [1.0, 9.0]}, r"indices must be grid indices"),
        ({"samples": 38}, r"samples = 38, but the data has only 37"),
        (
            {"data": IMAGES.reshape(37, 6), "denoiser": denoiser_of(shape=SHAPE)},
            r"shape \(2, 3\), but the data has shape \(6,\)",
        ),
        (
            {"denoiser": denoiser_of(True, spread=100.0)},
            r"phi = \(v \+ 1\)/2 reached \d+\.?\d* at grid step t = 1; .* hold v\?",
        ),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**options)


def test_a_denoiser_out_of_all_bounds_is_refused() -> None:
    """The bins of residuals reach 2e10 times the least sigma; beyond, sums would be wrong in silence."""
    denoiser = Denoiser(lambda x, time: x + 1e8, PROCESS, predicts="x0", clip=None)
    with pytest.raises(ValueError, match=r"x0_hat is 1e\+08 away from the data at grid step t = 1.*clip x0_hat"):
        run(denoiser=denoiser)
    assert np.isfinite(run("continuous", denoiser=denoiser).squared_error).all()


def test_clipping_that_the_data_exceeds_is_warned_about() -> None:
    message = r"clipped to \(-1\.0, 1\.0\), but the data spans \[0, 2\].* Pass clip=None, or the data's own range"
    with pytest.warns(UserWarning, match=message):
        estimate(denoiser_of(clip=(-1, 1)), torch.tensor([[0, 2]]), data_range=("levels", 3, 0, 2), progress=False)
    with pytest.warns(UserWarning, match=r"the data spans \[-1, 1\.55\]"):
        run("continuous", denoiser=denoiser_of(clip=(-1, 1)))
    run(denoiser=denoiser_of(clip=(-1, 1)))  # 8-bit data lies in [−1, 1]: no warning, which would be an error here


def test_samples_that_were_read_before_are_taken() -> None:
    assert_identical(run(data=Samples.read(IMAGES)), run())


def test_the_old_name_of_indices_works_and_warns() -> None:
    denoiser, images = denoiser_of(), IMAGES[:3]
    expected = estimate(denoiser, images, indices=[1, 9], progress=False)
    with pytest.warns(DeprecationWarning, match=r"estimate\(steps=…\) is now estimate\(indices=…\)"):
        found = estimate(denoiser, images, steps=[1, 9], progress=False)
    np.testing.assert_array_equal(found.squared_error, expected.squared_error)
    with (
        pytest.warns(DeprecationWarning, match="is now"),
        pytest.raises(ValueError, match="steps is the old name of indices: give indices only"),
    ):
        estimate(denoiser, images, indices=[1, 9], steps=[1, 9], progress=False)
