"""Stage 3. The statistics of a teacher's trajectories, and their file; `trajectory` defines the numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..process import ARRAYS, ForwardProcess
from ..runs.artefacts import Artefact
from ..runs.behaviour import Behaviour
from ..runs.storage import Arrays
from .artefact import StatisticsFileError

Array = npt.NDArray[np.float64]
KIND = Artefact("dpstride-trajectory", 1, "trajectory", "follow the teacher again", error=StatisticsFileError)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Mean squared deviations of single steps from a teacher's trajectories, summed over dims; see the module."""

    process: ForwardProcess  # the kept grid
    dims: int
    samples: int
    seed: int
    model: dict[str, Any]  # Denoiser.describe()
    teacher: str  # fingerprint of the process whose every step the teacher took
    deviation: Array  # [M+1, M+1], 0 for s >= t
    end_variance: float  # of the teacher's end points: mean over dims of the variance over samples
    coarse: npt.NDArray[np.int64]  # [m+1] indices of the kept grid on which `second` is tabulated, including 0 and M
    second: Array  # [m+1, m+1, m+1], 0 unless r > t > s > 0
    levels: npt.NDArray[np.int64]  # [J] indices of the kept grid at which jumps were followed to the end, none at 0
    amplification: Array  # [J] E |error at the end|² / E |error at the level|² of those jumps
    probes: int  # samples behind `amplification`
    conditioning: str | None = None  # fingerprint
    version: str = field(default=__version__)
    shape: tuple[int, ...] | None = None  # of one sample; files of version 0.1 do not record it
    behaviour: Behaviour | None = None  # by which `estimate_trajectory` recognises the model

    @property
    def coarse_process(self) -> ForwardProcess:
        """The grid of `second`."""
        return self.process.subset(self.coarse)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` (safetensors with JSON metadata), atomically."""
        tensors: Arrays = {f"process.{name}": array for name, array in self.process.arrays.items()}
        tensors |= {name: getattr(self, name) for name in _TABLES}
        metadata = {name: getattr(self, name) for name in _FACTS}
        if self.behaviour is not None:
            metadata["behaviour"] = self.behaviour.to_dict()
        if self.shape is not None:
            metadata["shape"] = self.shape
        metadata["process"] = self.process.facts
        KIND.write(Path(path), tensors, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Read what `save` wrote; a damaged or foreign file raises `StatisticsFileError`."""
        with KIND.read(Path(path)) as (tensors, metadata):
            parts: dict[str, Any] = {name: tensors[f"process.{name}"] for name in ARRAYS}
            fields: dict[str, Any] = {name: tensors[name] for name in _TABLES}
            fields |= {name: metadata[name] for name in _FACTS}
            if "behaviour" in metadata:
                fields["behaviour"] = Behaviour.from_dict(metadata["behaviour"])
            if "shape" in metadata:
                fields["shape"] = tuple(int(n) for n in metadata["shape"])
            trajectory = cls(process=ForwardProcess(**parts, **metadata["process"]), **fields)
            trajectory.check()
        return trajectory

    def check(self) -> None:
        """Raise unless the parts fit together; only a damaged file's do not."""
        size, coarse = self.process.T + 1, self.coarse.size
        if self.deviation.shape != (size, size) or self.second.shape != (coarse,) * 3:
            raise ValueError(
                f"tables of shape {self.deviation.shape} and {self.second.shape} on {size} and {coarse} points"
            )
        for table in (self.deviation, self.second):
            if table.dtype != np.float64 or not np.isfinite(table).all() or (table < 0.0).any():
                raise ValueError("deviations must be finite squares in float64")
        rises = self.coarse.dtype == np.int64 and (np.diff(self.coarse) > 0).all()
        if not rises or self.coarse[0] != 0 or self.coarse[-1] != self.process.T:
            raise ValueError("the coarse grid must rise from 0 to the end of the kept grid")
        if self.levels.shape != self.amplification.shape or not (np.diff(self.levels) > 0).all():
            raise ValueError("levels must rise, with one amplification each")
        if self.levels.size and not (
            self.levels[0] > 0 and self.levels[-1] < size and (self.amplification >= 0.0).all()
        ):
            raise ValueError("levels must lie inside the grid, and amplifications must not be negative")
        if not (isinstance(self.dims, int) and self.dims >= 1 and isinstance(self.end_variance, float)):
            raise ValueError("dims and the variance of end points must be numbers")


_TABLES = ("deviation", "coarse", "second", "levels", "amplification")
_FACTS = ("dims", "samples", "seed", "model", "teacher", "end_variance", "probes", "conditioning", "version")
