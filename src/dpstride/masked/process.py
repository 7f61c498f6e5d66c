"""Stage 1. The forward process of masked diffusion: a grid of counts of masked tokens.

At grid index t, ``counts[t]`` of the n tokens of a sequence are masked, chosen uniformly at random. Index 0 is data and index
T is all masks. A coarser grid is a subset of counts, with the same numbers as on the whole grid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.numbers import whole_number

Integers = npt.NDArray[np.int64]


class MaskedProcess:
    """Masking of ``length`` tokens, on the grid of all numbers of masked tokens, or of some.

    Args:
        length: number of tokens that are masked at the noise end.
        counts: numbers of masked tokens on the grid, including ``length``; 0 is added. Every number when None.
    """

    def __init__(self, length: int, counts: Iterable[int] | None = None) -> None:
        self.length = whole_number(length, "length must be a whole number of tokens, at least 1")
        self.counts: Integers = np.arange(self.length + 1) if counts is None else _checked(counts, self.length)
        self.counts.setflags(write=False)

    def __repr__(self) -> str:
        return f"<MaskedProcess of {self.length} tokens, T = {self.T}>"

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return self.counts.size - 1

    @property
    def fractions(self) -> npt.NDArray[np.float64]:
        """Share of masked tokens at every grid index [T + 1]."""
        return self.counts / self.length

    @property
    def fingerprint(self) -> str:
        """Digest of the grid."""
        return hashlib.sha256(f"masked {self.length} {self.counts.tolist()}".encode()).hexdigest()[:16]

    def indices_of(self, counts: Iterable[int]) -> Integers:
        """Grid indices of numbers of masked tokens; raises ValueError for one that is not on the grid."""
        wanted = np.asarray(list(counts), dtype=np.int64)
        index = np.minimum(np.searchsorted(self.counts, wanted), self.T)
        if (missing := self.counts[index] != wanted).any():
            raise ValueError(
                f"{wanted[missing][0]} masked tokens are not on this grid of {self.T} counts up to {self.length}. Estimate "
                "with that count too, or evaluate the schedule directly (bits_per_token)."
            )
        return index


def scale_counts(counts: Any, length: int, sizes: Any) -> Integers:
    """Numbers of masked tokens in sequences of ``sizes`` tokens, for the same share as ``counts`` of ``length``.

    This is count · size/length, rounded half up in integer arithmetic; all and none stay all and none.
    """
    counts, sizes = np.asarray(counts, dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    return np.asarray((2 * counts * sizes + length) // (2 * length))


def _checked(counts: Iterable[int], length: int) -> Integers:
    found = np.asarray(list(counts))
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu" or found.min() < 0 or found.max() > length:
        raise ValueError(f"counts must be numbers of masked tokens from 0 to {length}, not {counts!r:.80}.")
    found = np.union1d(found.astype(np.int64), [0])
    if found[-1] != length:
        raise ValueError(
            f"counts must include {length}, since generation starts with every token masked, but end at {found[-1]}. Add it."
        )
    return found
