"""Stage 5. Moments of φ, on which every learned variance depends: means over all samples, from bins, and by block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..statistics import artefact
from ..statistics.artefact import BLOCK_NODES, Statistics
from ..statistics.bins import chebyshev_matrix

Array = npt.NDArray[np.float64]


def fraction_means(statistics: Statistics, t: int, delta: Array) -> tuple[Array, Array]:
    """E Σ exp(−φδ) and E Σ e² exp(−φδ) for each δ, from the bins of φ."""
    assert statistics.fraction_bins is not None
    bins, weights = statistics.fraction_bins.row(t)
    mesh = statistics.fraction_mesh(t)
    # A node is the start of its bin plus its position in it, so exp(−φδ) factorises: bins + nodes exponentials suffice.
    begin = bins * mesh.width - mesh.LIMIT
    inside = weights @ np.exp(-np.outer(mesh.points(np.zeros(1, dtype=np.int64))[0] + mesh.LIMIT, delta))
    sums = np.einsum("kd,kwd->wd", np.exp(-np.outer(begin, delta)), inside) / statistics.samples
    return sums[0], sums[1]


def fraction_blocks(statistics: Statistics, t: int, delta: Array) -> tuple[Array, Array]:
    """The same two for each block of samples, [blocks, δ]."""
    assert statistics.fraction_blocks is not None
    nodes = chebyshev_matrix(*artefact.fraction_range(statistics.process, t), BLOCK_NODES, delta)
    decay, weighted = np.exp(statistics.fraction_blocks[t] @ nodes.T).swapaxes(0, 1)
    return decay, weighted


def fraction_blocks_at(
    statistics: Statistics, t: npt.NDArray[np.int64], delta: Array, least_range: float = 0.0
) -> tuple[Array, Array]:
    """The same two with a separate t for every δ, [δ, blocks]."""
    assert statistics.fraction_blocks is not None
    limits = np.array([artefact.fraction_range(statistics.process, int(each)) for each in t]).reshape(-1, 2)
    limits[:, 1] = np.maximum(limits[:, 1], least_range)
    values = np.exp(block_values(statistics.fraction_blocks[t], limits, delta))
    return values[..., 0], values[..., 1]


def block_values(values: Array, limits: Array, at: Array) -> Array:
    """Values [rows, B, C, nodes] on Chebyshev nodes of ``limits`` [rows, 2], interpolated at ``at`` [rows]."""
    width = np.maximum(limits[:, 1] - limits[:, 0], 1e-12)
    matrix = chebyshev_matrix(0.0, 1.0, BLOCK_NODES, (at - limits[:, 0]) / width)
    return np.asarray(np.einsum("rbcj,rj->rbc", values, matrix))
