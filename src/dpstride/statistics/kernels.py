"""Stage 3. Compiled kernels that sum the results of a network pass by bins in one loop, for passes on the CPU.

They give the sums of `bins.locate` and `bins.moments_of`, which serve other devices, without their dozens of passes over
memory. Arrays are float64; ``block`` is the block of each sample, ascending, and results are added to ``sums``. Every thread
has blocks of its own, so the number of threads does not change a bit.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.kernels import fused
from .bins import MOMENTS, EvenMesh, GradedMesh

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mesh = tuple[float, float, Array]  # centre, sigma, and where bins begin
UNIFORM, SIDE = GradedMesh.UNIFORM, GradedMesh.SIDE
_PER_LOG = 1.0 / math.log(GradedMesh.GROWTH)
# Distances, in units of sigma, at which the bins of a graded mesh begin.
_BEGIN = np.array([float(n) if n < UNIFORM else UNIFORM * GradedMesh.GROWTH ** (n - UNIFORM) for n in range(SIDE + 1)])


def add_residuals(
    mesh: GradedMesh, q: Array, edge: npt.NDArray[np.bool_], block: Indices, sums: Array, threads: int = 1
) -> None:
    """Add moments of the residuals q [n, dims] to ``sums`` [blocks, 2 · bins, MOMENTS], interior bins first."""

    def add(part: slice) -> None:
        _add_residuals(q[part], edge[part], block[part], _bins_of(mesh), sums=sums)

    _share(add, block, threads)


def add_fractions(
    mesh: EvenMesh, fraction: Array, squared: Array, block: Indices, sums: Array, threads: int = 1
) -> None:
    """Add moments of φ [n, dims], weighted by 1 and by ``squared``, to ``sums`` [blocks, bins, 2, MOMENTS]."""

    def add(part: slice) -> None:
        _add_fractions(fraction[part], squared[part], block[part], mesh.LIMIT, width=mesh.width, sums=sums)

    _share(add, block, threads)


def add_weighted_residuals(
    mesh: GradedMesh, q: Array, edge: npt.NDArray[np.bool_], weights: Array, sums: Array
) -> None:
    """Add moments of residuals [n] with ``weights`` [n] to ``sums`` [2 · bins, MOMENTS]."""
    _add_weighted_residuals(q, edge, weights, _bins_of(mesh), sums=sums)


def add_weighted_fractions(mesh: EvenMesh, fraction: Array, weights: Array, sums: Array) -> None:
    """Add moments of φ [n] with two ``weights`` [2, n] to ``sums`` [bins, 2, MOMENTS]."""
    _add_weighted_fractions(fraction, weights, mesh.LIMIT, mesh.width, sums=sums)


def _bins_of(mesh: GradedMesh) -> Mesh:
    return mesh.centre, mesh.sigma, _BEGIN


def locate(mesh: GradedMesh, q: Array, edge: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int32], Array]:
    """Bin of each residual, with bins of edge levels after the others, and its position in the bin."""
    index, position = np.empty(q.shape, dtype=np.int32), np.empty(q.shape)
    _locate(q, edge, _bins_of(mesh), index=index, position=position)
    return index, position


def add_products(
    table: Array,
    row: npt.NDArray[np.int32],
    position: Array,
    fraction: Array,
    *,
    limits: tuple[float, float],
    block: Indices,
    sums: Array,
    threads: int = 1,
) -> None:
    """Add Σ T_m(φ) Σ_l T_l(z) table[row, l] to ``sums`` [blocks, bins of φ, orders m, nodes]; rows below 0 are skipped.

    ``table`` is [rows, MOMENTS, nodes], ``position`` is z, and φ is binned evenly between ``limits``.
    """

    def add(part: slice) -> None:
        _add_products(table, (row[part], position[part]), fraction[part], block[part], limits=limits, sums=sums)

    _share(add, block, threads)


def _share(add: Callable[[slice], None], block: Indices, threads: int) -> None:
    """Distribute the blocks over threads."""
    begins = np.flatnonzero(np.diff(block, prepend=-1))
    parts = min(threads, begins.size)
    if parts == 1:
        add(slice(None))
        return
    cuts = [*begins[np.arange(parts) * begins.size // parts].tolist(), len(block)]
    list(_pool(threads, os.getpid()).map(add, itertools.starmap(slice, itertools.pairwise(cuts))))


@functools.lru_cache(maxsize=1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """One pool per process: a fork inherits the parent's pool without its threads, and would wait for them forever."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dpstride-sums")


