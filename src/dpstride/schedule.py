"""Stage 4. A schedule: a path through the grid, what it costs, and where it came from; saved as JSON.

A path is only grid indices, so this stage comes before costs and solver, which produce schedules, and beside the
hand-made strides, which are schedules too. One `ScheduleSet` holds the best path of every budget of one model.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import __version__
from .fitted import Fitted
from .options import DEFAULT_SAMPLER, GIVEN, Sampler
from .paths import (
    ByBudget,
    Entry,
    ScheduleFileError,
    check_path,
    entries_from_json,
    entries_to_json,
    read_schedule_file,
)
from .process import ARRAYS, FACTS, ForwardProcess
from .runs.arguments import check_kinds
from .runs.numbers import looked_up, spans
from .runs.writing import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]
FORMAT = "dpstride-schedules"
FORMAT_VERSION = 1


class Chosen:
    """Purpose of a schedule or a set of schedules, read from its options and provenance."""

    options: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @property
    def sampler(self) -> Sampler:
        """The sampler that the path is for."""
        sampler: Sampler = self.options.get("sampler", DEFAULT_SAMPLER)
        return sampler

    @property
    def eta(self) -> float:
        """The noise option of that sampler; 0 if it is not recorded."""
        return float(self.options.get("eta", 0.0))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one sample of the model that the path is for; None if unknown."""
        shape = self.provenance.get("shape")
        return tuple(shape) if isinstance(shape, (list, tuple)) else None

    def check_shape(self, shape: Sequence[int] | None) -> None:
        """Refuse samples of another shape than those that the path was chosen for: they are another model's."""
        if shape is None or self.shape is None or self.shape == tuple(shape):
            return
        raise ValueError(
            f"The schedule was chosen for samples of shape {self.shape}, and these have shape {tuple(shape)}: it belongs to "
            "another model. Use schedules of this model, or run optimise on it."
        )


