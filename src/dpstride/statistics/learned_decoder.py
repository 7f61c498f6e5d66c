"""Stage 3. The decoder's cost with learned variance, summed over all elements of a row, without evaluating each of them.

With ln σ² = ln g_t² − (1 − φ) δ per element, the cost is needed at about fifty δ, and −ln p at every element and δ takes as
long as the network. But −ln p(q, σ) is a smooth function of two numbers. So, for each t:

1. it is evaluated once on a grid: the Chebyshev nodes of a few dozen bins of q, times nodes in y = (1 − φ) δ;
2. the curve of an element over the nodes in y is interpolated in its bin of q, and added to its bin of φ, times Chebyshev
   polynomials of φ: products and sums, no special functions;
3. once all samples are added, the bins of φ become nodes with weights, and the curves are evaluated at y = (1 − node) δ.

The sums agree with direct evaluation to 2e-9 or 2e-12 nats per element, usually to 1e-11. Elements with φ outside `FRACTIONS`
or with q beyond all bins, and rows with too few elements for the grid to pay off, are evaluated directly.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .bins import GradedMesh, chebyshev_matrix, chebyshev_nodes, chebyshev_rule, to_coefficients
from .decoder import decoder_nats

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
FRACTIONS = (-0.25, 1.25)  # φ is trained towards [0, 1] but not confined to it
ORDERS = 8  # Chebyshev polynomials of φ in each bin, and
BIN_WIDTH = 0.4  # the bin's width in y: a quarter of the strip ±π/2 in which −ln p is analytic, so 15^−ORDERS
DIGITS = 18.0  # −ln of the interpolation error that the nodes in y may leave, relative to a curve's largest value
DIRECT = 400_000  # evaluations below which a grid does not pay off


class LearnedDecoder:
    """Sums for one t: Σ −ln p(x_0 given x_t) of the elements of each block, at each of ``delta``."""

    def __init__(self, delta: Array, half_bin: float, g_t: float, blocks: int, elements: int) -> None:
        self.delta, self.half_bin, self.g_t = delta, half_bin, g_t
        self.direct = np.zeros((blocks, delta.size))
        self.most = float(delta.max(initial=0.0))
        self.gridded = elements * delta.size > DIRECT and self.most > 0.0
        if not self.gridded:
            return
        low, high = ((1.0 - fraction) * self.most for fraction in reversed(FRACTIONS))
        count = math.ceil(DIGITS / math.asinh(math.pi / (high - low)))
        self.nodes = -(-count // 8) * 8
        self.sigma = g_t * np.exp(-0.5 * chebyshev_nodes(low, high, self.nodes))
        self.mesh = GradedMesh(half_bin, float(self.sigma.min()))
        self.row_of_bin = np.full(2 * self.mesh.bins, -1, dtype=np.int32)
        self.table = np.zeros((0, 0, 0))
        self.bins = (
            -(-math.ceil((high - low) / BIN_WIDTH) // 4) * 4
        )  # so that neighbouring t share the matrix of `_reading`
        self.sums = np.zeros((blocks, self.bins, ORDERS, self.nodes))

    def sums_of(self, q: Tensor, edge: Tensor, fraction: Tensor, block: Indices) -> tuple[Array | None, Array]:
        """Return what these elements [n, dims] add to `sums` and to `direct`, by blocks counted from 0."""
        count = int(block[-1]) + 1
        if not self.gridded or q.device.type != "cpu" or q.dtype != torch.float64:
            return None, self._directly(q, edge, fraction, block, count=count)
        from . import kernels

        low, high = FRACTIONS
        inside = (fraction >= low) & (fraction <= high) & (q.abs() < self.mesh.reach)
        row, position = kernels.locate(self.mesh, q.numpy(), edge.numpy())
        row = np.where(inside.numpy(), self._rows(row, inside.numpy()), np.int32(-1))
        sums = np.zeros((count, *self.sums.shape[1:]))
        threads = torch.get_num_threads()
        kernels.add_products(
            self.table,
            row,
            position,
            fraction=fraction.numpy(),
            limits=FRACTIONS,
            block=block,
            sums=sums,
            threads=threads,
        )
        direct = np.zeros((count, self.delta.size))
        if not bool(inside.all()):
            rest = ~inside
            of_block = block[rest.nonzero()[:, 0].numpy()]
            direct += self._directly(
                q[rest][:, None], edge[rest][:, None], fraction[rest][:, None], of_block, count=count
            )
        return sums, direct

    def add(self, blocks: slice, sums: Array | None, direct: Array) -> None:
        """Add the result of `sums_of`."""
        self.direct[blocks] += direct
        if sums is not None:
            self.sums[blocks] += sums

    def totals(self) -> Array:
        """The sums of every block, [blocks, len(delta)]."""
        if not self.gridded:
            return self.direct
        reading = _reading(self.bins, self.nodes, tuple((self.delta / self.most).round(12).tolist()))
        return np.asarray(self.direct + self.sums.reshape(len(self.sums), -1) @ reading)

    def _directly(self, q: Tensor, edge: Tensor, fraction: Tensor, block: Indices, count: int) -> Array:
        """Evaluate every element [n, dims] at every δ, in groups of δ that fit into memory."""
        sums = np.zeros((count, self.delta.size))
        shrink = ((fraction - 1.0) / 2.0)[..., None]
        at_once = max(1, DIRECT // max(1, q.numel()))
        for first in range(0, self.delta.size, at_once):
            delta = torch.from_numpy(self.delta[first : first + at_once]).to(q)
            sigma = self.g_t * (shrink * delta).exp()
            nats = decoder_nats(q[..., None], edge[..., None], self.half_bin, sigma).sum(1)
            np.add.at(sums[:, first : first + at_once], block, nats.detach().cpu().double().numpy())
        return sums

    def _rows(self, index: npt.NDArray[np.int32], inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Rows of the table for these bins of q; bins that are used for the first time are evaluated."""
        used = np.bincount(index[inside], minlength=self.row_of_bin.size) > 0
        missing = np.flatnonzero(used & (self.row_of_bin < 0))
        if missing.size:
            edge = missing >= self.mesh.bins
            points = self.mesh.points(missing % self.mesh.bins)[:, :, None]
            costs = np.empty((*points.shape[:2], self.nodes))
            for kind in (False, True):
                costs[edge == kind] = decoder_nats(points[edge == kind], kind, self.half_bin, self.sigma)
            rows = to_coefficients(costs)
            self.row_of_bin[missing] = np.arange(missing.size) + len(self.table)
            self.table = np.concatenate([self.table, rows]) if len(self.table) else rows
        return np.asarray(self.row_of_bin[index])


@functools.lru_cache(maxsize=8)
def _reading(bins: int, nodes: int, delta: tuple[float, ...]) -> Array:
    """Matrix from sums [bins · ORDERS · nodes] to costs at each δ, given in units of the largest."""
    low, high = FRACTIONS
    weights, at = chebyshev_rule(ORDERS)  # [ORDERS, ORDERS] from polynomials to nodes, and the nodes in [−1, 1]
    fraction = low + (high - low) * (np.arange(bins)[:, None] + 0.5 * (at + 1.0)) / bins
    y = (1.0 - fraction)[:, :, None] * np.array(delta)
    curves = chebyshev_matrix(1.0 - high, 1.0 - low, nodes, y.ravel()).reshape(bins, ORDERS, len(delta), nodes)
    return np.ascontiguousarray(np.einsum("mk,bkjn->bmnj", weights, curves, optimize=True)).reshape(-1, len(delta))
