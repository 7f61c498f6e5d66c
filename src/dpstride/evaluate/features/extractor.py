"""Stage 7. `FeatureExtractor`: what a distance needs to know about its features."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...runs.behaviour import Behaviour, sketch
from .. import frechet

BATCH = 64
PROBED = 8  # images by whose features an extractor is known again
LARGEST = 1e20  # a kernel distance's standard error takes features to the twelfth power


@dataclass(frozen=True)
class FeatureExtractor:
    """Features of 8-bit images.

    Args:
        name: how it is asked for, and recorded.
        distance: what the Fréchet distance on these features is called; "FID" for the FID's own network alone.
        dimension: number of features.
        fingerprint: digest of the weights, so that distances of different extractors are never compared.
        function: uint8 images [n, C, H, W] → features [n, dimension].
    """

    name: str
    distance: str
    dimension: int
    fingerprint: str
    function: Callable[[Tensor], Tensor] = field(repr=False)

    def __call__(self, images: Tensor | npt.NDArray[np.uint8], batch_size: int = BATCH) -> npt.NDArray[np.float32]:
        """Features [n, dimension], float32, of uint8 images [n, C, H, W]."""
        images = torch.as_tensor(images)
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                f"The features {self.name!r} are those of uint8 images [n, C, H, W], not {images.dtype} "
                f"{tuple(images.shape)}. `to_levels` turns samples in [−1, 1] into such images."
            )
        with torch.inference_mode():
            parts = [self._of(images[i : i + batch_size]) for i in range(0, len(images), batch_size)]
        found = torch.cat(parts).numpy() if parts else np.zeros((0, self.dimension), dtype=np.float32)
        if found.shape != (len(images), self.dimension):
            raise ValueError(
                f"The extractor {self.name!r} must give {self.dimension} features of each image, but {len(images)} images "
                f"gave {found.shape}."
            )
        features = np.asarray(frechet.as_features(found), dtype=np.float32)
        if features.size and (largest := float(np.abs(features).max())) > LARGEST:
            raise ValueError(
                f"The extractor {self.name!r} gave a feature of size {largest:.3g}, and distances are computed of features up "
                f"to {LARGEST:g}. Scale them down."
            )
        return features

    def _of(self, images: Tensor) -> Tensor:
        found = self.function(images.clone())
        if not isinstance(found, Tensor) or found.is_complex():
            what = found.dtype if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"The extractor {self.name!r} must return a tensor of real features [n, {self.dimension}], not {what}."
            )
        return found.float().cpu()

    def behaviour(self, images: Tensor) -> dict[str, Any]:
        """Record of its features of the first few images, for an identity: its code may change under one fingerprint."""
        rows = self(images[:PROBED]).astype(np.float64)
        numbers = tuple(range(len(rows)))
        record = Behaviour(
            t=numbers,
            samples=numbers,
            sizes=tuple(float(np.linalg.norm(row)) for row in rows),
            sketches=tuple(map(sketch, rows)),
            rounding=0.0,
            precision="float32",
            dtype="float32",
            autocast=None,
            device="cpu",
            torch=torch.__version__,
        )
        return {"features_behaviour": record.to_dict()}

    def describe(self) -> dict[str, Any]:
        """Facts about the features that a result must record."""
        return {
            "name": self.name,
            "distance": self.distance,
            "dimension": self.dimension,
            "fingerprint": self.fingerprint,
        }


def to_levels(samples: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Samples in [low, high] as uint8 images, rounded to the nearest level as an image file would be."""
    return ((samples - low) * (255.0 / (high - low)) + 0.5).floor().clamp(0.0, 255.0).to(torch.uint8)


def digest_of(state: dict[str, Tensor]) -> str:
    """Digest of named weights, whatever file they came from."""
    digest = hashlib.sha256()
    for name in sorted(state):
        array = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
