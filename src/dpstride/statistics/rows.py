"""Stage 3. Pieces of statistics → whole rows → `Statistics`.

A row is complete when the pieces of all its ranges of samples are added; they are combined in the order of the samples,
whatever the order in which they arrive.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..denoiser import Denoiser
from ..options import LEARNED_RANGE
from ..runs.behaviour import Behaviour
from ..runs.storage import Arrays
from . import artefact
from .artefact import Statistics
from .bins import MOMENTS, BinnedRows
from .data import Samples
from .units import Unit, sample_ranges

Array = npt.NDArray[np.float64]
Binned = tuple[npt.NDArray[np.int64], Array]
_SINGLE = ("squared_error", "decoder_upper", "fraction_sum")
_BLOCKS = ("decoder_blocks", "fraction_blocks", "learned_decoder_blocks")


class Rows:
    """Arrays for every grid index, of all samples of ``data`` but the ``skipped`` ones, filled piece by piece."""

    def __init__(self, denoiser: Denoiser, data: Samples, identity: dict[str, Any], skipped: tuple[int, ...]) -> None:
        self.process, self.data, self.identity, self.skipped = denoiser.process, data, identity, skipped
        kept = np.setdiff1d(np.arange(len(data)), skipped)
        if kept.size == 0:
            raise ValueError("The network returned NaN or infinity for every sample, so no sample is left.")
        self.samples = len(kept)
        self.ranges = sample_ranges(len(data))
        self.block = artefact.block_of_sample(self.samples, skipped)
        # Columns of samples, and of blocks, that belong to each range.
        limits = np.searchsorted(kept, [0, *(samples.stop for samples in self.ranges)]).tolist()
        self.columns = [slice(first, last) for first, last in itertools.pairwise(limits)]
        self.block_columns = [
            slice(int(self.block[columns][0]), int(self.block[columns][-1]) + 1)
            if self.block[columns].size
            else columns
            for columns in self.columns
        ]
        discretised, learned = data.data_range.levels is not None, denoiser.variance == LEARNED_RANGE
        predicted = data.predicted
        shapes = artefact.array_shapes(
            self.process, self.samples, discretised, learned, skipped=skipped, counted=predicted is not None
        )
        self.plain: dict[str, Array] = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.plain["data_square"] = _squares(data)[kept]
        if predicted is not None:
            self.plain["predicted"] = predicted[kept]
        self.deviation = _deviation(data, kept)
        self.binned: dict[str, dict[int, Binned]] = {
            name: {} for name, wanted in (("residual", discretised), ("fraction", learned)) if wanted
        }
        self.parts: dict[int, dict[int, Arrays]] = {}  # binned pieces of incomplete rows, by t and range
        # Ranges whose samples are all skipped are complete from the start.
        self.present = np.zeros((len(self.ranges), self.process.T + 1), dtype=bool)
        self.present[[columns.start == columns.stop for columns in self.columns]] = True

    @property
    def evaluated(self) -> npt.NDArray[np.bool_]:
        """Grid indices whose rows are complete."""
        return np.asarray(self.present.all(axis=0) & (np.arange(self.process.T + 1) > 0))

    def missing(self, wanted: npt.NDArray[np.int64]) -> list[list[int]]:
        """For each range, the wanted grid indices whose piece is missing."""
        return [wanted[~present[wanted]].tolist() for present in self.present]

    def add(self, unit: Unit, arrays: Arrays) -> bool:
        """Add the pieces of a unit; False if it had other samples than these rows, or no pieces."""
        samples = self.ranges[unit.range]
        if "nonfinite" in arrays or unit.skipped != tuple(n for n in self.skipped if n in samples):
            return False
        for t in unit.steps:
            for name in _SINGLE:
                if name in self.plain:
                    self.plain[name][t, self.columns[unit.range]] = arrays[f"{t}/{name}"]
            for name in _BLOCKS:
                if name in self.plain:
                    self.plain[name][t, self.block_columns[unit.range]] = arrays[f"{t}/{name}"]
            part = {name: arrays[f"{t}/{name}"] for b in self.binned for name in (f"{b}_bins", f"{b}_moments")}
            self.parts.setdefault(t, {})[unit.range] = part
            self.present[unit.range, t] = True
            if self.present[:, t].all():
                self._finish(t)
        return True

    def _finish(self, t: int) -> None:
        parts = self.parts.pop(t)
        for name, rows in self.binned.items():
            rows[t] = _sum_of_bins(
                [(parts[number][f"{name}_bins"], parts[number][f"{name}_moments"]) for number in sorted(parts)]
            )
        if "learned_decoder" in self.plain:
            sums = self.plain["learned_decoder_blocks"][t] * np.bincount(self.block)[:, None]
            self.plain["learned_decoder"][t] = sums.sum(axis=0) / self.samples

    def take_over(self, found: Statistics) -> None:
        """Reuse the evaluated rows of finished statistics of the same work, if they are of the same samples."""
        if found.skipped != self.skipped:
            return
        evaluated = np.flatnonzero(found.evaluated)
        for name, array in self.plain.items():
            if name not in ("data_square", "predicted"):
                array[evaluated] = getattr(found, name)[evaluated]
        for name, rows in self.binned.items():
            binned: BinnedRows = getattr(found, f"{name}_bins")
            for t in evaluated.tolist():
                entries = slice(int(binned.offsets[t]), int(binned.offsets[t + 1]))
                rows[t] = binned.bins[entries], binned.moments[entries]
        self.present[:, evaluated] = True

    def statistics(self) -> Statistics:
        """Return the statistics so far; rows that are not `evaluated` are zero."""
        data = self.identity["data"] | {"samples": self.samples, "shape": list(self.data.shape)}
        if self.deviation is not None:
            data |= {"deviation": self.deviation}
        empty = {"residual": np.zeros((0, MOMENTS)), "fraction": np.zeros((0, 2, MOMENTS))}
        none = np.zeros(0, dtype=np.int64)
        binned = {
            f"{name}_bins": BinnedRows.from_rows([rows.get(t, (none, empty[name])) for t in range(self.process.T + 1)])
            for name, rows in self.binned.items()
        }
        return Statistics(
            process=self.process,
            dims=float(self.plain["predicted"].mean()) if "predicted" in self.plain else int(np.prod(self.data.shape)),
            data_range=self.data.data_range,
            seed=self.identity["seed"],
            model=self.identity["model"],
            data=data | ({"skipped": list(self.skipped)} if self.skipped else {}),
            evaluated=self.evaluated,
            behaviour=Behaviour.from_dict(self.identity["behaviour"]),
            **binned,  # type: ignore[arg-type]
            **self.plain,  # type: ignore[arg-type]
        )


def _sum_of_bins(parts: list[Binned]) -> Binned:
    """The sum of sparse rows, in the order given."""
    if len(parts) == 1:
        return parts[0]
    bins = np.unique(np.concatenate([bins for bins, _ in parts]))
    total = np.zeros((len(bins), *parts[0][1].shape[1:]))
    for part, moments in parts:
        total[np.searchsorted(bins, part)] += moments
    return bins, total


def _squares(data: Samples) -> Array:
    """Σ x_0² of each sample."""
    batches = (data.batch(first, first + 256, torch.device("cpu"), torch.float64) for first in range(0, len(data), 256))
    squares = [batch.counted(batch.x).flatten(1).square().sum(1) for batch in batches]
    return np.asarray(torch.cat(squares).numpy())


def _deviation(data: Samples, kept: npt.NDArray[np.int64]) -> float | None:
    """Standard deviation per dimension, the root of the mean over dimensions of their variances; None for one sample.

    If the model is given some elements, only the others count, and a dimension's variance is weighted by its degrees of
    freedom.
    """
    if kept.size < 2:
        return None
    number, mean, squares = (torch.zeros(data.shape, dtype=torch.float64) for _ in range(3))
    for index in range(0, kept.size, 256):
        part = data.take(kept[index : index + 256].tolist())
        batch = part.batch(0, len(part), torch.device("cpu"), torch.float64)
        # Chan's update: deviations from the running mean, so that data far from zero lose no digits.
        more = batch.counted(torch.ones_like(batch.x)).sum(0)
        here, total = batch.counted(batch.x).sum(0) / more.clamp(min=1.0), (number + more).clamp(min=1.0)
        shift = here - mean
        mean = mean + shift * (more / total)
        squares = squares + batch.counted(batch.x - here).square().sum(0) + shift.square() * (number * more / total)
        number = number + more
    freedom = float((number - 1.0).clamp(min=0.0).mean())
    return math.sqrt(float(squares.mean()) / freedom) if freedom else None
