"""Distances of samples from real images: two distances, measured once for each set of samples."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..evaluate.frechet import Moments, TooFewSamplesWarning, frechet_distance
from ..evaluate.kernel_distance import kernel_distance
from ..runs.number_cache import NumberCache
from .results import Distance

KERNEL_PAIRS = 5000  # samples per set up to which all pairs are used; beyond, subsets as in published values
KERNEL_SUBSET = 1000
Features = npt.NDArray[np.float32]


class DistanceMeter:
    """Measures distances of features from those of real images, and caches them in a file."""

    def __init__(self, reference: Features, path: Path) -> None:
        self._reference, self._moments = reference, Moments.of(reference)
        self._cache = NumberCache(
            path, {"reference": _digest(reference), "pairs": KERNEL_PAIRS, "subset": KERNEL_SUBSET}
        )

    def measure(self, features: Features, stride: str, budget: int) -> Distance:
        """The distances of samples along the path of ``stride`` with ``budget`` steps."""
        frechet, kernel, error = self._cache.numbers(_digest(features), lambda: self._measure(features))
        return Distance(stride, budget, len(features), frechet, kernel=kernel, kernel_standard_error=error)

    def _measure(self, features: Features) -> tuple[float, float, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TooFewSamplesWarning)  # `Study.few` has said so
            frechet = frechet_distance(features, self._moments)
        counts = (len(features), len(self._reference))
        if max(counts) > KERNEL_PAIRS and min(counts) >= 2 * KERNEL_SUBSET:
            kernel = kernel_distance(features, self._reference, KERNEL_SUBSET)
        else:
            kernel = kernel_distance(features[:KERNEL_PAIRS], self._reference[:KERNEL_PAIRS])
        return frechet, kernel.value, kernel.standard_error


def _digest(features: Features) -> str:
    digest = hashlib.sha256(f"{features.dtype} {features.shape}".encode())
    digest.update(np.ascontiguousarray(features).data)
    return digest.hexdigest()[:16]
