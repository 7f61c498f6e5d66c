"""One job: a request for a model and data, checked before the network runs, and its result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..options import (
    DEFAULT_DECODER,
    DEFAULT_OBJECTIVE,
    DEFAULT_ODE_SAMPLER,
    OBJECTIVES,
    SAMPLERS,
    Decoder,
    Objective,
    Sampler,
    Variance,
    check_choice,
)
from ..runs.execution import Execution
from ..runs.folder import Needed, begin
from ..runs.numbers import positive
from ..runs.pulse import Pulse
from ..runs.record import Run
from .heard import heard
from .inputs import Asked, shared_note, split

if TYPE_CHECKING:
    from ..adaptive.report import AdaptiveReport
    from ..denoiser import Denoiser
    from ..evaluate.comparison import Comparison
    from ..integrations.loaded import LoadedModel
    from ..masked.comparison import MaskedComparison
    from ..masked.schedule import MaskedScheduleSet
    from ..schedule import ScheduleSet
    from ..statistics.artefact import Statistics
    from ..statistics.data import Samples
    from ..statistics.identity import Inputs

TOLERANCE = 0.01
WEIGHT = 10.0
TRAJECTORIES = 64
TEACHER_STEPS = 1000
STATISTICS, HELDOUT = "statistics.safetensors", "heldout.safetensors"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """The request, besides model, data and folder.

    Attributes:
        objective: what paths are chosen for.
        variance: reverse variance; the model's own when None.
        decoder: variance of the last step.
        max_budget: largest number of steps; all when None.
        budgets: numbers of steps that the tolerance and the tables are for; the usual ones when None.
        tolerance: paths of an adaptive estimate are within this many bits/dim of the best; None evaluates every grid index.
        pictures: number of steps to draw images with, along the path found and hand-made strides; 0 draws none.
        sampler: the sampler that schedules for samples, or for a trajectory, are made for.
        eta: noise of that sampler, if it has this option.
        exponent: for samples: p of the weight σ^p of noise levels; the default when None.
        band: for samples: the noise levels that count, in standard deviations of the data; the default when None.
        cap: for samples: cap on errors, in units of the data's variance; the default when None.
        evenness: for samples: share of even steps in the cost; the default when None.
        weight: of the mixed objective: bits/dim that a mean square distance of 1 per dimension is worth.
        trajectories: number of noise samples for the reference sampler.
        teacher_steps: maximum number of steps of the reference sampler, and of the grid that paths are chosen on.
        check: check with several hundred evaluations that the model is described correctly; a note tells if it is not.
    """

    objective: Objective = DEFAULT_OBJECTIVE
    variance: Variance | None = None
    decoder: Decoder = DEFAULT_DECODER
    max_budget: int | None = None
    budgets: tuple[int, ...] | None = None
    tolerance: float | None = TOLERANCE
    pictures: int | None = None
    sampler: Sampler = DEFAULT_ODE_SAMPLER
    eta: float = 0.0
    exponent: float | None = None
    band: tuple[float, float] | None = None
    cap: float | None = None
    evenness: float | None = None
    weight: float = WEIGHT
    trajectories: int = TRAJECTORIES
    teacher_steps: int = TEACHER_STEPS
    check: bool = True

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            positive(self.tolerance, "tolerance must be a positive number, or None for every step")


@dataclass(frozen=True, repr=False)
class Found:
    """Result of `find`; everything in it is also in the files.

    Attributes:
        schedules: the best schedule of every budget.
        comparison: held-out bits/dim compared with hand-made strides; None if end points are compared instead.
        adaptive: network evaluations spent and saved, and the estimated regret; None if all were made.
        answer: one sentence: how few steps are enough.
        notes: caveats, without which the numbers could mislead.
        files: all files written, the page first if there is one.
        details: the numbers of the summary, as JSON values.
        summary: the table, the answer, the notes and the files, as text.
    """

    schedules: ScheduleSet | MaskedScheduleSet
    comparison: Comparison | MaskedComparison | None
    adaptive: AdaptiveReport | None
    answer: str
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    details: dict[str, Any] = field(default_factory=dict)
    summary: str = ""

    def __repr__(self) -> str:
        return f"<Found {len(self.schedules)} schedules in {self.files[0].parent}: {self.answer}>"

    def __str__(self) -> str:
        return self.summary


@dataclass(frozen=True)
class Job:
    """A job ready to run: everything is loaded and checked, and nothing is written yet."""

    loaded: LoadedModel
    choosing: Samples
    scoring: Samples
    output: Path
    request: Request
    how: Execution
    notes: tuple[str, ...]
    say: Say
    inputs: Inputs
    record: Run
    doing: Say = lambda what: None  # names the work in progress, for lines on its duration

    @property
    def denoiser(self) -> Denoiser:
        """The model on the grid that paths are chosen on."""
        return finder_of(self.request.objective).on_grid(self.loaded.denoiser, self.request)

    def execution(self, name: str) -> Execution:
        """Return the execution of the statistics in the file ``name``; held-out statistics use the next seed for noise."""
        seed = self.how.seed + (name == HELDOUT)
        return replace(self.how, seed=seed, checkpoint=self.output / name)

    def evaluations(self) -> tuple[int, str]:
        """Return the number of network evaluations and its accuracy: "", "about " or "at most about "."""
        return finder_of(self.request.objective).evaluations(self)

    def seconds_per_evaluation(self) -> float:
        """Time a few evaluations of the same work."""
        from .expected import seconds_to_estimate

        return seconds_to_estimate(self.loaded.denoiser, self.choosing, self.how.batch_size)

    def plan(self) -> str:
        """Describe the work ahead."""
        from ..statistics.files import describe_source

        denoiser, process = self.loaded.denoiser, self.loaded.denoiser.process
        clip = "no clipping" if denoiser.clip is None else f"x0 clipped to [{denoiser.clip[0]:g}, {denoiser.clip[1]:g}]"
        model = f"Model    {self.record.model}: predicts {denoiser.predicts}, {denoiser.variance} variance, {clip}"
        lines = [model, *notes_of(self.loaded), f"Process  {process.name}, {process.kind}, T = {process.T}"]
        if (count := finder_of(self.request.objective).noise_samples(self.request)) is not None:
            return "\n".join([*lines, f"Noise    {count} samples choose the path, {len(self.scoring)} others score it"])
        shape = self.choosing.shape
        lines += [
            f"Data     {len(self.choosing)} samples of shape {shape} choose the path ({describe_source(self.record.data)})",
            f"         {len(self.scoring)} other samples score it ({describe_source(self.record.heldout)})",
        ]
        return "\n".join(lines)

    def run(self, overwrite: bool = False) -> Found:
        """Run the job; the folder must be locked. Results of another run are refused, or removed with ``overwrite``."""
        from ..statistics.passes import ClippingWarning

        finder = finder_of(self.request.objective)
        begin(self.output, self.record, finder.needed(self), overwrite)
        with warnings.catch_warnings(), Pulse(self.say, bars=self.how.progress) as pulse:
            warnings.simplefilter("ignore", ClippingWarning)  # already given, for all data at once
            job = replace(self, say=pulse.say, doing=pulse.doing)
            if self.request.check and is_checked(self.request):
                from .description import description_notes

                job = replace(job, notes=(*self.notes, *description_notes(job)))
            return finder.run(job, overwrite)


class Finder(Protocol):
    """The interface of an objective's file."""

    USES: tuple[str, ...]  # options of a request, or of its execution, that do not apply to every objective

    def on_grid(self, denoiser: Denoiser, request: Request) -> Denoiser:
        """Return the model on the grid that paths are chosen on; refuse early what would fail after hours."""

    def noise_samples(self, request: Request) -> int | None:
        """Return the number of noise samples that choose the path; None if data choose it."""

    def options(self, denoiser: Denoiser, samples: int, request: Request, how: Execution) -> dict[str, Any]:
        """Return the options that results depend on, besides model, data and seed."""

    def needed(self, job: Job) -> dict[str, Needed]:
        """Return the statistics that it keeps, by the names of their files."""

    def evaluations(self, job: Job) -> tuple[int, str]:
        """Return the number of network evaluations and its accuracy in words."""

    def run(self, job: Job, overwrite: bool) -> Found:
        """Do the work and write each result as soon as it is ready."""


