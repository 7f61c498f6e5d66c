"""Sums by compiled kernels and by the learned decoder's grid, against the same sums taken element by element."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dpstride import ForwardProcess
from dpstride.statistics import artefact, kernels, learned_decoder, passes
from dpstride.statistics.bins import MOMENTS, EvenMesh, GradedMesh, chebyshev_matrix, chebyshev_nodes, moments_of
from dpstride.statistics.decoder import decoder_nats
from dpstride.statistics.learned_decoder import LearnedDecoder

Array = NDArray[Any]
HALF = 1.0 / 255.0


@pytest.fixture(autouse=True)
def always_by_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_decoder, "DIRECT", 0)


def residuals(scale: float, count: int = 6, dims: int = 50, seed: int = 0) -> tuple[Array, Array, Array]:
    """q of all sizes (negative ones at edges only), edges, and blocks of two samples."""
    rng = np.random.default_rng(seed)
    edge = rng.random((count, dims)) < 0.4
    q = scale * rng.standard_normal((count, dims)) * 10.0 ** rng.uniform(-3, 0.3, (count, dims))
    return np.where(edge, q, np.abs(q)), edge, np.arange(count) // 2


def direct(q: Array, edge: Array, fraction: Array, g_t: float, delta: Array, half_bin: float = HALF) -> Array:
    """Σ over a sample's elements at each δ, by the definition, [samples, δ]."""
    sigma = g_t * np.exp(-0.5 * (1.0 - fraction[..., None]) * delta)
    return np.asarray(decoder_nats(q[..., None], edge[..., None], half_bin, sigma).sum(1))


def by_grid(parts: list[tuple[Array, Array, Array, Array]], g_t: float, delta: Array, half_bin: float = HALF) -> Array:
    """The same by blocks, from parts (q, edge, φ, block)."""
    blocks = 1 + max(int(block.max()) for *_, block in parts)
    decoder = LearnedDecoder(delta, half_bin, g_t, blocks, sum(q.size for q, *_ in parts))
    assert decoder.gridded
    for *elements, block in parts:
        q, edge, fraction = (torch.from_numpy(each) for each in elements)
        first = int(block[0])
        decoder.add(slice(first, int(block[-1]) + 1), *decoder.sums_of(q, edge, fraction, block - first))
    return decoder.totals()


@pytest.mark.parametrize("half_bin", [HALF, 1.0 / 65535.0, 0.5])
@pytest.mark.parametrize("most, g_t", [(6.5, 0.7), (8.0, 0.05), (4.0, 0.1), (0.68, 0.0064), (12.0, 1.0)])
def test_the_grid_gives_the_sums_of_the_elements(most: float, g_t: float, half_bin: float) -> None:
    """2e-9 of a block's sum at each δ, or 2e-12 nats per element: where a curve is e^−15 of what it is at the largest δ."""
    delta = chebyshev_nodes(0.0, most, 30)
    q, edge, block = residuals(2.0 * g_t)
    fraction = np.random.default_rng(1).uniform(*learned_decoder.FRACTIONS, q.shape)
    expected = direct(q, edge, fraction, g_t, delta, half_bin)
    found = by_grid([(q, edge, fraction, block)], g_t, delta, half_bin)
    np.testing.assert_allclose(found, np.add.reduceat(expected, [0, 2, 4]), rtol=2e-9, atol=4e-12 * q.shape[1])


def test_fractions_and_residuals_out_of_reach_are_summed_directly() -> None:
    delta = chebyshev_nodes(0.0, 3.0, 20)
    q, edge, block = residuals(0.3)
    fraction = np.random.default_rng(2).normal(0.5, 1.5, q.shape)
    q[0, :3] = (1e12, 3.0, 1e13)
    fraction[0, :3] = 0.5
    low, high = learned_decoder.FRACTIONS
    assert 20 < ((fraction < low) | (fraction > high)).sum() < q.size
    found = by_grid([(q, edge, fraction, block)], 0.3, delta)
    expected = np.add.reduceat(direct(q, edge, fraction, 0.3, delta), [0, 2, 4])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_samples_may_come_in_parts_and_in_bins_that_were_empty_before() -> None:
    delta = chebyshev_nodes(0.0, 5.0, 20)
    small, large = residuals(1e-3, seed=3), residuals(1.0, seed=4)
    fraction = np.random.default_rng(5).random(small[0].shape)
    parts = [(*small[:2], fraction, small[2]), (*large[:2], fraction, large[2] + 2)]  # block 2 has some of both
    expected = np.concatenate([direct(*part[:3], 0.2, delta) for part in parts])
    np.testing.assert_allclose(by_grid(parts, 0.2, delta), np.add.reduceat(expected, [0, 2, 4, 8, 10]), rtol=1e-9)


def test_statistics_by_the_grid_are_what_plain_loops_say() -> None:
    """The tests of statistics, whose data is so small that it would be summed directly, once more by the grid."""
    import test_statistics

    statistics = test_statistics.run("uint8", True, seed=3, batch_size=8)
    denoiser, process = test_statistics.denoiser_of(True), test_statistics.PROCESS
    x = test_statistics.IMAGES.double() / 127.5 - 1.0
    levels, block = test_statistics.IMAGES.reshape(37, -1).numpy().astype(float), statistics.block_of_sample
    assert statistics.learned_decoder_blocks is not None
    for t in range(1, process.T):
        e, phi = test_statistics.plain_pass(denoiser, x, 3, t)
        assert phi is not None
        for j, t2 in enumerate(range(t + 1, process.T + 1)):
            variance = np.exp(phi * 2 * np.log(process.g[t]) + (1 - phi) * np.log(process.posterior_variance(t2, t)))
            nats = test_statistics.level_nats(levels, x.flatten(1).numpy() - e, np.sqrt(variance)).sum(1)
            found = statistics.learned_decoder_blocks[t, :, j]
            np.testing.assert_allclose(found, np.bincount(block, nats) / np.bincount(block), rtol=1e-9)


