"""Stage 3. `MaskedStatistics`: c_t of every sample at every count, saved and loaded as safetensors."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..reading.text import printable
from ..runs.artefacts import Artefact
from ..runs.storage import Arrays
from ..statistics.artefact import StatisticsFileError
from .process import MaskedProcess, scale_counts

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
# Version 1: every count had masks of its own.
KIND = Artefact("dpstride-masked-statistics", 2, "statistics", "estimate again", error=StatisticsFileError)
MOST_NATS, MOST_TOKENS = 1e100, 1 << 31  # limits for a sample in a file: more would overflow sums


@dataclass(frozen=True, eq=False)
class MaskedStatistics:
    """Cost of masked tokens at every count, per sample: the result of one network pass per (count, batch).

    Attributes:
        process: the grid of counts.
        nats: [T + 1, N], the mean −ln p of a sample's masked tokens at each grid index; row 0 is 0.
        sizes: [N], number of generated tokens of each sample; in samples of other sizes than the process's length the same
            share is masked, rounded half up.
        sequence: [N], the sequence that a sample belongs to; standard errors treat sequences as independent.
        identity: model, data, seed and behaviour, by which the work is recognised.
        evaluated: the counts at which the network ran, if others are interpolated (`filled`); None if it ran at all.
    """

    process: MaskedProcess
    nats: Array
    sizes: Integers
    sequence: Integers
    identity: dict[str, Any] = field(default_factory=dict)
    evaluated: Integers | None = None

    def __repr__(self) -> str:
        name = printable(str(self.model.get("name")), 60)
        return f"<MaskedStatistics of {name} on {self.samples} samples, {self.process.T} counts up to {self.process.length}>"

    @property
    def samples(self) -> int:
        """Number of samples."""
        return int(self.nats.shape[1])

    @property
    def model(self) -> dict[str, Any]:
        """`MaskedDenoiser.describe()` of the model."""
        return dict(self.identity.get("model", {}))

    @property
    def equal(self) -> bool:
        """True if every sample has as many tokens as the process."""
        return bool((self.sizes == self.process.length).all())

    @property
    def mean_nats(self) -> Array:
        """c_t at every grid index [T + 1]: nats per masked token, the mean over all masked tokens of all samples."""
        masked = self.masked_counts()
        totals = (masked * self.nats).sum(axis=1)
        return np.asarray(totals / np.maximum(masked.sum(axis=1), 1))

    def masked_counts(self, indices: Any = slice(None)) -> Integers:
        """Number of masked tokens of every sample at some grid indices [T + 1, N]."""
        return scale_counts(self.process.counts[indices][:, None], self.process.length, self.sizes)

    def filled(self) -> MaskedStatistics:
        """Statistics of every count: each sample's c_t, interpolated linearly between the existing counts.

        Below the first count, the line from it to one at least twice as large (or the last) is extrapolated, but not below 0.
        """
        process, counts = MaskedProcess(self.process.length), self.process.counts
        if self.process.T == process.T:
            return self
        nats = np.stack([np.interp(process.counts, counts[1:], row[1:]) for row in self.nats.T], axis=1)
        first, second = counts[1], counts[min(np.searchsorted(counts, 2 * counts[1]), self.process.T)]
        slope = (nats[second] - nats[first]) / max(second - first, 1)
        below = nats[first] - (first - process.counts[:first, None]) * slope
        nats[:first] = np.where(below.mean(axis=1, keepdims=True) < 0.0, 0.0, below)
        nats[0] = 0.0
        return replace(self, process=process, nats=nats, evaluated=counts[1:])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` (safetensors with JSON metadata), atomically; only evaluated counts can be saved."""
        if self.evaluated is not None:
            raise ValueError(
                "Only evaluated counts can be saved, but these statistics are interpolated. Save those of estimate_masked, or "
                "give a checkpoint to estimate_masked_adaptively."
            )
        arrays: Arrays = {
            "counts": self.process.counts,
            "nats": self.nats,
            "sizes": self.sizes,
            "sequence": self.sequence,
        }
        record = {"length": self.process.length, "identity": self.identity, "package_version": __version__}
        KIND.write(Path(path), arrays, record)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MaskedStatistics:
        """Read a file written by `save`; a truncated, changed, foreign or newer file raises `StatisticsFileError`."""
        with KIND.read(Path(path)) as (arrays, record):
            return _from_arrays(arrays, record)


def _from_arrays(arrays: Arrays, metadata: dict[str, Any]) -> MaskedStatistics:
    process = MaskedProcess(metadata["length"], arrays["counts"].tolist())
    nats, sizes, sequence = arrays["nats"], arrays["sizes"], arrays["sequence"]
    N = len(sizes)
    if nats.shape != (process.T + 1, N) or sequence.shape != (N,) or sizes.ndim != 1 or N == 0:
        raise ValueError("its arrays have inconsistent shapes")
    if nats.dtype != np.float64 or not np.isfinite(nats).all() or nats.min() < 0.0 or nats.max() > MOST_NATS:
        raise ValueError(f"costs must be finite and not negative, and at most {MOST_NATS:g} nats")
    if {sizes.dtype.kind, sequence.dtype.kind} != {"i"} or sizes.min() < 1 or sizes.max() > MOST_TOKENS:
        raise ValueError(f"sizes must be whole numbers from 1 to {MOST_TOKENS:,}")
    if not isinstance(metadata["identity"], dict) or not isinstance(metadata["identity"].get("model", {}), dict):
        raise ValueError("its identity must be an object")
    return MaskedStatistics(
        process, nats, sizes.astype(np.int64), sequence.astype(np.int64), identity=metadata["identity"]
    )
