"""Stage 3. Two descriptions beside each other: the paired difference of what they cost, in bits/dim.

In continuous time the ELBO is ½ ∫ snr · m d(log snr) nats per dimension (Kingma et al. 2021), m being the mean squared error
of x̂_0: the area under the error of the implied ε over log-SNR. So the area between two error curves, over the noise
levels that both descriptions have, is what one costs more than the other. An error above 1 counts as 1: no network at all
would do as well there. (A network trained on x_0 may be off by a hundred times that next to clean data, and any description
that leaves its output out would look better.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.integrate import trapezoid
from scipy.interpolate import PchipInterpolator
from scipy.stats import norm, t as student

from .description import Array
from .measure import Indices, Measured

SIGMAS = 3.0  # standard errors that decide
FEW = 8  # samples, below which their spread is hardly known
_TAIL = float(norm.sf(SIGMAS))
Reading = tuple[Measured, int]
LEAST = 1e-12  # error whose logarithm is taken
LEAST_OVERLAP = 1.0  # of log-SNR ranges, for a comparison
BESIDE = 1e-3  # of log-SNR: so far below its levels a description has none


@dataclass(frozen=True)
class Difference:
    """Extra cost of the second description over the first, bits/dim, with its standard error over samples.

    ``sigmas`` is how many standard errors it lies from 0: those of the mean difference, or of the mean logarithm of the
    ratio where that is clearer, because a few samples may make most of the difference and yet all agree on its sign.
    """

    mean: float
    standard_error: float
    sigmas: float = math.inf

    @property
    def deciding_error(self) -> float:
        """Standard error that the clearer of the two tests amounts to."""
        return min(self.standard_error, abs(self.mean) / self.sigmas) if self.sigmas > 0.0 else self.standard_error

    def at_least(self, sigmas: float) -> float:
        """Lower end of the interval."""
        return self.mean - sigmas * self.deciding_error

    def at_most(self, sigmas: float) -> float:
        """Upper end of the interval."""
        return self.mean + sigmas * self.deciding_error


def difference(first: Reading, second: Reading, draws: int, *, beside: Reading, few: bool = False) -> Difference | None:
    """Cost of ``second`` above ``first`` (each a reading of what was measured), or None where they hardly overlap.

    ``few`` looks at some of the levels only, of each its own, but for ``beside``, which was measured at all of them: of a
    process that hardly overlaps with it, those are what there is to see. What is drawn as
    straight lines between levels is how far each of the two is above it, not their errors themselves: grids of different
    processes do not have the same noise levels, and chords of a curve from other places differ by more than is looked for.
    """
    (at_first, errors_first), (at_second, errors_second) = (
        measured.of(reading, measured.few if few and measured is not beside[0] else measured.levels, draws)
        for measured, reading in (first, second)
    )
    baseline = beside[0].of(beside[1], beside[0].levels, draws)
    targets, square = first[0].meter.targets, first[0].meter.square
    if square is not None:
        (at_first, errors_first), (at_second, errors_second), baseline = (
            _completed(*each, targets, square)
            for each in ((at_first, errors_first), (at_second, errors_second), baseline)
        )
    low, high = max(at_first[0], at_second[0]), min(at_first[-1], at_second[-1])
    if high - low < LEAST_OVERLAP:
        return None
    nodes = np.unique(np.concatenate([[low, high], at_first, at_second]))
    nodes = nodes[(nodes >= low) & (nodes <= high)]
    samples = np.arange(draws) % len(first[0].meter.data)
    above = [
        _area(at, _tamed(errors) - _tamed(_smooth(at, *baseline)), nodes)
        for at, errors in ((at_first, errors_first), (at_second, errors_second))
    ]
    cost = area(at_first, errors_first, nodes)
    return paired(cost, cost + above[1] - above[0], samples)


def _completed(at: Array, errors: Array, targets: Array, square: float) -> tuple[Array, Array]:
    """The errors, and below a description's own noise levels those of x_T's prior, which takes the data for 0."""
    below = targets[targets < at[0] - BESIDE][::-1]
    if not below.size:
        return at, errors
    below = np.append(below, at[0] - BESIDE)
    none = np.minimum(1.0, np.exp(below) * square)[:, None].repeat(errors.shape[1], axis=1)
    return np.concatenate([below, at]), np.concatenate([none, errors])


def paired(first: Array, second: Array, samples: Indices) -> Difference | None:
    """Mean of second − first [draws] with its standard error; draws of one sample with several noises count as one."""
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    counts = np.bincount(samples)
    first, second = (np.bincount(samples, each) / counts for each in (first, second))
    gap = second - first
    if len(gap) < 2:
        return Difference(float(gap.mean()), math.inf, 0.0)
    # Few samples say little about their own spread: as many standard errors as give the same confidence.
    widening = float(student.isf(_TAIL, len(gap) - 1)) / SIGMAS if len(gap) < FEW else 1.0
    error, ratio = (
        _error(each) * widening for each in (gap, np.log(np.maximum(second, 1e-12) / np.maximum(first, 1e-12)))
    )
    logarithm = float(np.log(np.maximum(second, 1e-12) / np.maximum(first, 1e-12)).mean())
    agree = logarithm * gap.mean() > 0.0 and ratio > 0.0
    return Difference(float(gap.mean()), error, abs(logarithm) / ratio if agree else 0.0)


def _error(values: Array) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def area(at: Array, errors: Array, nodes: Array) -> Array:
    """Bits/dim [draws]: half the area under errors [levels, draws] over log-SNR, by straight lines."""
    return _area(at, _tamed(errors), nodes)


def _tamed(errors: Array) -> Array:
    return np.where(errors.mean(axis=1, keepdims=True) > 1.0, 1.0, errors)


def _area(at: Array, values: Array, nodes: Array) -> Array:
    return np.asarray(0.5 * trapezoid(_at(nodes, at, values), nodes, axis=0) / math.log(2.0))


def _smooth(nodes: Array, at: Array, errors: Array) -> Array:
    """The curve between its levels by monotone cubics, and level beyond them.

    Logarithms: where a network is bad its error grows as the SNR does, and a curve through what counts has a corner at 1.
    """
    own, first = np.unique(at, return_index=True)
    if own.size < 2:
        return np.broadcast_to(errors[first], (nodes.size, errors.shape[1]))
    logarithms = np.log(np.clip(errors[first], LEAST, 1.0 / LEAST))
    return np.asarray(np.exp(PchipInterpolator(own, logarithms)(np.clip(nodes, own[0], own[-1]))))


def _at(nodes: Array, at: Array, values: Array) -> Array:
    return np.stack([np.interp(nodes, at, column) for column in values.T], axis=1)
