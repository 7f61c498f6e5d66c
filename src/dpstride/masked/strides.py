"""Stage 4. Hand-made and published unmasking schedules to compare the best ones with, one record per rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..runs.numbers import whole_number
from .schedule import BinomialSchedule, MaskedSchedule
from .statistics import MaskedStatistics


def even_unmasking(length: int, budget: int) -> MaskedSchedule:
    """The same number of tokens in every round, up to one: ``length`` · (K − i)/K are masked after round i, rounded half up."""
    _check(length, budget)
    return _falling(length, (np.arange(budget, -1, -1) * length) / budget, EVEN)


def cosine_unmasking(length: int, budget: int) -> MaskedSchedule:
    """``length`` · cos(π/2 · i/K) tokens are masked after round i (MaskGIT, Chang et al. 2022)."""
    _check(length, budget)
    return _falling(length, length * np.cos(0.5 * np.pi * np.arange(budget + 1) / budget), "cosine")


def geometric_unmasking(length: int, budget: int) -> MaskedSchedule:
    """``length``^(i/K) tokens are known after round i, so that every round multiplies their number by the same factor.

    "exp" among the mask schedules of MaskGIT (Chang et al. 2022); Lavenant and Zanella (2025) study such schedules.
    """
    _check(length, budget)
    known = float(length) ** (np.arange(budget + 1) / budget)
    return _falling(length, length - known, "geometric")


def entropy_unmasking(statistics: MaskedStatistics, budget: int) -> MaskedSchedule:
    """The same information in every round: Σ c_u over the tokens of a round is the same, up to whole tokens."""
    process = statistics.process
    _check(process.length, budget)
    # Between the counts of a coarse grid, c is that of the upper one.
    c = statistics.mean_nats[np.searchsorted(process.counts, np.arange(1, process.length + 1))]
    known = np.append(0.0, np.cumsum(c))
    wanted = known[-1] * np.arange(budget, -1, -1) / budget
    return _falling(process.length, np.interp(wanted, known, np.arange(process.length + 1)), "entropy")


def linear_times(budget: int) -> BinomialSchedule:
    """Even times from 1 to 0, as in MDLM: binomial numbers of tokens, which are even only on average."""
    whole_number(budget, "The budget must be a whole number of rounds, at least 1")
    return BinomialSchedule(tuple((np.arange(budget, -1, -1) / budget).tolist()), "linear_times")


@dataclass(frozen=True)
class UnmaskingRule:
    """A rule that gives a schedule of any number of rounds, with its name in tables and its line in figures.

    Attributes:
        words: its name in tables.
        make: function from the choosing statistics and a number of rounds to the schedule.
        colour: colour of its curve.
        line: matplotlib line style of its curve.
        by_times: its numbers of tokens are binomial, which needs samples of one length.
    """

    words: str
    make: Callable[[MaskedStatistics, int], MaskedSchedule | BinomialSchedule]
    colour: str
    line: str | tuple[int, tuple[int, ...]]
    by_times: bool = False


EVEN = "even"
RULES = {
    EVEN: UnmaskingRule("even counts", lambda given, K: even_unmasking(given.process.length, K), "#D55E00", ":"),
    "cosine": UnmaskingRule("cosine", lambda given, K: cosine_unmasking(given.process.length, K), "#0072B2", "--"),
    "geometric": UnmaskingRule(
        "geometric", lambda given, K: geometric_unmasking(given.process.length, K), "#6A4FB3", (0, (3, 1, 1, 1))
    ),
    "entropy": UnmaskingRule("equal entropy", entropy_unmasking, "#CC79A7", "-."),
    "linear_times": UnmaskingRule("even times", lambda given, K: linear_times(K), "#999999", "-", by_times=True),
}


def _falling(length: int, masked: npt.NDArray[np.float64], stride: str) -> MaskedSchedule:
    """Whole numbers close to ``masked`` [K + 1], strictly falling from ``length`` to 0."""
    K = len(masked) - 1
    place = np.arange(K + 1)
    counts = np.floor(masked + 0.5).astype(np.int64)[::-1]  # rising from 0
    counts[0] = 0
    rising = np.maximum.accumulate(counts - place) + place
    counts = np.minimum(rising, length - place[::-1])  # leave room for the numbers above
    counts[-1] = length
    return MaskedSchedule(length, tuple(counts[::-1].tolist()), stride)


def _check(length: int, budget: int) -> None:
    whole_number(length, "length must be a whole number of tokens, at least 1")
    whole_number(budget, f"The budget must be a whole number of rounds from 1 to {length}", 1, length)
