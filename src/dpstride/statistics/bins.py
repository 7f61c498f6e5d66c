"""Stage 3. Distributions kept as Chebyshev moments in bins, so that any smooth function can be averaged over them later.

Two later computations need a whole distribution, not a moment: the decoder's cost with any variance (the distribution of
residuals), and the cost of a learned variance for any s (the distribution of φ, weighted by 1 and by e²). A histogram
alone would err by the square of the bin width; with `MOMENTS` moments in each bin the average of an analytic function is
exact to about 1e-11, and a row of T costs is a small sum instead of T passes over full tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
MOMENTS = 12


def chebyshev_rule(count: int) -> tuple[Array, Array]:
    """Matrix [orders, nodes] from moments of T_0 … to weights at ``count`` Chebyshev nodes, and those nodes.

    The weights reproduce the moments, by discrete orthogonality.
    """
    orders = np.arange(count)
    nodes = np.cos(np.pi * (orders + 0.5) / count)
    return np.cos(np.outer(orders, np.arccos(nodes))) * np.where(orders == 0, 1.0, 2.0)[:, None] / count, nodes


_TO_NODES, _NODES = chebyshev_rule(MOMENTS)


@dataclass(frozen=True)
class GradedMesh:
    """Bins for residuals q: of width ``sigma`` around ``centre``, each a quarter wider than the last further away.

    −ln p of a level is smooth on the scale max(sigma, |q − centre|), where centre is the half-bin, so bins of width sigma
    near the centre and a quarter of the distance beyond suffice for every decoder variance of at least sigma².
    """

    centre: float
    sigma: float
    UNIFORM = 4
    GROWTH = 1.25
    SIDE = 104  # 4 + 100 bins reach 4 sigma · 1.25^100, about 2e10 sigma

    @property
    def bins(self) -> int:
        """Number of bins, both sides."""
        return 2 * self.SIDE

    @property
    def reach(self) -> float:
        """Largest distance from the centre that the bins cover."""
        return float(self.sigma * self.UNIFORM * self.GROWTH ** (self.SIDE - self.UNIFORM))

    def locate(self, q: Any) -> tuple[Any, Any]:
        """Bin of each element (int64 tensor) and its position in the bin, in [−1, 1]."""
        offset = (q - self.centre) / self.sigma
        distance = offset.abs()
        outer = self.UNIFORM + ((distance / self.UNIFORM).clamp(min=1.0).log() / np.log(self.GROWTH)).floor()
        side = distance.floor().where(distance < self.UNIFORM, outer).clamp(max=self.SIDE - 1)
        low = side.where(side < self.UNIFORM, self.UNIFORM * self.GROWTH ** (side - self.UNIFORM))
        width = (low * (self.GROWTH - 1.0)).where(side >= self.UNIFORM, 1.0)
        z = (2.0 * (distance - low) / width - 1.0).clamp(-1.0, 1.0)
        negative = offset < 0.0
        return (side + self.SIDE * negative).long(), z

    def points(self, bins: npt.NDArray[np.int64]) -> Array:
        """The values q of the Chebyshev nodes of ``bins``, [len(bins), MOMENTS]."""
        side = bins % self.SIDE
        low = np.where(side < self.UNIFORM, side, self.UNIFORM * self.GROWTH ** (side - float(self.UNIFORM)))
        width = np.where(side < self.UNIFORM, 1.0, low * (self.GROWTH - 1.0))
        distance = low[:, None] + 0.5 * (_NODES[None, :] + 1.0) * width[:, None]
        sign = np.where(bins >= self.SIDE, -1.0, 1.0)
        return self.centre + self.sigma * sign[:, None] * distance


@dataclass(frozen=True)
class EvenMesh:
    """Bins of equal ``width`` for fractions φ in [−LIMIT, LIMIT]."""

    width: float
    LIMIT = 32.0

    @property
    def bins(self) -> int:
        """Number of bins."""
        return int(2.0 * self.LIMIT / self.width)

    def locate(self, q: Any) -> tuple[Any, Any]:
        """Bin of each element (int64 tensor) and its position in the bin, in [−1, 1]."""
        position = (q + self.LIMIT) / self.width
        index = position.floor().clamp(0, self.bins - 1)
        return index.long(), (2.0 * (position - index) - 1.0).clamp(-1.0, 1.0)

    def points(self, bins: npt.NDArray[np.int64]) -> Array:
        """The values φ of the Chebyshev nodes of ``bins``, [len(bins), MOMENTS]."""
        return np.asarray((bins[:, None] + 0.5 * (_NODES[None, :] + 1.0)) * self.width - self.LIMIT)


def moments_of(index: Any, z: Any, weights: Any | None, size: int) -> Array:
    """Sums of T_0(z) … T_{MOMENTS-1}(z), each times ``weights``, by ``index``: [MOMENTS, size] from flat tensors."""
    import torch

    sums = z.new_zeros(MOMENTS, size)
    previous = torch.ones_like(z) if weights is None else weights
    current = z * previous
    twice = 2.0 * z
    for order in range(MOMENTS):
        sums[order].index_add_(0, index, previous)
        previous, current = current, twice * current - previous
    return np.asarray(sums.cpu().double().numpy())  # one transfer for all


@dataclass(frozen=True)
class BinnedRows:
    """The non-empty bins of every grid index with their moments: entries ``offsets[t] … offsets[t + 1]``."""

    offsets: npt.NDArray[np.int64]
    bins: npt.NDArray[np.int64]
    moments: Array  # [entries, ..., MOMENTS], sums over samples

    def row(self, t: int) -> tuple[npt.NDArray[np.int64], Array]:
        """Non-empty bins of grid index t and the weights of their Chebyshev nodes, [bins, ..., MOMENTS]."""
        entries = slice(int(self.offsets[t]), int(self.offsets[t + 1]))
        return self.bins[entries], to_node_weights(self.moments[entries])

    @classmethod
    def from_rows(cls, rows: list[tuple[npt.NDArray[np.int64], Array]]) -> BinnedRows:
        """Rows for grid indices 0 … T, in order."""
        return cls(
            offsets=np.concatenate([[0], np.cumsum([len(bins) for bins, _ in rows])]).astype(np.int64),
            bins=np.concatenate([bins for bins, _ in rows]).astype(np.int64),
            moments=np.concatenate([moments for _, moments in rows]),
        )


def to_node_weights(moments: Array) -> Array:
    """Weights w of the nodes such that Σ w h(node) is the sum of h over the elements, for smooth h."""
    return np.asarray(moments @ _TO_NODES)


def to_coefficients(values: Array) -> Array:
    """Coefficients of T_0 … from values at the nodes of bins, along the second-last axis: [..., MOMENTS, n]."""
    return np.asarray(_TO_NODES @ values)


# --- interpolation of a smooth function of one scalar between Chebyshev nodes -----------------------------------------


def chebyshev_nodes(low: float, high: float, count: int) -> Array:
    """Chebyshev points of the first kind on [low, high], ascending."""
    nodes = np.cos(np.pi * (np.arange(count)[::-1] + 0.5) / count)
    return np.asarray(low + 0.5 * (high - low) * (nodes + 1.0))


def chebyshev_matrix(low: float, high: float, count: int, at: npt.ArrayLike) -> Array:
    """Matrix [len(at), count] from values at `chebyshev_nodes` to values at the points ``at``."""
    z = (
        np.clip(2.0 * (np.atleast_1d(at) - low) / (high - low) - 1.0, -1.0, 1.0)
        if high > low
        else np.zeros(np.size(at))
    )
    orders = np.arange(count)
    nodes = np.cos(np.pi * (orders[::-1] + 0.5) / count)
    to_coefficients = np.cos(np.outer(orders, np.arccos(nodes))) * np.where(orders == 0, 1.0, 2.0)[:, None] / count
    return np.asarray(np.polynomial.chebyshev.chebvander(z, count - 1) @ to_coefficients)
