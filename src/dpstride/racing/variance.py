"""The race of reverse variances, for samplers that take one: along the winners' paths, since a set of schedules shares one.

How much noise a step adds matters as much as where it ends. Paths race with the variance that maximises the ELBO. Then
samples are drawn along the winning paths, from the same noise, with every variance that the model allows, and the variance
that is closest to real data over all budgets is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import samplers, variances
from ..options import LEARNED_RANGE, VARIANCES, Variance
from ..schedule import Schedule, ScheduleSet
from .halving import Heat, Purse, race
from .sampling import BuiltIn, Sampling

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from .arena import Arena


def rivals(denoiser: Denoiser, sampling: Sampling, asked: Variance | None) -> tuple[Variance, ...]:
    """Variances to race: none if the user chose one, or if the sampler takes none."""
    if asked is not None or not (isinstance(sampling, BuiltIn) and samplers.find(sampling.sampler).takes_variance):
        return ()
    return tuple(name for name in VARIANCES if not variances.find(name).learned or denoiser.variance == LEARNED_RANGE)


def race_variances(
    arena: Arena, sets: Mapping[str, ScheduleSet], paths: Mapping[int, Sequence[int]], samples: int, purse: Purse
) -> tuple[Heat, ...]:
    """Race the variances of ``sets`` along the winners' ``paths`` of each budget, in one round."""
    heats = []
    for path in paths.values():
        runners = {name: each.adopt(Schedule(each.process, tuple(path))) for name, each in sets.items()}
        heats.append(race(arena, runners, [samples], purse))
    return tuple(heats)


def closest(heats: Sequence[Heat]) -> str:
    """The variance with the least sum of distances over all budgets, each relative to the largest of its budget."""
    names = list(heats[0].rounds[-1].distances)

    def share(name: str) -> float:
        rounds = [heat.rounds[-1].distances for heat in heats]
        return sum(each[name][0] / max(value for value, _ in each.values()) for each in rounds)

    return min(names, key=share)