def finder_of(objective: str) -> Finder:
    """Return the part of the main job that is specific to an objective."""
    return cast(Finder, import_module(f".{objective}", __package__))


def is_checked(request: Request) -> bool:
    """Return whether the model's description can be checked, which takes data that choose the path."""
    return finder_of(request.objective).noise_samples(request) is None


def request_from(options: Mapping[str, Any]) -> Request:
    """Return the request with these options; an unknown name is refused."""
    from ..reading.hints import hint

    names = [each.name for each in fields(Request)]
    for name in options:
        if name not in names:
            raise TypeError(f"find has no option {name!r}.{hint(name, names)} It has {', '.join(names)}.")
    found = Request(**options)
    check_choice("objective", found.objective, OBJECTIVES)
    check_choice("sampler", found.sampler, SAMPLERS)
    return replace(found, budgets=None if found.budgets is None else tuple(found.budgets))


def check_uses(objective: str, given: Iterable[str], spelling: Callable[[str], str] = str) -> None:
    """Refuse options that apply only to other objectives."""
    for name in given:
        users = [each for each in OBJECTIVES if name in finder_of(each).USES]
        if users and objective not in users:
            raise ValueError(
                f"{spelling(name)} is for {spelling('objective')} {' or '.join(users)}; with {objective} it has no effect. "
                "Leave it out."
            )


