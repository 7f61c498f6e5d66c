"""Execution of work, apart from what it computes: arguments that every stage with network calls passes on together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from .numbers import check_batch_size, check_seed


@dataclass(frozen=True)
class Execution:
    """Settings of network passes; only ``seed`` and ``skip_nonfinite`` can change a result.

    Attributes:
        seed: random seed of the noise.
        batch_size: samples per network pass.
        progress: show a progress bar (only ever on a terminal).
        checkpoint: file for the result; finished work is kept next to it until then.
        skip_nonfinite: skip samples for which the network returns NaN or infinity, instead of raising an error.
    """

    seed: int = 0
    batch_size: int = 64
    progress: bool = True
    checkpoint: str | os.PathLike[str] | None = None
    skip_nonfinite: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "batch_size", check_batch_size(self.batch_size))

    @property
    def path(self) -> Path | None:
        """The checkpoint as a path."""
        return None if self.checkpoint is None else Path(self.checkpoint)


class Work(TypedDict, total=False):
    """Keywords of long work, which a function passes on to its `Execution`."""

    batch_size: int
    progress: bool
    checkpoint: str | os.PathLike[str] | None


class WorkOnData(Work, total=False):
    """The same for work in which samples can be skipped."""

    skip_nonfinite: bool
