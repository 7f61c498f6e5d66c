"""Stage 7. Fréchet distance between two sets of features, from streaming moments.

Only the mean and covariance of a set's features are used, so the set never has to be in memory at once: `Moments` of parts
add up to the moments of the whole. The features are the caller's choice (`evaluate/features`); only those of the Inception
network make this number the FID.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ROWS = 4096  # of features turned to float64 at a time


class TooFewSamplesWarning(UserWarning):
    """So few samples that the covariance of their features is singular."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean [d] and scatter Σ (x − mean)(x − mean)ᵀ [d, d] of features, float64."""

    count: int
    mean: Array
    scatter: Array

    @classmethod
    def of(cls, features: Any) -> Moments:
        """Moments of features [n, d], an array or tensor; ``n`` may be larger than memory holds in float64."""
        array = as_features(features)
        return cls.merged(cls._of_rows(array[first : first + ROWS]) for first in range(0, len(array), ROWS))

    @classmethod
    def _of_rows(cls, rows: npt.NDArray[Any]) -> Moments:
        x = rows.astype(np.float64)
        mean = x.mean(axis=0)
        x -= mean
        return cls(len(x), mean, x.T @ x)

    @classmethod
    def merged(cls, parts: Iterable[Moments]) -> Moments:
        """Moments of all parts together, exactly: Chan, Golub and LeVeque (1979), one part after the other."""
        total: Moments | None = None
        for part in parts:
            total = part if total is None else total._with(part)
        if total is None:
            raise ValueError("There are no features to take moments of. Give at least one sample.")
        return total

    def _with(self, other: Moments) -> Moments:
        if self.mean.shape != other.mean.shape:
            raise ValueError(
                f"Features of {self.mean.size} and of {other.mean.size} dimensions cannot be added up. Use one extractor."
            )
        count = self.count + other.count
        gap = other.mean - self.mean
        scatter = self.scatter + other.scatter + np.outer(gap, gap) * (self.count * other.count / count)
        return Moments(count, self.mean + gap * (other.count / count), scatter)

    @property
    def dimension(self) -> int:
        """Number of features."""
        return int(self.mean.size)

    @property
    def covariance(self) -> Array:
        """Unbiased covariance [d, d]."""
        if self.count < 2:
            raise ValueError(f"A covariance needs at least 2 samples, but there is {self.count}. Give more.")
        return np.asarray(self.scatter / (self.count - 1))


def frechet_distance(features_a: Any, features_b: Any) -> float:
    """Squared Fréchet distance of the Gaussians fitted to two sets of features (Heusel et al. 2017, Eq. 6).

    ``|m_a − m_b|² + tr(A + B − 2 (A^½ B A^½)^½)``, with means m and covariances A and B. Either set is features [n, d] (array
    or tensor), `Moments`, or a triple (mean, covariance, count). Exact for singular covariances too; a set with no more
    samples than dimensions warns, since its covariance is then always singular and the distance too large.
    """
    (mean_a, A), (mean_b, B) = (_gaussian(features) for features in (features_a, features_b))
    if mean_a.shape != mean_b.shape:
        raise ValueError(f"The two sets have {mean_a.size} and {mean_b.size} features. Use one extractor for both.")
    # tr (A^½ B A^½)^½ is the sum of the singular values of A^½ B^½, and of P Q with any P Pᵀ-like factors of A and B.
    # So no root is taken of an eigenvalue that is zero up to rounding, which would cost half the digits.
    overlap = np.linalg.svd(_factor(A).T @ _factor(B), compute_uv=False).sum()
    distance = np.square(mean_a - mean_b).sum() + np.trace(A) + np.trace(B) - 2.0 * overlap
    return float(max(distance, 0.0))


def _factor(covariance: Array) -> Array:
    """F [d, rank] with F Fᵀ = covariance; directions that are empty up to rounding are left out."""
    values, vectors = np.linalg.eigh(covariance)
    least = values.size * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    if values[0] < -1e3 * least - 1e-300:
        raise ValueError(
            f"A covariance must have no negative eigenvalue, but one is {values[0]:.3g} (the largest is {values[-1]:.3g})."
        )
    kept = values > least
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _gaussian(features: Any) -> tuple[Array, Array]:
    """Mean and covariance of the given features or moments, with a warning if there are too few samples."""
    if isinstance(features, tuple):
        if len(features) != 3:
            raise ValueError(f"Moments are a triple (mean, covariance, count), but {len(features)} values were given.")
        mean, covariance = (np.asarray(part, dtype=np.float64) for part in features[:2])
        count = int(features[2])
        if mean.ndim != 1 or covariance.shape != (mean.size, mean.size):
            raise ValueError(
                f"The mean must be [d] and the covariance [d, d], not {mean.shape} and {covariance.shape}."
            )
        if not np.allclose(covariance, covariance.T, rtol=1e-8, atol=1e-12 * np.abs(covariance).max(initial=0.0)):
            raise ValueError("The covariance is not symmetric.")
        covariance = 0.5 * (covariance + covariance.T)
    else:
        moments = features if isinstance(features, Moments) else Moments.of(features)
        mean, covariance, count = moments.mean, moments.covariance, moments.count
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise ValueError("Moments must be finite, but some are NaN or infinite. Check the features.")
    if message := too_few(count, mean.size):
        warnings.warn(message, TooFewSamplesWarning, stacklevel=3)
    return mean, covariance


def too_few(count: int, dimension: int, what: str = "samples") -> str | None:
    """Warning that a Fréchet distance of ``count`` samples is unreliable, or None."""
    if count > dimension:
        return None
    return (
        f"{count:,} {what} are too few for features of {dimension} dimensions: their covariance is singular, and the Fréchet "
        f"distance is too large. Take more than {dimension}, many more for absolute values; the kernel distance is "
        "unbiased at any number."
    )


def as_features(features: Any) -> npt.NDArray[Any]:
    """Features as a numpy array [n, d] of floats, or a clear error."""
    array = features.detach().cpu().numpy() if hasattr(features, "detach") else np.asarray(features)
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "fiu":
        raise ValueError(f"Features must be numbers of shape [samples, dimensions], not {array.dtype} {array.shape}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int((~np.isfinite(array)).any(axis=1).argmax())
        raise ValueError(f"Features must be finite, but those of sample {row} are not.")
    return np.asarray(array)
