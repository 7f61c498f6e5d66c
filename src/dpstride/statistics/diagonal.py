"""Stage 3. E e² of every dimension: what one reverse variance per dimension and step is fitted from.

The noises are those of `estimate` with the same seed, so the mean over dimensions is its `mean_squared_error`. Samples are
kept as two halves, by which the fit judges itself (see `costs.diagonal`). Memory: 16 (T + 1) dims bytes, two float64 tables;
12.5 MB for T = 1000 and 784 dimensions, 196 MB for 12,288.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess
from .artefact import DataRange
from .coordinate import noise_coordinate

if TYPE_CHECKING:
    from ..denoiser import Denoiser

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DiagonalErrors:
    """Mean e² per dimension at every grid index of each half of the samples: ``halves`` [2, T+1, *shape]; row 0 is unused."""

    process: ForwardProcess
    halves: Array
    counts: tuple[int, int]
    data_range: DataRange
    seed: int

    @property
    def mean(self) -> Array:
        """E e² over all samples, [T+1, *shape]."""
        first, second = self.counts
        return np.asarray((first * self.halves[0] + second * self.halves[1]) / (first + second))

    @property
    def samples(self) -> int:
        """Number of data samples."""
        return sum(self.counts)


def estimate_diagonal(
    denoiser: Denoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    data_range: object = "uint8",
    steps: Iterable[int] | None = None,
    progress: bool = True,
) -> DiagonalErrors:
    """Mean e² per dimension; see `estimate` for the arguments.

    With ``steps`` (the first and the last among them) the network runs there only, and the logarithm is interpolated between
    them, linearly in the coordinate of `statistics.coordinate`.
    """
    from tqdm import tqdm

    from .data import Samples
    from .noise import check_seed, standard_normal

    check_seed(seed)
    process = denoiser.process
    gathered = Samples.read(data, samples, data_range)
    if len(gathered) < 2:
        raise ValueError(
            "Variances per dimension are judged by halves of the samples, so at least 2 are needed, not 1."
        )
    wanted = np.arange(1, process.T + 1) if steps is None else np.unique(np.asarray(list(steps), dtype=np.int64))
    if wanted.size == 0 or wanted[0] != 1 or wanted[-1] != process.T:
        raise ValueError(f"steps must hold 1 and T = {process.T}, between which others are interpolated.")
    half = (len(gathered) + 1) // 2
    counts = (half, len(gathered) - half)
    halves = np.zeros((2, process.T + 1, *gathered.shape))
    square = 0.0
    with tqdm(total=wanted.size * len(gathered), desc="diagonal", disable=None if progress else True) as bar:
        for which, (start, stop) in enumerate(((0, half), (half, len(gathered)))):
            for first in range(start, stop, batch_size):
                last = min(first + batch_size, stop)
                batch = gathered.batch(first, last, denoiser.device, denoiser.algebra_dtype)
                square += float(batch.x.square().sum())
                for t in wanted.tolist():
                    noise = standard_normal(
                        seed, "forward", int(process.origin[t]), first, last - first, gathered.shape
                    )
                    x_t = process.f[t] * batch.x + process.g[t] * noise.to(batch.x)
                    e = batch.x - denoiser(x_t, t, batch.conditioning).x0_hat
                    halves[which, t] += e.square().sum(0).double().cpu().numpy()
                    bar.update(last - first)
            halves[which] /= counts[which]
    if wanted.size < process.T:
        _fill(halves, wanted, noise_coordinate(process, square / len(gathered), denoiser.predicts))
    return DiagonalErrors(process, halves, counts, gathered.data_range, int(seed))


def _fill(halves: Array, known: npt.NDArray[np.int64], u: Array) -> None:
    """Rows between the known ones, in place."""
    missing = np.setdiff1d(np.arange(1, u.size), known)
    right = np.searchsorted(known, missing)
    a, b = known[right - 1], known[right]
    w = ((u[missing] - u[a]) / (u[b] - u[a])).reshape(-1, *[1] * (halves.ndim - 2))
    logarithm = np.log(np.maximum(halves, 1e-30))
    halves[:, missing] = np.exp((1.0 - w) * logarithm[:, a] + w * logarithm[:, b])
