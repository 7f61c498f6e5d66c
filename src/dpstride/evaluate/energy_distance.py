"""Stage 7. Energy distance in the space of the data: for vectors, signals and latents, which have no features."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .discrepancy import Discrepancy, discrepancy
from .frechet import as_features

Array = npt.NDArray[np.float64]


def energy_distance(samples: Any, real: Any) -> Discrepancy:
    """Return 2 E|x − y| − E|x − x'| − E|y − y'| over all pairs (Székely and Rizzo 2013), per root of the dimension.

    Unbiased, so it may be negative; 0 in expectation only if both sets have the same distribution. The result has `value`,
    `standard_error`, and `minus`, the difference from another set of samples that starts from the same noise.

    Args:
        samples: [n, *shape], array or tensor.
        real: [m, *shape], real data.
    """
    a, b = (as_features(_flat(each)).astype(np.float64) for each in (samples, real))
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"Samples have {a.shape[1]} dimensions and the real data {b.shape[1]}. Give both in the same shape."
        )
    if min(len(a), len(b)) < 2:
        raise ValueError(f"The energy distance needs at least 2 samples of each set, not {len(a)} and {len(b)}.")
    return discrepancy(a, b, _closeness)


def _closeness(a: Array, b: Array) -> Array:
    """−|x − y| per root of the dimension, so that one scale serves data of any size."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(a, b) / -np.sqrt(a.shape[1]), dtype=np.float64)


def _flat(samples: Any) -> Any:
    if not hasattr(samples, "reshape") or not len(getattr(samples, "shape", ())):
        raise ValueError(f"Samples must be a tensor or an array [samples, …], not {type(samples).__name__}.")
    return samples.reshape(len(samples), -1)
