"""The plan of a study: its work is known before anything long starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluate.comparison import STRIDES, TABLE_BUDGETS, usual_budgets
from ..options import COMPARED_STRIDES
from ..process import ForwardProcess
from ..schedule import Schedule, ScheduleSet
from ..strides import beside

DISTANCE_BUDGETS = (8, 16, 32, 64, 128)
GRID_BUDGETS = (32, 64, 128, 256)
GRID_IMAGES = 10  # of each stride and budget
SAMPLES = 1000
CHOOSING, HELDOUT = 512, 256
TIMES = 256  # approximate number of times evaluated on the choosing samples; statistics are interpolated between them
LONG = 1000  # T above which fewer samples are drawn along all steps
ALL = "all"  # the path of every step, the same for all strides


@dataclass(frozen=True)
class Point:
    """Samples to draw along one path; the first ``measured`` of them are compared with real images."""

    stride: str
    budget: int
    samples: int
    measured: int

    @property
    def scored(self) -> bool:
        """Return whether its distance is measured."""
        return self.measured > 0

    @property
    def evaluations(self) -> int:
        """Network evaluations."""
        return self.budget * self.samples

    @property
    def name(self) -> str:
        """Its name in files and messages."""
        return f"{self.stride}-{self.budget}"


@dataclass(frozen=True)
class Plan:
    """All work of the network."""

    points: tuple[Point, ...]
    choosing: int  # samples
    choosing_times: int
    heldout: int
    T: int

    @property
    def statistics_evaluations(self) -> int:
        """Network evaluations of the two passes over data."""
        return self.choosing * self.choosing_times + self.heldout * self.T

    @property
    def sampling_evaluations(self) -> int:
        """Network evaluations of all samples."""
        return sum(point.evaluations for point in self.points)

    def lines(self) -> list[str]:
        """The plan in words."""
        scored = [point for point in self.points if point.scored]
        times = "every time"
        if self.choosing_times < self.T:
            times = f"{self.choosing_times:,} of {self.T:,} times, interpolated between them"
        lines = [
            f"Choose   {self.choosing:,} samples at {times}: {self.choosing * self.choosing_times:,} network evaluations",
            f"Score    {self.heldout:,} held-out samples at every time: {self.heldout * self.T:,}",
        ]
        for K in sorted({point.budget for point in scored}):
            here = [point for point in scored if point.budget == K]
            along = f"all {K:,} steps" if here[0].stride == ALL else f"each of {len(here)} strides of {K} steps"
            count = sum(point.evaluations for point in here)
            lines.append(f"Sample   {here[0].measured:,} along {along}: {count:,}")
        if others := [point for point in self.points if not point.scored]:
            budgets = ", ".join(str(budget) for budget in sorted({point.budget for point in others}))
            count = sum(point.evaluations for point in others)
            lines.append(f"Sample   {others[0].samples} for display, along each path of {budgets} steps: {count:,}")
        return lines


def make_plan(
    process: ForwardProcess,
    samples: int = SAMPLES,
    all_samples: int | None = None,
    *,
    budgets: Sequence[int] | None = None,
    choosing: int = CHOOSING,
    heldout: int = HELDOUT,
    drawn: bool = True,
    scored: bool = True,
) -> Plan:
    """The samples to draw: every stride at every budget, and all steps once, cheapest first.

    ``all_samples`` defaults to ``samples`` for up to 1,000 steps and to proportionally fewer for more, because a sample along
    all steps costs T evaluations. ``budgets`` default to 8 … 128. Without features nothing is ``scored``, and samples that are
    not images are not ``drawn``.
    """
    T = process.T
    if wrong := [budget for budget in budgets or () if budget < 1]:
        raise ValueError(f"Budgets must be at least 1 step, not {wrong[0]}.")
    if wrong := [budget for budget in budgets or () if budget > T]:
        raise ValueError(f"No path has more than T = {T} steps, so none has {wrong[0]}. Choose smaller budgets.")
    if samples < 2:
        raise ValueError(f"A distance needs at least 2 samples, not {samples}.")
    if all_samples is not None and all_samples > samples:
        raise ValueError(
            f"All steps cannot have more samples ({all_samples}) than the strides ({samples}): a Fréchet distance gets smaller "
            "with more samples alone. Give at most as many samples for all steps."
        )
    most = max(2, round(samples * min(1.0, LONG / T))) if all_samples is None else all_samples
    wanted = usual_budgets(T, DISTANCE_BUDGETS) if budgets is None else {int(budget) for budget in budgets} - {T}
    chosen = sorted(wanted) if scored else []
    points = [Point(stride, K, samples, samples) for K in chosen for stride in STRIDES]
    points += [Point(stride, K, GRID_IMAGES, 0) for K in grid_budgets(T) if K not in chosen for stride in STRIDES]
    points.append(Point(ALL, T, max(most, GRID_IMAGES), most) if scored else Point(ALL, T, GRID_IMAGES, 0))
    return Plan(
        points=tuple(sorted(points, key=lambda point: point.evaluations)) if drawn else (),
        choosing=choosing,
        choosing_times=len(choosing_steps(process)),
        heldout=heldout,
        T=T,
    )


def grid_budgets(T: int) -> list[int]:
    """Budgets whose samples are shown side by side."""
    return usual_budgets(T, GRID_BUDGETS if GRID_BUDGETS[0] < T else TABLE_BUDGETS)


def choosing_steps(process: ForwardProcess, times: int = TIMES) -> list[int]:
    """At most about ``times`` grid indices, even in log-SNR (in which statistics are smooth), including both ends."""
    if times >= process.T:
        return list(range(1, process.T + 1))
    snr = (process.f[1:] / process.g[1:]) ** 2
    position = -np.log(np.maximum(snr, 1e-8))
    even = np.searchsorted(position, np.linspace(position[0], position[-1], times)) + 1
    # Some of them share an index where the grid is coarse; the others are spread evenly over the grid.
    found = set(np.minimum(even, process.T).tolist())
    spare = times - len(found)
    found |= set(np.linspace(1, process.T, max(spare, 2)).round().astype(int).tolist())
    return sorted(found)


def schedule_of(point: Point, schedules: ScheduleSet) -> Schedule:
    """The path of a point, with the options and fitted numbers of the DP schedules."""
    # Every stride of T steps takes all steps.
    return beside(schedules, COMPARED_STRIDES[0] if point.stride == ALL else point.stride, point.budget)
