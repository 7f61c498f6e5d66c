"""The request for a race."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ..integrations.published import PublishedSchedules, read_schedules, schedules_on
from ..options import DEFAULT_ODE_SAMPLER, Variance
from ..reading.hints import hint
from ..runs.numbers import whole_number
from ..schedule import ScheduleSet

if TYPE_CHECKING:
    from ..evaluate.features.extractor import FeatureExtractor
    from ..process import ForwardProcess

BUDGETS = (4, 8, 16, 32)
MOST_REFERENCE = 128  # steps of the reference by default, at most


@dataclass(frozen=True)
class Wish:
    """The user's request: what to race, besides model, data and folder.

    Attributes:
        sampler: a name, or a function (denoiser, schedule, noise) → samples: see `dpstride.racing.sampling`.
        eta: noise scale η of DDIM.
        variance: reverse variance of ancestral steps; if None, those that the model allows race along the winners' paths.
        passes: network evaluations per sample and step, for a sampler of your own.
        features: a name or path as for `dpstride study`, a `FeatureExtractor`, or "none" for the data space itself; chosen to
            fit the data when None.
        budgets: numbers of network evaluations per sample; each is raced with paths of as many steps as it allows.
        also: further schedules to race, your own or published ones, by name: a `ScheduleSet`, `PublishedSchedules` or a file.
        samples: samples per path in the final measurement.
        race_samples: samples per candidate in the last round.
        first_samples: samples per candidate in the first round.
        reference: steps of the even path that stands in for all steps; at most 128 when None, T for all.
        within: difference from the reference's distance that counts as none; a tenth of that distance when None.
        evaluations: limit on network evaluations; each of a guided model counts twice. No limit when None.
        polish: then move single times of the winning paths as long as samples get significantly closer to real data.
        choosing: data samples for the statistics from which paths are computed.
        real: real data samples for the race, and as many others for the final measurement.
    """

    sampler: Any = DEFAULT_ODE_SAMPLER
    eta: float = 0.0
    variance: Variance | None = None
    passes: int = 1
    features: str | FeatureExtractor | None = None
    budgets: tuple[int, ...] = BUDGETS
    also: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 512
    race_samples: int = 256
    first_samples: int = 64
    reference: int | None = None
    within: float | None = None
    evaluations: int | None = None
    polish: bool = False
    choosing: int = 128
    real: int = 2048

    def __post_init__(self) -> None:
        object.__setattr__(self, "budgets", tuple(sorted(set(self.budgets))))
        if not isinstance(self.also, Mapping) or not all(isinstance(name, str) and name for name in self.also):
            raise ValueError(f"also must be a dict of schedules by name, not {self.also!r:.80}.")
        object.__setattr__(self, "also", {name: _schedules(each) for name, each in self.also.items()})
        if not self.budgets:
            raise ValueError("budgets must have at least one number of steps, and is empty. Give one to race for.")
        for name, least in (("samples", 3), ("race_samples", 3), ("first_samples", 3), ("choosing", 2), ("real", 3)):
            whole_number(getattr(self, name), f"{name} must be a whole number of at least {least}", least)
        if self.evaluations is not None:
            whole_number(self.evaluations, "evaluations must be a whole number of network evaluations")
        if self.within is not None and not 0.0 < self.within < math.inf:
            raise ValueError(f"within must be a positive distance, not {self.within!r}.")

    def on(self, process: ForwardProcess) -> Wish:
        """The same request with published schedules as paths on the model's grid."""
        return replace(self, also={name: schedules_on(each, process) for name, each in self.also.items()})

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Wish:
        """The request with these options; an unknown name raises."""
        names = [each.name for each in fields(cls)]
        for name in options:
            if name not in names:
                raise TypeError(f"tune has no option {name!r}.{hint(name, names)} It has {', '.join(names)}.")
        return cls(**options)


def _schedules(given: Any) -> ScheduleSet | PublishedSchedules:
    """A set of schedules, given or read from a file."""
    if isinstance(given, (ScheduleSet, PublishedSchedules)):
        return given
    if isinstance(given, (str, os.PathLike)):
        return read_schedules(given)
    raise ValueError(f"also must hold sets of schedules or files of them, not {given!r:.80}.")