@dataclass(frozen=True, eq=False)
class Schedule(Chosen):
    """One path: ``steps`` are grid indices of ``process`` from the noise end down to 0.

    ``stride`` says where it came from: "dp" for the best path of a solution, the name of a rule ("even", "quadratic", …),
    or "given" for a path made by hand.
    """

    process: ForwardProcess = field(repr=False)
    steps: tuple[int, ...]
    stride: str = GIVEN
    bpd: float | None = None
    standard_error: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    fitted: Fitted = field(default_factory=Fitted, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_kinds(Schedule, process=self.process)
        object.__setattr__(self, "steps", check_path(self.steps, self.process.T))
        self.fitted.check(self.process.T)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.steps if self.budget < 6 else (*self.steps[:4], "…", 0)))
        bpd = "" if self.bpd is None else f", {self.bpd:.4f} bits/dim predicted"
        return f"<Schedule of {self.budget} steps on {self.process.name}, T = {self.process.T}: {shown}{bpd}>"

    @property
    def budget(self) -> int:
        """Number of refinement steps = network evaluations when sampling."""
        return len(self.steps) - 1

    @property
    def times(self) -> tuple[float, ...]:
        """The grid's times along the path (training steps for a discrete model)."""
        return tuple(float(self.process.times[step]) for step in self.steps)

    # --- export to other packages' samplers; the conventions are in integrations/export.py -----------------------------

    def for_diffusers(self, scheduler: Any = None, mu: float | None = None) -> list[int] | list[float]:
        """The list for diffusers' ``timesteps=``, or for ``sigmas=`` where the scheduler (or a flow) takes noise levels."""
        from .integrations.export import for_diffusers

        return for_diffusers(self, scheduler, mu)

    def for_k_diffusion(self) -> Any:
        """Noise levels for k-diffusion's samplers, a tensor with the final 0."""
        from .integrations.export import for_k_diffusion

        return for_k_diffusion(self)

    def for_improved_diffusion(self) -> set[int]:
        """The set for improved-diffusion's ``SpacedDiffusion(use_timesteps=…)``."""
        from .integrations.export import for_improved_diffusion

        return for_improved_diffusion(self)

    def for_comfyui(self) -> str:
        """The text for ComfyUI's ManualSigmas node: noise levels with the final 0."""
        from .integrations.export import for_comfyui

        return for_comfyui(self)

    def for_a1111(self) -> str:
        """The list for the "custom" scheduler of A1111's and Forge's extension webUI_ExtraSchedulers."""
        from .integrations.export import for_a1111

        return for_a1111(self)

    def diffusers_code(self, sampler: Sampler | None = None) -> str:
        """A Python program that samples along this path with diffusers alone; ``sampler`` is the schedule's own by default."""
        from .integrations.diffusers_code import diffusers_code

        return diffusers_code(self, sampler)

    # --- in a notebook; figures and tables are in report/notebook.py --------------------------------------------------

    def plot(self) -> Figure:
        """The path on the noise axis, as a matplotlib figure."""
        from .report.notebook import plot_schedule

        return plot_schedule(self)

    def _repr_html_(self) -> str:
        from .report.notebook import schedule_html

        return schedule_html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write as a schedule set of one budget."""
        ScheduleSet.of([self]).save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schedule:
        """Read what `save` wrote."""
        schedules = ScheduleSet.load(path)
        if len(schedules) != 1:
            raise ScheduleFileError(
                f"{path}: holds {len(schedules)} schedules; read it with ScheduleSet.load and choose a budget."
            )
        return next(iter(schedules))


@dataclass(frozen=True, eq=False)
class ScheduleSet(Chosen, ByBudget[Schedule]):
    """The best schedule of every budget: ``schedules[32]`` is that of 32 steps."""

    process: ForwardProcess
    entries: Mapping[int, Entry]  # budget → steps, bpd, standard error
    stride: str = GIVEN
    options: Mapping[str, Any] = field(default_factory=dict)
    fitted: Fitted = field(default_factory=Fitted)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, schedules: Sequence[Schedule]) -> ScheduleSet:
        """A set from schedules of different budgets, of one process, one stride and one set of options."""
        if isinstance(schedules, Schedule) or not isinstance(schedules, Iterable):
            raise ValueError("ScheduleSet.of takes a list of schedules, even for a single one. Give [schedule].")
        if not schedules:
            raise ValueError("A ScheduleSet needs at least one schedule, but the list is empty.")
        first = schedules[0]
        for other in schedules[1:]:
            one_kind = (other.stride, dict(other.options)) == (first.stride, dict(first.options))
            if not (one_kind and _same_process(other, first) and first.fitted.same(other.fitted)):
                raise ValueError(
                    "The schedules of a set must share process, stride, options and fitted numbers, but those of "
                    f"{first.budget} steps ({first.stride}) and of {other.budget} ({other.stride}) do not. Make one set "
                    "of each kind."
                )
        if len({s.budget for s in schedules}) < len(schedules):
            raise ValueError("The schedules of a set must have different budgets. Keep one of each.")
        return cls(
            process=first.process,
            entries={s.budget: (s.steps, s.bpd, s.standard_error) for s in schedules},
            stride=first.stride,
            options=first.options,
            fitted=first.fitted,
            provenance=first.provenance,
        )

    def __repr__(self) -> str:
        process = f"{self.process.name}, T = {self.process.T}"
        return f"<ScheduleSet of {process}: {len(self)} schedules, of {spans(self.budgets)} steps>"

    def __getitem__(self, budget: int) -> Schedule:
        if looked_up(budget, "steps") not in self.entries:
            T = self.process.T
            more = (
                ", or solve again for more budgets (max_budget=, --max-budget)"
                if budget <= T
                else f"; no path has more than T = {T}"
            )
            raise ValueError(
                f"There is no schedule of {budget} steps here; budgets are {spans(sorted(self.entries))}. Ask for one of "
                f"them{more}."
            )
        steps, bpd, standard_error = self.entries[budget]
        return Schedule(
            self.process,
            steps,
            self.stride,
            bpd=bpd,
            standard_error=standard_error,
            options=self.options,
            fitted=self.fitted,
            provenance=self.provenance,
        )

    @property
    def best_budget(self) -> int:
        """The budget of least bits/dim; fewer than all steps when more steps hurt this model."""
        return min(self.budgets, key=lambda budget: (_number(self.entries[budget][1]), budget))

    def within(self, tolerance: float) -> int:
        """The fewest steps within ``tolerance`` bits/dim of the best budget, as predicted on the choosing data."""
        if not (isinstance(tolerance, (int, float)) and tolerance >= 0.0):
            raise ValueError(f"The tolerance must be 0 or more bits/dim, not {tolerance!r}.")
        best = _number(self.entries[self.best_budget][1])
        return next(budget for budget in self.budgets if _number(self.entries[budget][1]) <= best + tolerance)

    def adopt(self, schedule: Schedule) -> Schedule:
        """``schedule`` (an even stride, say) with this set's options and fitted numbers, for a fair comparison."""
        check_kinds(ScheduleSet.adopt, schedule=schedule)
        if not _same_process(schedule, self):
            raise ValueError("The schedule belongs to another process than this set; make it on schedules.process.")
        return replace(schedule, options=self.options, fitted=self.fitted)

    def plot(self) -> Figure:
        """Predicted bits/dim against budget and the steps of some budgets, as a matplotlib figure."""
        from .report.notebook import plot_schedules

        return plot_schedules(self)

    def _repr_html_(self) -> str:
        from .report.notebook import schedules_html

        return schedules_html(self)

    # --- JSON ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` as JSON, atomically."""
        process = self.process
        document = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "package_version": __version__,
            "stride": self.stride,
            "options": dict(self.options),
            "provenance": dict(self.provenance),
            "process": {
                "name": process.name,
                **process.facts,
                **{name: array.tolist() for name, array in process.arrays.items()},
            },
            "fitted": self.fitted.to_json(),
            "schedules": entries_to_json(self.entries, "bpd"),
        }
        write_json(path, document, indent=None)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ScheduleSet:
        """Read what `save` wrote; anything else raises `ScheduleFileError`."""
        document = read_schedule_file(path, FORMAT, FORMAT_VERSION)
        try:
            parts = document["process"]
            if parts.keys() != {*FACTS, *ARRAYS}:
                wrong = sorted({*FACTS, *ARRAYS} ^ parts.keys())
                raise ValueError(f"the process has a missing or an unknown entry: {wrong[0]!r:.80}")
            process = ForwardProcess(**parts)
            entries = entries_from_json(document["schedules"], "bpd", process.T)
            fitted = Fitted.from_json(document["fitted"], process.T)
            options, provenance, stride = document["options"], document["provenance"], document["stride"]
            if not (isinstance(options, dict) and isinstance(provenance, dict) and isinstance(stride, str)):
                raise ValueError("options and provenance must be objects, and stride a string")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ScheduleFileError(f"{path}: not a valid schedule file ({error!s:.300}). Write it again.") from error
        return cls(process, entries, stride, options, fitted=fitted, provenance=provenance)


def _same_process(one: Schedule | ScheduleSet, other: Schedule | ScheduleSet) -> bool:
    return one.process is other.process or one.process.fingerprint == other.process.fingerprint


def _number(value: float | None) -> float:
    return math.inf if value is None else value