@fused
def _graded(q: float, centre: float, sigma: float, begin: Array) -> tuple[int, float]:
    offset = (q - centre) / sigma
    distance = abs(offset)
    side = int(distance) if distance < UNIFORM else UNIFORM + int(math.log(distance / UNIFORM) * _PER_LOG)
    side = min(side, SIDE - 1)
    position = 2.0 * (distance - begin[side]) / (begin[side + 1] - begin[side]) - 1.0
    return side + (SIDE if offset < 0.0 else 0), min(max(position, -1.0), 1.0)


@fused
def _locate(q: Array, edge: Any, mesh: Mesh, index: npt.NDArray[np.int32], position: Array) -> None:
    centre, sigma, begin = mesh
    for i in range(q.shape[0]):
        for d in range(q.shape[1]):
            found, z = _graded(q[i, d], centre, sigma, begin)
            index[i, d] = found + (2 * SIDE if edge[i, d] else 0)
            position[i, d] = z


@fused
def _add_residuals(q: Array, edge: Any, block: Indices, mesh: Mesh, sums: Array) -> None:
    centre, sigma, begin = mesh
    for i in range(q.shape[0]):
        of_block = sums[block[i]]
        for d in range(q.shape[1]):
            index, z = _graded(q[i, d], centre, sigma, begin)
            to = of_block[index + (2 * SIDE if edge[i, d] else 0)]
            previous, current = 1.0, z
            for order in range(MOMENTS):
                to[order] += previous
                previous, current = current, 2.0 * z * current - previous


@fused
def _add_fractions(fraction: Array, squared: Array, block: Indices, limit: float, width: float, sums: Array) -> None:
    for i in range(fraction.shape[0]):
        of_block = sums[block[i]]
        for d in range(fraction.shape[1]):
            place = (fraction[i, d] + limit) / width
            index = min(max(int(place), 0), sums.shape[1] - 1)
            z = min(max(2.0 * (place - index) - 1.0, -1.0), 1.0)
            to, weight = of_block[index], squared[i, d]
            previous, current = 1.0, z
            for order in range(MOMENTS):
                to[0, order] += previous
                to[1, order] += weight * previous
                previous, current = current, 2.0 * z * current - previous


@fused
def _add_weighted_residuals(q: Array, edge: Any, weights: Array, mesh: Mesh, sums: Array) -> None:
    centre, sigma, begin = mesh
    for i in range(q.size):
        index, z = _graded(q[i], centre, sigma, begin)
        to = sums[index + (2 * SIDE if edge[i] else 0)]
        previous, current = weights[i], z * weights[i]
        for order in range(MOMENTS):
            to[order] += previous
            previous, current = current, 2.0 * z * current - previous


@fused
def _add_weighted_fractions(fraction: Array, weights: Array, limit: float, width: float, sums: Array) -> None:
    for i in range(fraction.size):
        place = (fraction[i] + limit) / width
        index = min(max(int(place), 0), sums.shape[0] - 1)
        z = min(max(2.0 * (place - index) - 1.0, -1.0), 1.0)
        for kind in range(2):
            previous, current = weights[kind, i], z * weights[kind, i]
            for order in range(MOMENTS):
                sums[index, kind, order] += previous
                previous, current = current, 2.0 * z * current - previous


@fused
def _add_products(
    table: Array,
    place: tuple[npt.NDArray[np.int32], Array],
    fraction: Array,
    block: Indices,
    limits: tuple[float, float],
    sums: Array,
) -> None:
    row, position = place
    low, high = limits
    bins, orders, nodes = sums.shape[1:]
    per_bin = bins / (high - low)
    curve, x = np.empty(nodes), np.empty(MOMENTS)
    for i in range(row.shape[0]):
        of_block = sums[block[i]]
        for d in range(row.shape[1]):
            if row[i, d] < 0:
                continue
            z = position[i, d]
            x[0], x[1] = 1.0, z
            for order in range(2, MOMENTS):
                x[order] = 2.0 * z * x[order - 1] - x[order - 2]
            # Six orders at a time: reading and writing partial sums takes longer than the products.
            values = table[row[i, d]]
            for n in range(nodes):
                curve[n] = 0.0
            for first in range(0, MOMENTS, 6):
                v = values[first : first + 6]
                a, b, c, e, f, g = x[first], x[first + 1], x[first + 2], x[first + 3], x[first + 4], x[first + 5]
                for n in range(nodes):
                    curve[n] += a * v[0, n] + b * v[1, n] + c * v[2, n] + e * v[3, n] + f * v[4, n] + g * v[5, n]
            at = (fraction[i, d] - low) * per_bin
            index = min(int(at), bins - 1)
            w = 2.0 * (at - index) - 1.0
            to = of_block[index]
            previous, current = 1.0, w
            for order in range(orders):
                for n in range(nodes):
                    to[order, n] += previous * curve[n]
                previous, current = current, 2.0 * w * current - previous
