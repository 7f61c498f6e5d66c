"""The distance of samples from real data: a kernel distance of features, or the energy distance in data space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..evaluate.discrepancy import Discrepancy
from ..evaluate.energy_distance import energy_distance
from ..evaluate.features.extractor import FeatureExtractor
from ..evaluate.frechet import frechet_distance
from ..evaluate.kernel_distance import feature_discrepancy
from ..evaluate.stream import Pictures
from ..integrations.loaded import LoadedModel
from ..runs.storage import Arrays
from ..statistics.data import Samples
from ..study.features import NONE, extractor_named

Features = npt.NDArray[np.float32]
LEAST = 32  # real samples, below which no distance distinguishes paths
BATCH = 64
PROBED = 8
KEPT = 16  # images of every path


@dataclass(frozen=True, eq=False)
class Measure:
    """A distance of samples from real data, and the conversion of samples to images, if they are images.

    Attributes:
        extractor: features of images; None measures in data space.
        pictures: conversion of samples to images; None if they are not images.
    """

    extractor: FeatureExtractor | None = None
    pictures: Pictures | None = None

    def __post_init__(self) -> None:
        if self.extractor is not None and self.pictures is None:
            raise ValueError("Features need images, and these samples are not images. Leave the features out.")

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return "energy distance" if self.extractor is None else f"kernel distance of {self.extractor.name} features"

    @property
    def scale(self) -> float:
        """A power of ten that makes its numbers easy to read."""
        return 1000.0

    def describe(self) -> dict[str, Any]:
        """Everything that its numbers depend on, as JSON values."""
        pictures = self.pictures
        return {
            "distance": "energy" if self.extractor is None else "kernel",
            "extractor": None if self.extractor is None else self.extractor.describe(),
            "keep": None if pictures is None else pictures.keep,
            "value_range": None if pictures is None else list(pictures.value_range),
        }

    def behaviour(self, real: Samples) -> dict[str, Any]:
        """Features of the first real samples, as a record of the extractor's behaviour; empty without an extractor."""
        if self.extractor is None or self.pictures is None:
            return {}
        x = real.batch(0, min(PROBED, len(real)), torch.device("cpu"), torch.float32).x
        return self.extractor.behaviour(self.pictures.of(x))

    def of(self, x: Tensor, first: int = 0) -> Arrays:
        """Features [n, d] of samples first, first + 1, …, and images of those among the first few to keep."""
        images = np.zeros((0, 0, 0, 0), dtype=np.uint8)
        if self.pictures is None:
            features = x.float().cpu().reshape(len(x), -1).numpy()
        else:
            levels = self.pictures.of(x)
            images = levels[: max(0, self.pictures.keep - first)].numpy()
            flat = x.float().cpu().reshape(len(x), -1)
            features = flat.numpy() if self.extractor is None else self.extractor(levels)
        return {"features": features, "images": images}

    def of_real(self, data: Samples) -> Arrays:
        """The same of real data."""
        cpu, parts = torch.device("cpu"), []
        for first in range(0, len(data), BATCH):
            x = data.batch(first, min(first + BATCH, len(data)), cpu, torch.float32).x
            parts.append(self.of(x, first))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def distance(self, features: Features, real: Features) -> Discrepancy:
        """Unbiased distance of samples from real data."""
        return energy_distance(features, real) if self.extractor is None else feature_discrepancy(features, real)

    def frechet(self, features: Features, real: Features) -> float | None:
        """The Fréchet distance of features, which is not used for choosing; None in data space."""
        return None if self.extractor is None else frechet_distance(features, real)


def check_enough(data: Samples, name: str) -> None:
    """Refuse fewer real samples than any distance needs."""
    if len(data) < LEAST:
        raise ValueError(
            f"{name} has {len(data)} samples to measure by, and a distance needs at least {LEAST} to distinguish paths; "
            "a few thousand are better. Give more data."
        )


def measure_of(features: str | FeatureExtractor | None, loaded: LoadedModel, data: Samples) -> Measure:
    """The requested measure, or one that fits the data."""
    first = data.batch(0, 1, torch.device("cpu"), torch.float32).x
    shape = tuple((first if loaded.decode is None else loaded.decode(first)).shape[1:])
    if len(shape) != 3 or shape[0] not in (1, 3):
        if features not in (None, NONE):
            raise ValueError(
                f"features need images of 1 or 3 channels, and these samples have shape {list(shape)}. Leave them out to "
                "measure by the energy distance in data space."
            )
        return Measure()
    ends = (data.data_range.low, data.data_range.high) if loaded.decode is None else (-1.0, 1.0)
    pictures = Pictures(KEPT, loaded.decode, ends)
    extractor = features if isinstance(features, FeatureExtractor) else extractor_named(features, shape)[0]
    if extractor is not None:
        extractor(pictures.of(first))  # fails now, not after hours, on images that it does not take
    return Measure(extractor, pictures)
