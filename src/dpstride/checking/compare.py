"""Stage 3. Comparison of two descriptions: the paired difference of their costs, in bits/dim.

In continuous time the ELBO is ½ ∫ snr · m d(log snr) nats per dimension (Kingma et al. 2021), where m is the mean squared
error of x̂_0: half the area under the error of the implied ε over log-SNR. So half the area between two error curves, over the
noise levels of both descriptions, is the extra cost of one over the other. An error above 1 counts as 1, which is reached
without a network. (Near clean data, a network trained on x_0 may be off by a hundred times that, and any description that
ignores its output would look better.)
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

SIGMAS = 3.0  # standard errors for a decision
FEW = 8  # samples, below which their spread is poorly known
_TAIL = float(norm.sf(SIGMAS))
Reading = tuple[Measured, int]
LEAST = 1e-12  # lower bound of errors before taking logarithms
LEAST_OVERLAP = 1.0  # overlap of log-SNR ranges needed for a comparison
BESIDE = 1e-3  # log-SNR below its lowest level, from which on a description counts as having no network


@dataclass(frozen=True)
class Difference:
    """Extra cost of the second description over the first, bits/dim, with its standard error over samples.

    ``sigmas`` is its distance from 0 in standard errors of the mean log ratio, 0 if the two means disagree in sign. That test
    may be the clearer one: a few samples may contribute most of the difference although all agree on its sign.
    """

    mean: float
    standard_error: float
    sigmas: float = math.inf

    @property
    def deciding_error(self) -> float:
        """Standard error equivalent to the clearer of the two tests."""
        return min(self.standard_error, abs(self.mean) / self.sigmas) if self.sigmas > 0.0 else self.standard_error

    def at_least(self, sigmas: float) -> float:
        """Lower end of the interval."""
        return self.mean - sigmas * self.deciding_error

    def at_most(self, sigmas: float) -> float:
        """Upper end of the interval."""
        return self.mean + sigmas * self.deciding_error


def difference(first: Reading, second: Reading, draws: int, *, beside: Reading, few: bool = False) -> Difference | None:
    """Extra cost of ``second`` over ``first`` (each a reading of measured inputs), or None if they hardly overlap.

    ``few`` uses only some of the levels of each, except for ``beside``, which was measured at all of them. Linear interpolation
    between levels is applied to the excess of each of the two over ``beside``, not to their errors: grids of different
    processes have different noise levels, and chords between different points of a curve differ by more than the differences
    of interest.
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
    """The errors, extended below a description's noise levels by those without a network, which predict x_0 = 0."""
    below = targets[targets < at[0] - BESIDE][::-1]
    if not below.size:
        return at, errors
    below = np.append(below, at[0] - BESIDE)
    none = np.minimum(1.0, np.exp(below) * square)[:, None].repeat(errors.shape[1], axis=1)
    return np.concatenate([below, at]), np.concatenate([none, errors])


def paired(first: Array, second: Array, samples: Indices) -> Difference | None:
    """Mean of second − first [draws] with its standard error; draws of the same sample count as one."""
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    counts = np.bincount(samples)
    first, second = (np.bincount(samples, each) / counts for each in (first, second))
    gap = second - first
    if len(gap) < 2:
        return Difference(float(gap.mean()), math.inf, 0.0)
    # With few samples their spread is uncertain: widen the standard error to keep the same confidence.
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
    """Bits/dim [draws]: half the area under errors [levels, draws] over log-SNR, by linear interpolation."""
    return _area(at, _tamed(errors), nodes)


def _tamed(errors: Array) -> Array:
    return np.where(errors.mean(axis=1, keepdims=True) > 1.0, 1.0, errors)


def _area(at: Array, values: Array, nodes: Array) -> Array:
    return np.asarray(0.5 * trapezoid(_at(nodes, at, values), nodes, axis=0) / math.log(2.0))


def _smooth(nodes: Array, at: Array, errors: Array) -> Array:
    """The curve between its levels by monotone cubics in log error, and constant beyond them.

    Logarithms, because the error of a bad network grows with the SNR, and errors cut at 1 would have a corner.
    """
    own, first = np.unique(at, return_index=True)
    if own.size < 2:
        return np.broadcast_to(errors[first], (nodes.size, errors.shape[1]))
    logarithms = np.log(np.clip(errors[first], LEAST, 1.0 / LEAST))
    return np.asarray(np.exp(PchipInterpolator(own, logarithms)(np.clip(nodes, own[0], own[-1]))))


def _at(nodes: Array, at: Array, values: Array) -> Array:
    return np.stack([np.interp(nodes, at, column) for column in values.T], axis=1)
