"""Samples of any path from the same noise, measured against the same real data; drawn once and cached."""

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
class Score:
    """Measured samples of one path.

    Attributes:
        distance: distance from real data, with each sample's contribution; None outside the main process of a launch.
        frechet: Fréchet distance of the same features, if there are any.
        images: the first few samples, uint8 [m, C, H, W].
    """

    distance: Discrepancy | None
    frechet: float | None = None
    images: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Arena:
    """Where candidates race: model, sampler, noise, real data and measure, everything but the path.

    Attributes:
        denoiser: the model.
        sampling: the sampler.
        measure: the distance from real data.
        real: features of the real data.
        conditioning: data whose conditioning is used for the samples, cycled if there are more samples.
        seed: random seed for all noise, the same for every path.
        folder: folder of cached samples.
        identity: description and behaviour of the model, probed once.
        batch_size: samples per network pass.
        update: called with the numbers of network evaluations as they are made.
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
        """Network passes for ``n`` samples."""
        return n * self.sampling.cost.along(schedule.budget) * self.denoiser.passes

    def score(self, schedule: Schedule, n: int, *, frechet: bool = False) -> Score:
        """Draw those of ``n`` samples along a path that are not cached, and measure all."""
        drawn = self.draw(schedule, n)
        if drawn is None:
            return Score(None)
        features = np.asarray(drawn.features[:n])
        return Score(
            self.measure.distance(features, self.real),
            self.measure.frechet(features, self.real) if frechet else None,
            drawn.images,
        )

    def draw(self, schedule: Schedule, n: int) -> ImageFeatures | None:
        """Features of ``n`` samples along a path; None outside the main process of a launch."""
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

        def update(steps: int) -> None:  # the walk of a user's own sampler has one step, whatever it does inside
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
        """Behaviour of the sampler along ``budget`` even steps, probed once."""
        if budget not in self._known:
            given = Conditioning.of(self.conditioning, 2).entries
            with current().telling():
                even = even_stride(self.denoiser.process, budget)
                self._known[budget] = self.sampling.behaviour(self.denoiser, even, self.identity, given)
        return self._known[budget]
