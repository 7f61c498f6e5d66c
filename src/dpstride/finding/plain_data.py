"""Checks of the data without the model: the score of a Gaussian fitted to them, and columns where a density means little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ..statistics.data import Samples

Array = npt.NDArray[np.float64]
LN2 = math.log(2.0)
PER_DIMENSION, FULL = "per dimension", "full covariance"
SAMPLES_PER_DIM = 5  # minimum to fit a covariance
TIED = 0.1  # share of equal values in a column above which it has ties
FEW = 20  # minimum number of samples to look for ties


def gaussian_bits_per_dim(choosing: Samples, scoring: Samples) -> dict[str, float]:
    """Return held-out bits/dim of Gaussians fitted to the choosing data; none for discretised data or constant columns.

    None for data with a mask either, since a Gaussian would have to be given the observed elements, too.
    """
    if choosing.data_range.levels is not None or len(choosing) < 2 or choosing.mask is not None:
        return {}
    x, other = (each.values.double().flatten(1).numpy() for each in (choosing, scoring))
    mean, variance = x.mean(0), x.var(0, ddof=1)
    if not (variance > 0.0).all():
        return {}
    deviations = other - mean
    nats = 0.5 * (np.log(2.0 * np.pi * variance) + deviations**2 / variance)
    found = {PER_DIMENSION: float(nats.mean()) / LN2}
    if len(x) >= SAMPLES_PER_DIM * x.shape[1]:
        values, vectors = np.linalg.eigh(np.cov(x.T).reshape(x.shape[1], -1))
        if values.min() > 1e-12 * values.max():
            nats = 0.5 * (np.log(2.0 * np.pi * values) + (deviations @ vectors) ** 2 / values)
            found[FULL] = float(nats.mean()) / LN2
    return found


def gaussian_notes(reference: dict[str, float], best: float, error: float, clipping: str = "") -> tuple[str, ...]:
    """Return a note if even the best score is worse than that of a Gaussian per dimension, with the likely cause.

    ``clipping`` says that x̂_0 is clipped to a smaller range than the data, if it is.
    """
    plain = reference.get(PER_DIMENSION)
    if plain is None or not best - 2.0 * (0.0 if math.isnan(error) else error) > plain:
        return ()
    cause = "Check predicts, time_input, clip, the process and the scale of the data."
    if clipping:
        cause = f"The likely cause: {clipping}"
    return (
        f"This model describes held-out data worse than no model at all: {best:.3f} bits/dim at best, and a Gaussian fitted to "
        f"each dimension has {plain:.3f}. {cause}",
    )


def tie_notes(data: Samples) -> tuple[str, ...]:
    """Return a note if values of continuous data repeat, so that a density can be made arbitrarily large."""
    if data.data_range.levels is not None or len(data) < FEW or data.mask is not None:
        return ()
    x = np.sort(data.values.double().flatten(1).numpy(), axis=0)
    share = np.array([_largest_tie(column) for column in x.T]) / len(x)
    tied = np.flatnonzero(share > TIED)
    if tied.size == 0:
        return ()
    worst = int(share.argmax())
    return (
        f"{tied.size} of {x.shape[1]} dimensions have ties (number {worst}, counted from 0: {share[worst]:.0%} of its values "
        "are the same), where a density means little and bits/dim can be made arbitrarily low. Declare levels, or add "
        "noise of the size of the rounding.",
    )


def _largest_tie(column: Array) -> int:
    """Return the number of occurrences of the most frequent of ascending values."""
    edges = np.flatnonzero(np.concatenate([[True], np.diff(column) > 0.0, [True]]))
    return int(np.diff(edges).max())
