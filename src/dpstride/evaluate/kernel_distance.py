"""Stage 7. Kernel distance (KID): unbiased at any number of samples, so it is reported with every Fréchet distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.numbers import whole_number
from .discrepancy import Discrepancy, discrepancy
from .frechet import as_features

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KernelDistance:
    """The estimate, its standard error, and how many samples of each set were used, in how many subsets."""

    value: float
    standard_error: float
    samples: tuple[int, int]
    subsets: int


def kernel_distance(features_a: Any, features_b: Any, subset_size: int | None = None, seed: int = 0) -> KernelDistance:
    """Unbiased squared maximum mean discrepancy with the kernel (x·y/d + 1)³ (Bińkowski et al. 2018); may be negative.

    Args:
        features_a: features [n, d], array or tensor.
        features_b: features [m, d] of the other set.
        subset_size: None uses every pair of samples, with the jackknife's standard error. A number splits both sets into
            disjoint random subsets of that size and averages over them (the published values use 1,000): cost grows with
            n instead of n², and since the subsets are independent their spread is a valid standard error.
        seed: random seed of the split into subsets.
    """
    a, b = as_features(features_a), as_features(features_b)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"The two sets have {a.shape[1]} and {b.shape[1]} features. Use one extractor for both.")
    if min(len(a), len(b)) < 2:
        raise ValueError(f"The kernel distance needs at least 2 samples of each set, not {len(a)} and {len(b)}.")
    if subset_size is None:
        found = feature_discrepancy(a, b)
        return KernelDistance(found.value, found.standard_error, (len(a), len(b)), 1)
    whole_number(subset_size, "subset_size must be a whole number of at least 2, or None for all", 2)
    subsets = min(len(a), len(b)) // subset_size
    if subsets < 2:
        raise ValueError(
            f"Subsets of {subset_size} need at least {2 * subset_size} samples of each set, but there are {len(a)} and "
            f"{len(b)}. Use all of them (subset_size=None), or smaller subsets."
        )
    rng = np.random.default_rng(seed)
    order_a, order_b = rng.permutation(len(a)), rng.permutation(len(b))
    parts = [slice(i * subset_size, (i + 1) * subset_size) for i in range(subsets)]
    values = [feature_discrepancy(a[order_a[part]], b[order_b[part]]).value for part in parts]
    error = float(np.std(values, ddof=1)) / math.sqrt(subsets)
    return KernelDistance(float(np.mean(values)), error, (subsets * subset_size, subsets * subset_size), subsets)


def feature_discrepancy(features_a: Any, features_b: Any) -> Discrepancy:
    """The same over every pair of samples, with leave-one-out estimates for paired differences."""
    # Divided by the root of the dimension, the kernel is (x·y + 1)³.
    a, b = (x.astype(np.float64) / math.sqrt(x.shape[1]) for x in map(as_features, (features_a, features_b)))
    return discrepancy(a, b, _kernel)


def _kernel(a: Array, b: Array) -> Array:
    shifted = a @ b.T + 1.0
    return np.asarray(shifted * shifted * shifted)
