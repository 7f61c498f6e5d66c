"""Published schedules, for import and export: a small JSON file of lists, easily written by hand or with another tool.

`schedules.json` contains the whole process of its model, so that a path is fully specified; a list in a paper contains only
numbers. This is the format for such lists: each with its number of steps, and their source. They become paths on the grid of
the model that they are used with, and lists that do not fit that grid are refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..options import SAMPLERS
from ..process import ForwardProcess
from ..reading.documents import document_of, read_json_object
from ..reading.limits import UnreadableFileError
from ..reading.types import check_types
from ..runs.writing import write_json
from ..schedule import Schedule, ScheduleSet
from .export import sigmas, timesteps

FORMAT = "published-schedules-1"
NOISE_END_TOLERANCE = 0.1  # relative difference allowed between the first level and the model's noise end
FIELDS = ("name", "model", "source", "sampler", "training_steps")


@dataclass(frozen=True)
class PublishedSchedules:
    """Lists of training steps or of noise levels by number of steps, as a paper or another tool gives them.

    Attributes:
        name: name of the schedules.
        timesteps: training steps counted from 0, from the noise end down, by number of steps; these or ``sigmas``.
        sigmas: noise levels g/f from the noise end down without the final 0 (a rectified flow's own times), likewise.
        training_steps: number of training steps of the model, required with ``timesteps``.
        model: the model that they are for, in words or as a hub id.
        source: their source, an address or a paper.
        sampler: the sampler that they are for; used if `sample` has one of this name.
    """

    name: str
    timesteps: dict[str, list[int]] = field(default_factory=dict)
    sigmas: dict[str, list[float]] = field(default_factory=dict)
    training_steps: int | None = None
    model: str = ""
    source: str = ""
    sampler: str = ""

    def __post_init__(self) -> None:
        check_types(self)
        if bool(self.timesteps) == bool(self.sigmas):
            raise ValueError("Published schedules hold either timesteps or sigmas, with at least one list.")
        if self.timesteps and self.training_steps is None:
            raise ValueError("Published timesteps need training_steps, the number that the model was trained with.")
        for key, numbers in self._lists.items():
            if key != str(len(numbers)) or not numbers:
                raise ValueError(f"The list of {key!r:.40} steps has {len(numbers)} numbers. Give one number per step.")
            if any(a <= b for a, b in pairwise(numbers)):
                raise ValueError(f"The list of {key} steps must be strictly decreasing, from the noise end down.")
        least = min(numbers[-1] for numbers in self._lists.values())
        if self.timesteps and least < 0:
            raise ValueError(f"Training steps are counted from 0, but one of them is {least}.")
        if self.sigmas and not least > 0.0:
            raise ValueError(f"Noise levels must be above 0, but one is {least:g}. Leave out the final 0.")

    @property
    def _lists(self) -> dict[str, Sequence[float]]:
        return {**self.timesteps, **self.sigmas}

    @property
    def budgets(self) -> list[int]:
        """Numbers of steps, ascending."""
        return sorted(map(int, self._lists))

    # --- onto a model's grid ---------------------------------------------------------------------------------------------

    def on(self, process: ForwardProcess) -> ScheduleSet:
        """Return the paths on the grid of ``process``: its training steps, or the grid points nearest to the noise levels."""
        options = {"sampler": self.sampler} if self.sampler in SAMPLERS else {}
        told = {key: value for key in FIELDS if (value := getattr(self, key))}
        make = self._of_timesteps if self.timesteps else self._of_sigmas
        return ScheduleSet.of(
            [Schedule(process, make(process, K), options=options, provenance={"published": told}) for K in self.budgets]
        )

    def _of_timesteps(self, process: ForwardProcess, budget: int) -> tuple[int, ...]:
        if process.kind != "discrete" or process.origin_T != self.training_steps:
            raise ValueError(
                f"{self.name!r:.80} counts {self.training_steps:,} training steps, and the model's process {process.name!r} "
                f"has {'none' if process.kind != 'discrete' else f'{process.origin_T:,}'}. Use schedules of this model."
            )
        place = {int(origin): index for index, origin in enumerate(process.origin)}
        wanted = [step + 1 for step in self.timesteps[str(budget)]]
        if missing := [step - 1 for step in wanted if step not in place]:
            raise ValueError(
                f"{self.name!r:.80} visits training step {missing[0]}, which the model's grid does not have."
            )
        return (*(place[step] for step in wanted), 0)

    def _of_sigmas(self, process: ForwardProcess, budget: int) -> tuple[int, ...]:
        flow = process.name == "rectified_flow"
        levels = np.array(self.sigmas[str(budget)], dtype=np.float64)
        with np.errstate(divide="ignore"):
            grid = process.times[1:] if flow else process.g[1:] / process.f[1:]
            scale = grid if flow else np.log(grid)
        if not abs(grid[-1] - levels[0]) <= NOISE_END_TOLERANCE * grid[-1] < np.inf:
            raise ValueError(
                f"{self.name!r:.80} begins its {budget} steps at noise level {levels[0]:g}, but the model's noise end is "
                f"{grid[-1]:g}. Use schedules of this model."
            )
        asked = levels if flow else np.log(levels)
        above = np.searchsorted(scale, asked).clip(max=process.T - 1)
        below = (above - 1).clip(min=0)
        nearest = 1 + np.where(asked - scale[below] <= scale[above] - asked, below, above)
        nearest[0] = process.T  # the path starts at the model's noise end
        if (np.diff(nearest) >= 0).any():
            raise ValueError(
                f"Two noise levels of the {budget} steps of {self.name!r:.80} fall on one point of the model's grid "
                f"(T = {process.T:,}), which is too coarse for so many."
            )
        return (*map(int, nearest), 0)

    # --- files -----------------------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, schedules: ScheduleSet, name: str, *, model: str = "", source: str = "", budgets: Sequence[int] = ()
    ) -> PublishedSchedules:
        """Publish schedules, all of them or those of ``budgets``: training steps of a discrete model, else noise levels."""
        discrete = schedules.process.kind == "discrete"
        chosen = [schedules[K] for K in budgets or schedules.budgets]
        return cls(
            name,
            timesteps={str(each.budget): timesteps(each) for each in chosen} if discrete else {},
            sigmas={} if discrete else {str(each.budget): sigmas(each) for each in chosen},
            training_steps=schedules.process.origin_T if discrete else None,
            model=model,
            source=source,
            sampler=schedules.sampler,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write as JSON, without empty fields."""
        filled = {key: value for key in self.__dataclass_fields__ if (value := getattr(self, key))}
        return write_json(path, {"format": FORMAT, **filled})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PublishedSchedules:
        """Read a file written by `save`, by hand or by another tool; raise `UnreadableFileError` if it is not valid."""
        with document_of(path, FORMAT, "published schedules") as document:
            return cls(**document)


def read_schedules(path: str | os.PathLike[str]) -> ScheduleSet | PublishedSchedules:
    """Read the schedules of a file, ours or published."""
    document: dict[str, Any] = {}
    with suppress(UnreadableFileError):  # its reader raises the error
        document = read_json_object(path)
    return (PublishedSchedules if document.get("format") == FORMAT else ScheduleSet).load(path)


def schedules_on(schedules: ScheduleSet | PublishedSchedules, process: ForwardProcess) -> ScheduleSet:
    """Return published schedules on the grid of a model, and others unchanged."""
    return schedules.on(process) if isinstance(schedules, PublishedSchedules) else schedules