def test_every_second_step_of_a_long_grid() -> None:
    """A row as `estimate` has it at T = 4000: costs interpolated between its nodes in δ, at steps near and far."""
    process = ForwardProcess.cosine(4000)
    size = artefact.learned_decoder_size(process)
    for t in (1, 30, 1000, 3990):
        g_t, all_delta = float(process.g[t]), artefact.learned_decoder_delta(process, t)
        q, edge, block = residuals(g_t, 2, 40, seed=t)
        fraction = np.random.default_rng(t).random(q.shape)
        values = by_grid([(q, edge, fraction, block)], g_t, artefact.learned_decoder_nodes(process, t, size))[0]
        if all_delta.size > size:
            values = chebyshev_matrix(0.0, float(all_delta[0]), size, all_delta) @ values
        expected = direct(q, edge, fraction, g_t, all_delta).sum(0)
        np.testing.assert_allclose(values, expected, rtol=2e-9)


# --- moments ----------------------------------------------------------------------------------------------------------


def test_kernels_sum_the_same_moments_as_tensors() -> None:
    """Residuals up to beyond the last bin, fractions up to the borders of the mesh: 1e-12 of a bin's own count."""
    q, edge, block = residuals(1.0)
    q[0, :4], q[1, :4] = (0.0, HALF, HALF * 17 / 16, 1e9), (HALF / 2, 2.0, 1e-3, 1e14)
    mesh, even = GradedMesh(HALF, HALF / 16), EvenMesh(1 / 16)
    sums = np.zeros((3, 2 * mesh.bins, MOMENTS))
    kernels.add_residuals(mesh, q, edge, block, sums)
    index, z = mesh.locate(torch.from_numpy(q))
    by_block = 2 * mesh.bins * torch.from_numpy(block)[:, None]
    index = index + mesh.bins * torch.from_numpy(edge) + by_block
    expected = moments_of(index.flatten(), z.flatten(), None, sums[..., 0].size)
    np.testing.assert_allclose(sums.reshape(-1, MOMENTS), expected.T, rtol=0, atol=1e-10)

    phi = np.random.default_rng(6).normal(0.5, 6.0, q.shape).clip(-32.0, 32.0)
    phi[0, :3] = (-32.0, 32.0, 0.0)
    fractions = np.zeros((3, even.bins, 2, MOMENTS))
    kernels.add_fractions(even, phi, q**2, block, fractions)
    index, z = even.locate(torch.from_numpy(phi))
    index = (index + even.bins * torch.from_numpy(block)[:, None]).flatten()
    for kind, weights in enumerate((None, torch.from_numpy(q**2).flatten())):
        expected = moments_of(index, z.flatten(), weights, 3 * even.bins)
        np.testing.assert_allclose(fractions[:, :, kind].reshape(-1, MOMENTS), expected.T, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("threads", [2, 3, 5, 64])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    q, edge, _ = residuals(0.1, count=11)
    block = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3, 4, 4])
    mesh, even, phi = GradedMesh(HALF, HALF / 16), EvenMesh(1 / 16), np.random.default_rng(7).random(q.shape)
    index, z = kernels.locate(mesh, q, edge)
    table = np.random.default_rng(8).random((2 * mesh.bins, MOMENTS, 16))
    found = []
    for count in (1, threads):
        sums = [np.zeros((5, 2 * mesh.bins, MOMENTS)), np.zeros((5, even.bins, 2, MOMENTS)), np.zeros((5, 4, 8, 16))]
        kernels.add_residuals(mesh, q, edge, block, sums[0], count)
        kernels.add_fractions(even, phi, q**2, block, sums[1], count)
        kernels.add_products(table, index, z, phi, limits=(0.0, 1.0), block=block, sums=sums[2], threads=count)
        found.append(sums)
    for one, other in zip(*found, strict=True):
        assert one.any()
        np.testing.assert_array_equal(one, other)


def test_other_devices_sum_the_same_by_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU would do, done here: every field to rounding."""
    import test_statistics

    compiled = test_statistics.run("uint8", True, seed=3, batch_size=8)
    monkeypatch.setattr(passes, "_by_kernels", lambda tensor: False)
    monkeypatch.setattr(learned_decoder, "DIRECT", 10**12)
    by_tensors = test_statistics.run("uint8", True, seed=3, batch_size=8)
    for name in ("squared_error", "decoder_upper", "decoder_blocks", "fraction_blocks", "learned_decoder_blocks"):
        np.testing.assert_allclose(
            getattr(compiled, name), getattr(by_tensors, name), rtol=1e-9, atol=1e-9, err_msg=name
        )
    for name in ("residual_bins", "fraction_bins"):
        one, other = getattr(compiled, name), getattr(by_tensors, name)
        np.testing.assert_array_equal(one.bins, other.bins)
        np.testing.assert_allclose(one.moments, other.moments, rtol=1e-12, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_sums_with_threads_of_its_own() -> None:
    q, edge, block = residuals(0.1)
    mesh = GradedMesh(HALF, HALF / 16)
    sums = np.zeros((3, 2 * mesh.bins, MOMENTS))
    kernels.add_residuals(mesh, q, edge, block, sums, 2)
    child = os.fork()
    if child == 0:
        again = np.zeros_like(sums)
        kernels.add_residuals(mesh, q, edge, block, again, 2)
        os._exit(int(not np.array_equal(again, sums)))
    for _ in range(6000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the fork waits for threads that it does not have")
    assert os.waitstatus_to_exitcode(status) == 0
