"""Samples of any path from the same noises, measured against the same real data; drawn once, kept, and found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..denoiser import Denoiser
from ..evaluate.discrepancy import Discrepancy
from ..evaluate.stream import Conditioning, ImageFeatures, collect_features, walk
from ..evaluate.unit_store import Unit, UnitStore
from ..runs.storage import Arrays
from ..runs.workers import current
from ..schedule import Schedule
from ..statistics.data import Samples
from ..strides import even_stride
from .measure import Features, Measure
from .sampling import Sampling


@dataclass(frozen=True)
class Shot:
    """Samples of one path, measured.

    Attributes:
        distance: from real data, with what each sample is worth; None in helping processes of a launch.
        frechet: the Fréchet distance of the same features, where there are any.
        images: the first few samples, uint8 [m, C, H, W].
    """

    distance: Discrepancy | None
    frechet: float | None = None
    images: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Arena:
    """Model, sampler, noises, real data and measure: everything but the path.

    Attributes:
        denoiser: the model.
        sampling: what draws.
        measure: what measures.
        real: features of the real data.
        conditioning: data whose conditioning samples are given, over and over.
        seed: names all noise, the same for every path.
        folder: where drawn samples are kept.
        identity: what the model is and does, found out once.
        batch_size: samples per network pass.
        update: told of network evaluations as they are made.
    """

    denoiser: Denoiser
    sampling: Sampling
    measure: Measure
    real: Features
    conditioning: Samples
    seed: int
    folder: Path
    identity: Mapping[str, Any]
    batch_size: int = 64
    update: Callable[[int], object] = lambda evaluations: None
    _known: dict[int, dict[str, Any]] = field(default_factory=dict, init=False, repr=False)

    def evaluations(self, schedule: Schedule, n: int) -> int:
        """Network passes of ``n`` samples."""
        return n * self.sampling.cost.along(schedule.budget) * self.denoiser.passes

    def shoot(self, schedule: Schedule, n: int, *, frechet: bool = False) -> Shot:
        """Draw ``n`` samples along a path, as far as they are not kept, and measure them."""
        drawn = self.draw(schedule, n)
        if drawn is None:
            return Shot(None)
        features = np.asarray(drawn.features[:n])
        return Shot(
            self.measure.distance(features, self.real),
            self.measure.frechet(features, self.real) if frechet else None,
            drawn.images,
        )

    def draw(self, schedule: Schedule, n: int) -> ImageFeatures | None:
        """Features of ``n`` samples along a path; None in helping processes of a launch."""
        chain = self.sampling.walk(self.denoiser, schedule, self.seed)
        conditioning = Conditioning.of(self.conditioning, n)
        identity = {
            **self.identity,
            **chain.identity(),
            **self._tried(schedule.budget),
            "kind": "raced samples",
            "conditioning": conditioning.fingerprint,
            "measure": self.measure.describe(),
            "sampler_settings": dict(self.sampling.settings),
        }
        drawn = hashlib.sha256(json.dumps(chain.identity(), sort_keys=True).encode()).hexdigest()[:12]
        path = self.folder / f"{schedule.budget}-{drawn}.safetensors"
        each = self.evaluations(schedule, 1)

        def update(steps: int) -> None:  # an own sampler's walk has one step, whatever it does inside
            self.update(steps * each // chain.budget)

        store = UnitStore(path, identity, self.denoiser.at_once, update)

        def compute(unit: Unit) -> Arrays:
            x = walk(chain, unit, conditioning, store)
            with store.alone:
                return self.measure.of(x, unit[0])

        if current().main:
            self.folder.mkdir(parents=True, exist_ok=True)
        return collect_features(store, n, self.batch_size, compute, received=lambda unit: self.update(unit[1] * each))

    def _tried(self, budget: int) -> dict[str, Any]:
        """Behaviour of the sampler along so many even steps, found out once."""
        if budget not in self._known:
            given = Conditioning.of(self.conditioning, 2).entries
            with current().telling():
                even = even_stride(self.denoiser.process, budget)
                self._known[budget] = self.sampling.behaviour(self.denoiser, even, self.identity, given)
        return self._known[budget]
