"""Stage 3. Spot checks: a few (t, sample) of reused rows are recomputed and compared with the stored numbers.

Probes are the same in every run, so that they can be compared; an edit that spares their inputs would pass them. The places
here are drawn anew in every run, spread over the stored rows, so no edit can know them. The first unit of every process is
checked in this way too, sample by sample, because its batches are full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..runs.behaviour import Behaviour
from .artefact import Statistics
from .coordinate import output_gain
from .passes import Passes
from .rows import Rows
from .units import Unit, batches

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
SPOTS = 16  # places in reused rows
OF_UNIT = 2  # places in a unit that was just computed
ALGEBRA = 100.0  # units in the last place by which sums over dimensions may differ


@dataclass(frozen=True)
class StoredRows:
    """Stored numbers of single samples: rows ``t``, each on the columns ``first`` … ``last`` − 1."""

    t: Indices
    first: Indices
    last: Indices
    samples: Indices  # numbers of the samples in all columns
    squared_error: Array
    fraction_sum: Array | None

    @classmethod
    def of_statistics(cls, found: Statistics) -> StoredRows:
        """All evaluated rows of finished statistics."""
        t = np.flatnonzero(found.evaluated)
        samples = np.setdiff1d(np.arange(found.samples + len(found.skipped)), found.skipped)
        ends = np.zeros_like(t), np.full_like(t, found.samples)
        return cls(t, *ends, samples, squared_error=found.squared_error, fraction_sum=found.fraction_sum)

    @classmethod
    def of_rows(cls, rows: Rows, units: Sequence[Unit]) -> StoredRows:
        """Contribution of ``units`` to the rows."""
        t = np.array([t for unit in units for t in unit.steps], dtype=np.int64)
        number = np.array([unit.range for unit in units for _ in unit.steps], dtype=np.int64)
        order = np.argsort(t, kind="stable")
        t, number = t[order], number[order]
        first, last = (
            np.array([getattr(columns, end) for columns in rows.columns])[number] for end in ("start", "stop")
        )
        samples = np.setdiff1d(np.arange(len(rows.data)), rows.skipped)
        errors, fractions = rows.plain["squared_error"], rows.plain.get("fraction_sum")
        return cls(t, first, last, samples, squared_error=errors, fraction_sum=fractions)

    def draw(self, count: int) -> tuple[Indices, Indices]:
        """Grid indices and columns of ``count`` places, spread evenly over the rows and drawn anew in every run."""
        rng = np.random.default_rng()
        at = ((rng.random() + np.arange(count)) * (self.t.size / count)).astype(np.int64)
        return self.t[at], rng.integers(self.first[at], self.last[at])

    def ends(self, batch_size: int) -> tuple[Indices, Indices] | None:
        """The first and last place of a batch with several t, if the unit of these rows had any.

        A network that uses one time for a whole batch gives a wrong number at one of them, whichever time it uses.
        """
        count = int(self.last[0] - self.first[0])
        for part in batches(self.t.size * count, batch_size):
            row, column = np.divmod(np.array([part.start, part.stop - 1]), count)
            if row[0] < row[1]:
                return self.t[row], self.first[row] + column
        return None


@dataclass(frozen=True)
class Deviation:
    """A number computed now and the stored one; ``where`` says which, and rounding may change it by ``allowed``."""

    where: str
    kept: float
    now: float
    allowed: float

    @property
    def far(self) -> float:
        """Distance of the two, as a multiple of ``allowed``; NaN if a number is NaN."""
        return abs(self.now - self.kept) / max(self.allowed, 1e-300)

    def __str__(self) -> str:
        return f"{self.where} is {self.now:.6g} and not {self.kept:.6g}, where rounding may change it by {self.allowed:.2g}"


def farthest(found: Iterable[Deviation]) -> Deviation | None:
    """The deviation farthest beyond rounding; None if all are within it."""
    worst: Deviation | None = None
    for each in found:
        if not each.far <= 1.0 and (worst is None or not each.far <= worst.far):
            worst = each
    return worst


def deviation(
    passes: Passes, kept: StoredRows, tolerance: float, usual: float, *, of_unit: bool = False, at_once: int = 1
) -> Deviation | None:
    """Recompute a few places in batches of ``at_once``; None if all agree with the stored numbers up to rounding.

    The rounding error of a network is that of its internal numbers, and a small output is a difference of such numbers: of
    samples with two elements, one output in twenty is. So the size of an output counts as the ``usual`` one at least. If an
    output is off by ``tolerance`` of that, x̂_0 is off by as much over the root of `output_gain` (less with clipping), the
    root of Σ e² by no more than that, and Σ φ by half the root of dims times the error of the output.
    """
    if kept.t.size == 0:
        return None
    places = kept.ends(passes.batch_size) if of_unit else None
    places = places or kept.draw(OF_UNIT if of_unit else SPOTS)
    return farthest(_again(passes, kept, tolerance, usual, places=places, at_once=at_once))


def _again(
    passes: Passes, kept: StoredRows, tolerance: float, usual: float, *, places: tuple[Indices, Indices], at_once: int
) -> Iterator[Deviation]:
    t, columns = places
    gain = np.sqrt(output_gain(passes.process, passes.denoiser.predicts))
    for part in batches(len(t), at_once):
        for place, (error, fraction, size) in zip(
            range(part.start, part.stop), _numbers(passes, t[part], kept.samples[columns[part]]), strict=True
        ):
            index, column = int(t[place]), int(columns[place])
            slack = tolerance * max(size, usual)
            pairs = [("error of x0_hat", error, float(kept.squared_error[index, column]) ** 0.5, slack / gain[index])]
            if kept.fraction_sum is not None:
                dims = float(np.prod(passes.data.shape))
                pairs.append(("sum of phi", fraction, float(kept.fraction_sum[index, column]), 0.5 * dims**0.5 * slack))
            for name, now, before, allowed in pairs:
                allowed += ALGEBRA * torch.finfo(passes.denoiser.algebra_dtype).eps * abs(before)
                yield Deviation(f"at t = {index} the {name} on sample {kept.samples[column]}", before, now, allowed)


def _numbers(passes: Passes, t: Indices, samples: Indices) -> list[tuple[float, float, float]]:
    """The root of Σ e², Σ φ and the norm of the network's output, of each (t, sample); NaN where the output is not finite."""
    x_t, batch = passes.noisy(t, samples)
    index = torch.from_numpy(t)
    output = passes.denoiser.response(x_t, index, batch.conditioning)
    finite = torch.isfinite(output).flatten(1).all(1).tolist()
    output = torch.nan_to_num(output, 0.0, 0.0, 0.0)
    prediction = passes.denoiser.predict_from(output, x_t, index)
    errors = batch.counted(batch.x - prediction.x0_hat).flatten(1).norm(dim=1).tolist()
    phi = prediction.fraction
    fractions = [0.0] * len(t) if phi is None else batch.counted(phi).flatten(1).sum(1).tolist()
    sizes = output.flatten(1).double().norm(dim=1).tolist()
    found = zip(errors, fractions, sizes, finite, strict=True)
    return [(*each, size) if good else (np.nan, np.nan, 0.0) for *each, size, good in found]


def of_another_model(found: object, there: Behaviour, now: Behaviour) -> str:
    """Message about rows that the model of ``now`` does not reproduce."""
    _, why = there.tolerance(now)
    return (
        f"holds work of a model that behaves differently: recomputed, {found} ({why}), although its weights and its outputs on "
        "the probes are the same: its code, its attributes or its settings have changed"
    )


def of_batches(found: object, size: int) -> str:
    """Message about a unit whose batches had ``size`` samples."""
    return (
        f"The network returns a different output in a batch of up to {size} than for the sample alone, so every result would "
        f"depend on the batches: alone, {found}. Look for anything that it does with large batches only (splitting them, a "
        "statistic over the batch), or use a smaller batch size."
    )
