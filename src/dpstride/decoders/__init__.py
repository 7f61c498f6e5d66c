"""Stage 5. Decoders: the variance σ_0²(t) of the last step t → 0, one file each.

L(t, 0) = −E ln p(x_0 given x_t), where p is a Gaussian with mean x̂_0. Published figures differ here more than anywhere, so
every choice has a name. A file of that name, listed in `options.DECODERS`, defines ``DECODER``; nothing else knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from ..fitted import Fit, Fitted
from ..options import Cdf
from ..process import ForwardProcess
from ..statistics.artefact import Statistics

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LearnedDecoder:
    """A decoder that uses the network's predicted variance, if the reverse variance is learned.

    Attributes:
        row: returns the cost for every second step t2 > t1, from statistics and t1.
        units: returns the cost of each block of samples, from statistics, t1, t2 and the blocks' Σ φ.
        value: returns one variance per element of φ, from process, t1, σ_0² without φ, and φ.
    """

    row: Callable[[Statistics, int, Cdf], Array]
    units: Callable[[Statistics, int, int, Array], Array]
    value: Callable[[ForwardProcess, int, float, Any], Any]


@dataclass(frozen=True)
class DecoderVariance:
    """Record of one decoder.

    Attributes:
        value: returns σ_0² from process, t, second step t2 (None for a path of one step) and fitted numbers.
        is_upper: true at t if σ_0² is g_t², whose cost statistics store for every sample.
        couples: why the last two steps of a path have a joint cost, as a sentence with its remedy; empty if they have not.
        row: returns the cost for every second step t2 > t1, if it couples two steps.
        learned: its form with a learned variance, if different.
        fit: numbers that are fitted for it, if any.
        check: raises ValueError for a process on which it is not defined.
    """

    value: Callable[[ForwardProcess, int, int | None, Fitted], float]
    is_upper: Callable[[ForwardProcess, int], bool] = lambda process, t: False
    couples: str = ""
    row: Callable[[Statistics, int, Cdf], Array] | None = None
    learned: LearnedDecoder | None = None
    fit: Fit | None = None
    check: Callable[[ForwardProcess], None] = lambda process: None

    @property
    def least_budget(self) -> int:
        """The fewest steps of a path for which it is defined."""
        return 2 if self.couples else 1

    def with_learned(self, learned: bool) -> LearnedDecoder | None:
        """The record for a ``learned`` reverse variance; None if it makes no difference."""
        return self.learned if learned else None

    def unread(self, process: ForwardProcess, learned: bool) -> tuple[str, ...]:
        """Fields of statistics that it does not read."""
        blocks = () if self.with_learned(learned) else ("learned_decoder", "learned_decoder_blocks")
        upper = all(self.is_upper(process, t) for t in range(1, process.T + 1))
        return (*blocks, "residual_bins", "decoder_blocks") if upper else blocks


def find(name: str) -> DecoderVariance:
    """The decoder of that name."""
    found: DecoderVariance = import_module(f"{__name__}.{name}").DECODER
    return found
