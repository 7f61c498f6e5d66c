"""Stage 4. Schedules of masked diffusion: the number of tokens still masked after each round; saved as JSON.

They are records of their own, since a `Schedule` holds a Gaussian process, fitted variances and a sampler, none of which exist
here. Only the check of a path and its JSON form are shared. The two chains differ in one method: `MaskedSchedule` fixes the
numbers of tokens, `BinomialSchedule` the times in (0, 1] between which every token is revealed independently.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..options import GIVEN
from ..paths import (
    ByBudget,
    Entry,
    ScheduleFileError,
    check_path,
    entries_from_json,
    entries_to_json,
    read_schedule_file,
)
from ..runs.numbers import looked_up, spans
from ..runs.writing import write_json
from .process import scale_counts

Integers = npt.NDArray[np.int64]
FORMAT = "dpstride-masked-schedules"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class MaskedSchedule:
    """Rounds of generation: ``counts`` tokens are masked at the beginning and after each round, from ``length`` down to 0.

    ``stride`` is its origin: "dp" for the best path of a solution, the name of a rule, or "given". ``bits`` are the bits/token
    predicted by the choosing data.
    """

    length: int
    counts: tuple[int, ...]
    stride: str = GIVEN
    bits: float | None = None
    standard_error: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", check_path(self.counts, self.length))
        if self.counts[0] != self.length:
            raise ValueError(
                f"counts must begin with all {self.length} tokens masked, but begin with {self.counts[0]}. Put it first."
            )

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.counts if self.budget < 6 else (*self.counts[:4], "…", 0)))
        bits = "" if self.bits is None else f", {self.bits:.4f} bits/token predicted"
        return f"<MaskedSchedule of {self.budget} rounds for {self.length} tokens: {shown}{bits}>"

    @property
    def budget(self) -> int:
        """Number of rounds = network evaluations when sampling."""
        return len(self.counts) - 1

    @property
    def tokens_per_round(self) -> tuple[int, ...]:
        """Tokens revealed in each round."""
        return tuple((-np.diff(self.counts)).tolist())

    @property
    def fractions(self) -> tuple[float, ...]:
        """Share of tokens masked at the beginning and after each round, from 1 to 0."""
        return tuple(count / self.length for count in self.counts)

    @property
    def times(self) -> tuple[float, ...]:
        """Times in (0, 1] at which each round begins: with α = 1 − time, ``counts`` tokens are masked there on average."""
        return self.fractions[:-1]

    def counts_for(self, sizes: Any) -> Integers:
        """Masked tokens before and after each round in sequences of other sizes: [K + 1, …].

        The same share of tokens is masked, rounded half up; in a short sequence a round may reveal nothing.
        """
        sizes = np.asarray(sizes, dtype=np.int64)
        counts = np.asarray(self.counts).reshape(-1, *[1] * sizes.ndim)
        return scale_counts(counts, self.length, sizes)

    def masked_counts(self, sizes: Integers, draws: npt.NDArray[np.float64]) -> Integers:
        """Masked tokens before and after each round [K + 1, B]; the ``draws`` [B, n] of positions do not matter."""
        return self.counts_for(sizes)

    def num_transfer_tokens(self, masked: Sequence[int] | None = None) -> npt.NDArray[np.int64]:
        """LLaDA's table [B, K]: tokens to reveal in each round of samples with ``masked`` [B] tokens to generate."""
        from ..integrations.llada import num_transfer_tokens

        return num_transfer_tokens(self, masked)


@dataclass(frozen=True, eq=False)
class BinomialSchedule:
    """Rounds between ``times`` from 1 down to 0: a token masked at τ is revealed by σ with probability (τ − σ)/τ.

    At time τ each token is masked independently with probability τ, so the numbers are binomial: samplers that step through
    times, such as MDLM's, follow this chain, not that of a `MaskedSchedule` with the same mean numbers.
    """

    times: tuple[float, ...]
    stride: str = GIVEN

    def __post_init__(self) -> None:
        times = np.asarray(self.times, dtype=np.float64)
        if times.ndim != 1 or times.size < 2 or times[0] != 1.0 or times[-1] != 0.0 or not (np.diff(times) < 0.0).all():
            raise ValueError(f"times must fall strictly from 1 (all masked) to 0 (data), not {self.times!r:.120}.")
        object.__setattr__(self, "times", tuple(times.tolist()))

    @property
    def budget(self) -> int:
        """Number of rounds."""
        return len(self.times) - 1

    def masked_counts(self, sizes: Integers, draws: npt.NDArray[np.float64]) -> Integers:
        """Masked tokens before and after each round [K + 1, B]: those with a draw [B, n] below the time (∞ if not free)."""
        return np.stack([(draws < time).sum(axis=1) for time in self.times])


@dataclass(frozen=True, eq=False)
class MaskedScheduleSet(ByBudget[MaskedSchedule]):
    """The best schedule of every number of rounds: ``schedules[8]`` is that of 8 rounds."""

    length: int
    entries: Mapping[int, Entry]  # budget → counts, bits/token, error
    stride: str = GIVEN
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<MaskedScheduleSet for {self.length} tokens: {len(self)} schedules, of {spans(self.budgets)} rounds>"

    def __getitem__(self, budget: int) -> MaskedSchedule:
        if looked_up(budget, "rounds") not in self.entries:
            raise ValueError(
                f"There is no schedule of {budget} rounds here; there are those of {spans(self.budgets)}. Choose one of them, "
                "or solve again for more (max_budget=)."
            )
        counts, bits, error = self.entries[budget]
        return MaskedSchedule(self.length, counts, self.stride, bits, standard_error=error, provenance=self.provenance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` as JSON, atomically."""
        document = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "package_version": __version__,
            "length": self.length,
            "stride": self.stride,
            "provenance": dict(self.provenance),
            "schedules": entries_to_json(self.entries, "bits"),
        }
        write_json(path, document, indent=None)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MaskedScheduleSet:
        """Read a file written by `save`; anything else raises `ScheduleFileError`."""
        document = read_schedule_file(path, FORMAT, FORMAT_VERSION)
        try:
            length, stride, provenance = document["length"], document["stride"], document["provenance"]
            if not (
                isinstance(length, int) and length > 0 and isinstance(stride, str) and isinstance(provenance, dict)
            ):
                raise ValueError("length must be a number, stride a string and provenance an object")
            entries = entries_from_json(document["schedules"], "bits", length)
            for counts, *_ in entries.values():
                MaskedSchedule(length, counts)  # refuses rounds that do not begin with all tokens masked
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ScheduleFileError(f"{path}: not a valid schedule file ({error!s:.300}). Write it again.") from error
        return cls(length, entries, stride, provenance)