def prepare(
    loaded: LoadedModel,
    parts: tuple[Samples, Samples],
    output: Path,
    request: Request,
    *,
    how: Execution,
    record: Callable[[dict[str, Any]], Run],
    notes: tuple[str, ...] = (),
    say: Say = lambda text: None,
) -> Job:
    """Check everything for which a job on ``parts``, data to choose on and to score on, could be refused.

    ``record`` makes the record of a run from its identity; ``notes`` go to the notes of the result.
    """
    from ..statistics.identity import Inputs
    from ..statistics.passes import warn_about_clipping

    check_costs(loaded.denoiser, request, *parts)
    if loaded.denoiser.shape is None:
        loaded.denoiser.shape = parts[0].shape
    finder = finder_of(request.objective)
    if finder.noise_samples(request) is None:
        notes = (*heard(lambda: warn_about_clipping(loaded.denoiser, *parts))[1], *notes)
    options = finder.options(loaded.denoiser, len(parts[0]), request, how)
    if is_checked(request):
        options["check"] = request.check
    inputs = Inputs.of(finder.on_grid(loaded.denoiser, request), *parts, how.seed)
    run = record(inputs.run("find", options, request.objective))
    return Job(loaded, *parts, output, request, how=how, notes=notes, say=say, inputs=inputs, record=run)


def prepare_asked(
    loaded: LoadedModel,
    asked: Asked,
    request: Request,
    output: Path,
    *,
    how: Execution,
    record: Callable[[dict[str, Any]], Run],
    say: Say,
) -> Job:
    """Prepare a job from data as named by a caller."""
    parts, notes = heard(lambda: split(asked, loaded, how.seed))
    if asked.heldout is not None:
        notes += shared_note(*parts)
    return prepare(loaded, parts, output, request, how=how, record=record, notes=notes, say=say)


def notes_of(loaded: LoadedModel) -> list[str]:
    """Return the lines below the model's: what was read from a foreign model, and by which rules."""
    return [f"         {note}" for note in (*loaded.notes, *(f"Warning: {warning}" for warning in loaded.warnings))]


def say_skipped(statistics: Statistics, say: Say) -> None:
    """Report which samples were skipped, if any."""
    if statistics.skipped:
        say(f"Warning: {statistics.skipped_note}")


def budgets_of(schedules: ScheduleSet, wanted: Sequence[int] | None, usual: Sequence[int]) -> list[int]:
    """Return the budgets asked for, or those of the usual ones that have schedules."""
    if wanted is not None:
        return [schedules[K].budget for K in wanted]
    return [K for K in usual if K in schedules] or [schedules.budgets[-1]]


def named(schedules: ScheduleSet, run: Run) -> ScheduleSet:
    """Return the schedules with their run's id in their provenance."""
    return replace(schedules, provenance={**schedules.provenance, "run": run.id})


def check_costs(denoiser: Denoiser, request: Request, choosing: Samples, scoring: Samples) -> None:
    """Refuse what the solver or the network would refuse, before the network runs."""
    from ..adaptive.loop import check_budgets
    from ..calling import missing_axis
    from ..pipeline import check_request

    check_request(denoiser, request.variance, request.decoder, request.max_budget)
    if request.budgets is not None:
        check_budgets(request.budgets, denoiser.process.T, request.decoder)
    if denoiser.shape is not None and denoiser.shape != choosing.shape:
        raise ValueError(
            f"The model takes samples of shape {denoiser.shape}, but the data has shape {choosing.shape}. "
            f"{missing_axis(choosing.shape, denoiser.shape)}Give data of the model's shape; nothing is resized."
        )
    if scoring.shape != choosing.shape:
        raise ValueError(
            f"DATA has samples of shape {choosing.shape}, but --heldout has {scoring.shape}. Give both the same shape."
        )
