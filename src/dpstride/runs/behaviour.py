"""A model's outputs on a few fixed inputs, compared with those of another run's model.

Weights alone do not identify a model: the code around them, plain attributes, the precision and torch.autocast change its
outputs too. So the outputs on the inputs of `probes` are saved with progress and with results, and a run that resumes must
reproduce them. Rounding is not a change: it depends on batch sizes, threads and devices. The change in a batch of two is
measured and saved; four times that is allowed, and at least `SAME_PLACE` of the output's size. On another device or version
of torch, with other kernels, at least `ELSEWHERE` is allowed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..reading.types import check_types

Array = npt.NDArray[np.float64]
BUCKETS = 64
MARGIN = 4.0
IN_BATCH = 0.05  # of an output's size: rounding in 16 bits between batches of one and of two; more is refused
SAME_PLACE = {"float64": 1e-10, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}
ELSEWHERE = {"float64": 1e-6, "float32": 1e-2, "float16": 2e-2, "bfloat16": 5e-2}  # float32: convolutions in TF32


@dataclass(frozen=True)
class Subject:
    """A kind of object whose behaviour is recorded, in words."""

    name: str
    output: str
    place: str
    same: str


NETWORK = Subject("model", "the network's output", "at t = {}", "weights are")
SAMPLER = Subject("sampler", "what it draws", "along {} even steps", "name is")
EXTRACTOR = Subject("feature extractor", "what it gives", "for real image {}", "fingerprint is")
SUBJECTS = {
    "behaviour": NETWORK,
    "sampler_behaviour": SAMPLER,
    "features_behaviour": EXTRACTOR,
}  # by their names in an identity


@dataclass(frozen=True)
class Behaviour:
    """Sketches of a model's outputs at grid indices ``t`` on the samples numbered ``samples``.

    ``precision`` is the lowest of the network's input, its output and autocast; ``rounding`` is the largest change of an
    output in a batch of two, relative to its size.
    """

    t: tuple[int, ...]
    samples: tuple[int, ...]
    sizes: tuple[float, ...]
    sketches: tuple[tuple[float, ...], ...]
    rounding: float
    precision: str
    dtype: str
    autocast: str | None
    device: str
    torch: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Any) -> Behaviour:
        """Read what `to_dict` returned, before or after JSON; raise ValueError for anything else."""
        if not isinstance(document, Mapping) or document.keys() != {field.name for field in fields(cls)}:
            raise ValueError("it is not a record of a model's behaviour")
        found = cls(**{name: _tuples(value) for name, value in document.items()})
        check_types(found)
        found._check()
        return found

    def _check(self) -> None:
        lengths = {len(self.t), len(self.samples), len(self.sizes), len(self.sketches)}
        numbers = [*self.sizes, self.rounding, *(number for sketch in self.sketches for number in sketch)]
        if len(lengths) > 1 or any(len(sketch) != BUCKETS for sketch in self.sketches):
            raise ValueError("a record of a model's behaviour has parts of different lengths")
        possible = all(abs(number) < 1e300 for number in numbers) and 0.0 <= self.rounding <= IN_BATCH
        if self.precision not in SAME_PLACE or not possible or min(self.sizes, default=0.0) < 0.0:
            raise ValueError("a record of a model's behaviour has impossible numbers")

    def difference(self, now: Behaviour, of: Subject = NETWORK) -> str | None:
        """Describe how much and where the model behaves differently ``now``; None if that is rounding."""
        for name in ("dtype", "autocast"):
            if (there := getattr(self, name)) != (here := getattr(now, name)):
                return f"{name} (there {there!r}, here {here!r}) differs, which changes what the network computes"
        places = {(t, sample): place for place, (t, sample) in enumerate(zip(self.t, self.samples, strict=True))}
        found = [
            (self._distance(places[key], now, place), key[0])
            for place, key in enumerate(zip(now.t, now.samples, strict=True))
            if key in places
        ]
        if not found:
            return "its probe inputs are different"
        far, t = max(found)
        allowed, why = self.tolerance(now)
        if far <= allowed:
            return None
        return (
            f"on the same inputs {of.output} differs by {far:.2g} of its size {of.place.format(t)}, where rounding may reach "
            f"{allowed:.2g} ({why}), though its {of.same} the same: its code, its attributes or its settings have changed"
        )

    def _distance(self, place: int, now: Behaviour, other: int) -> float:
        gap = math.dist(self.sketches[place], now.sketches[other])
        return gap / max(self.sizes[place], now.sizes[other], 1e-300)

    def tolerance(self, now: Behaviour) -> tuple[float, str]:
        """Return the relative change of an output that rounding may cause, and in words where both were computed."""
        same = (self.device, self.torch) == (now.device, now.torch)
        least = max((SAME_PLACE if same else ELSEWHERE)[each.precision] for each in (self, now))
        where = "" if same else f", on {now.device} with torch {now.torch} after {self.device} with torch {self.torch}"
        return max(least, MARGIN * max(self.rounding, now.rounding)), f"{now.precision}{where}"


def sketch(output: Array) -> tuple[float, ...]:
    """Return `BUCKETS` sums of an output's numbers with random signs, which preserve distances between outputs on average."""
    flat = output.reshape(-1)
    padded = np.zeros(-(-flat.size // BUCKETS) * BUCKETS)
    padded[: flat.size] = np.where(_negative(flat.size), -flat, flat)
    return tuple(padded.reshape(-1, BUCKETS).sum(axis=0).tolist())


@functools.lru_cache(maxsize=2)
def _negative(size: int) -> npt.NDArray[np.bool_]:
    words = np.random.Philox(key=0).random_raw(-(-size // 64)).astype("<u8")
    return np.unpackbits(words.view(np.uint8))[:size].astype(bool)


def _tuples(value: Any, depth: int = 2) -> Any:
    """Convert lists to tuples, up to the depth of records."""
    return tuple(_tuples(inner, depth - 1) for inner in value) if isinstance(value, (list, tuple)) and depth else value
