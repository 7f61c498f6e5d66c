"""The request of a race."""

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
MOST_REFERENCE = 128  # steps of the path that counts as all of them, unless others are asked for


@dataclass(frozen=True)
class Wish:
    """The request of a race, besides model, data and folder.

    Attributes:
        sampler: by name, or a function (denoiser, schedule, noise) → samples: see `dpstride.racing.sampling`.
        eta: noise of DDIM.
        variance: reverse variance of ancestral steps; when None those that the model allows race along the winners' paths.
        passes: evaluations of a sample in every step, for a sampler of your own.
        features: a name or path as `dpstride study` takes them, a `FeatureExtractor`, or "none" for the data's own space; what
            fits the data when None.
        budgets: numbers of evaluations of a sample; paths of as many steps as these pay for race.
        also: schedules of your own or published ones that race too, by name: a `ScheduleSet`, `PublishedSchedules` or a file.
        samples: of every path in the final measurement.
        race_samples: of the candidates that come to the last round.
        first_samples: of every candidate in the first round.
        reference: steps of the path that counts as all of them; at most 128 when None, T for all.
        within: difference from the reference's distance that counts as none; a tenth of that distance when None.
        evaluations: the most network evaluations to spend, two for each of a guided model; no limit when None.
        polish: move single times of the winners' paths as long as samples surely come closer.
        choosing: samples of the data for the statistics behind the paths.
        real: samples of real data to measure by, for the race and for the final measurement each.
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
            raise ValueError("Give at least one number of steps to race for.")
        for name, least in (("samples", 3), ("race_samples", 3), ("first_samples", 3), ("choosing", 2), ("real", 3)):
            whole_number(getattr(self, name), f"{name} must be a whole number of at least {least}", least)
        if self.evaluations is not None:
            whole_number(self.evaluations, "evaluations must be a whole number of network evaluations")
        if self.within is not None and not 0.0 < self.within < math.inf:
            raise ValueError(f"within must be a positive distance, not {self.within!r}.")

    def on(self, process: ForwardProcess) -> Wish:
        """The same with published schedules as paths on the grid of the model."""
        return replace(self, also={name: schedules_on(each, process) for name, each in self.also.items()})

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Wish:
        """The wish of these options; an unknown name is refused."""
        names = [each.name for each in fields(cls)]
        for name in options:
            if name not in names:
                raise TypeError(f"tune has no option {name!r}.{hint(name, names)} It has {', '.join(names)}.")
        return cls(**options)


def _schedules(given: Any) -> ScheduleSet | PublishedSchedules:
    """A set of schedules, or that of a file."""
    if isinstance(given, (ScheduleSet, PublishedSchedules)):
        return given
    if isinstance(given, (str, os.PathLike)):
        return read_schedules(given)
    raise ValueError(f"also must name schedules or files of them, not {given!r:.80}.")
