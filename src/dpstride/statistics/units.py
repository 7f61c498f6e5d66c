"""Stage 3. Estimation divided into units of work: some grid indices t × one range of samples.

A unit is what one worker does at a time and what a kill can lose. Ranges of samples are whole blocks of
`artefact.block_of_sample`, so units share no sum, and a row is assembled from its ranges in a fixed order, whoever
computed them. The network batches of a unit depend on the unit alone, so neither the number of workers nor an interruption
changes a bit of the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .artefact import BLOCKS, block_of_sample

RANGE = 2048  # samples; a unit of one t should take seconds, not minutes
BATCHES = 4  # in a unit at least; smaller units would be distributed and written too often
SPARE = 16  # at most 1/SPARE of a unit's batches is left empty, if possible


@dataclass(frozen=True)
class Unit:
    """Grid indices ``steps`` on the samples of range number ``range``, without the ``skipped`` ones among them."""

    steps: tuple[int, ...]
    range: int
    skipped: tuple[int, ...] = ()


def sample_ranges(samples: int) -> list[range]:
    """Consecutive ranges of whole blocks, of at most `RANGE` samples or one block each; a function of the number alone."""
    block = block_of_sample(samples)
    count = 1
    while count < BLOCKS and samples > count * RANGE:
        count *= 2  # so that all have the same number of blocks
    limits = np.searchsorted(block, np.arange(count + 1) * (int(block[-1]) + 1) // count).tolist()
    return [range(first, last) for first, last in itertools.pairwise(limits)]


def cut(
    missing: Sequence[Sequence[int]],
    ranges: Sequence[range],
    skipped: Iterable[int],
    batch_size: int,
    mixed: bool,
) -> list[Unit]:
    """Units for the grid indices that are ``missing`` of each range, ordered by t, so that rows are finished early.

    Only whole units are finished and stored, so missing work is cut into the same units again: every unit but the last of
    a range has the same number of t.

    Args:
        missing: for each range, ascending grid indices.
        ranges: of samples, from `sample_ranges`.
        skipped: samples that are left out.
        batch_size: samples per network pass; with ``mixed``, a unit has enough t to fill its batches.
        mixed: a batch may hold several t.
    """
    units = []
    left_out = sorted(skipped)
    for number, (steps, samples) in enumerate(zip(missing, ranges, strict=True)):
        inside = tuple(sample for sample in left_out if sample in samples)
        if len(inside) == len(samples):
            continue
        count = steps_per_unit(len(samples) - len(inside), batch_size) if mixed else 1
        units += [Unit(tuple(steps[i : i + count]), number, inside) for i in range(0, len(steps), count)]
    return sorted(units, key=lambda unit: (unit.steps[0], unit.range))


def steps_per_unit(samples: int, batch_size: int) -> int:
    """A number of t that gives a unit at least `BATCHES` batches, nearly full."""
    least = max(1, -(-BATCHES * batch_size // samples))
    for count in range(least, least + SPARE):
        if SPARE * (-count * samples % batch_size) <= count * samples:
            return count
    return least


def batches(total: int, batch_size: int) -> list[slice]:
    """Slices of ``total`` into as few batches as possible, with sizes that differ by at most one."""
    limits = np.linspace(0, total, -(-total // batch_size) + 1).astype(np.int64).tolist()
    return [slice(first, last) for first, last in itertools.pairwise(limits)]
