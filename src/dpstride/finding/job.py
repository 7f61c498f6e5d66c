"""One job: what is asked of which model and data, checked before the network runs; and what it found."""

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
        objective: what paths are best for.
        variance: reverse variance; the model's own when None.
        decoder: variance of the last step.
        max_budget: largest number of steps; all when None.
        budgets: numbers of steps that the tolerance and the tables are for; the usual ones when None.
        tolerance: bits/dim within which adaptive paths must be of the best; None evaluates every grid index.
        pictures: images are drawn along the path of so many steps, and beside it along hand-made strides; 0 draws none.
        sampler: the sampler that schedules for samples, or for a trajectory, are made for.
        eta: noise of that sampler, where it has such an option.
        exponent: of the objective for samples: p of its weight σ^p; the default when None.
        band: of the objective for samples: the noise levels that count, in standard deviations of the data.
        cap: of the objective for samples: count errors as at most so many times the data's variance; the default when None.
        evenness: of the objective for samples: share of even steps in the cost; the default when None.
        weight: of the mixed objective: bits/dim that a mean square distance of 1 per dimension is worth.
        trajectories: number of noise samples for the reference sampler.
        teacher_steps: steps of the reference sampler, at most, and of the grid that paths are chosen on.
        check: look whether another description of the model would be better, some hundred evaluations; a note says so.
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
        comparison: held-out bits/dim beside hand-made strides; None where end points are compared instead.
        adaptive: network evaluations spent and saved, and the regret that is believed; None where all were made.
        answer: one sentence: how few steps are enough.
        notes: what would mislead a reader of the numbers alone.
        files: everything that was written, the page first where there is one.
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
    """A job that is ready to run: everything is loaded and checked, and nothing is written yet."""

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
    doing: Say = lambda what: None  # names what is being done, for lines that say how long it takes

    @property
    def denoiser(self) -> Denoiser:
        """The model on the grid that paths are chosen on."""
        return finder_of(self.request.objective).on_grid(self.loaded.denoiser, self.request)

    def execution(self, name: str) -> Execution:
        """The execution of statistics that go to the file ``name``; noise of those that score is of the next seed."""
        seed = self.how.seed + (name == HELDOUT)
        return replace(self.how, seed=seed, checkpoint=self.output / name)

    def evaluations(self) -> tuple[int, str]:
        """Count network evaluations, and say how sure that is: "", "about " or "at most about "."""
        return finder_of(self.request.objective).evaluations(self)

    def seconds_per_evaluation(self) -> float:
        """Time a few evaluations of the same work."""
        from .expected import seconds_to_estimate

        return seconds_to_estimate(self.loaded.denoiser, self.choosing, self.how.batch_size)

    def plan(self) -> str:
        """Describe what is about to be done."""
        from ..statistics.files import describe_source

        denoiser, process = self.loaded.denoiser, self.loaded.denoiser.process
        clip = "no clipping" if denoiser.clip is None else f"x0 clipped to [{denoiser.clip[0]:g}, {denoiser.clip[1]:g}]"
        model = f"Model    {self.record.model}: predicts {denoiser.predicts}, {denoiser.variance} variance, {clip}"
        lines = [model, *notes_of(self.loaded), f"Process  {process.name}, {process.kind}, T = {process.T}"]
        if (noises := finder_of(self.request.objective).noises(self.request)) is not None:
            return "\n".join([*lines, f"Noise    {noises} noises choose the path, {len(self.scoring)} others score it"])
        shape = self.choosing.shape
        lines += [
            f"Data     {len(self.choosing)} samples of shape {shape} choose the path ({describe_source(self.record.data)})",
            f"         {len(self.scoring)} other samples score it ({describe_source(self.record.heldout)})",
        ]
        return "\n".join(lines)

    def run(self, overwrite: bool = False) -> Found:
        """Do it; the folder must be locked. What another run left there is refused, or goes with ``overwrite``."""
        from ..statistics.passes import ClippingWarning

        finder = finder_of(self.request.objective)
        begin(self.output, self.record, finder.needed(self), overwrite)
        with warnings.catch_warnings(), Pulse(self.say, bars=self.how.progress) as pulse:
            warnings.simplefilter("ignore", ClippingWarning)  # said already, of all data at once
            job = replace(self, say=pulse.say, doing=pulse.doing)
            if self.request.check and is_checked(self.request):
                from .description import description_notes

                job = replace(job, notes=(*self.notes, *description_notes(job)))
            return finder.run(job, overwrite)


class Finder(Protocol):
    """The interface of an objective's file."""

    USES: tuple[str, ...]  # options of a request, or of how it is run, that not every objective has a use for

    def on_grid(self, denoiser: Denoiser, request: Request) -> Denoiser:
        """Return the model on the grid that paths are chosen on; refuse what would be refused after hours."""

    def noises(self, request: Request) -> int | None:
        """Return how many noise samples choose the path, where it is not data that choose."""

    def options(self, denoiser: Denoiser, samples: int, request: Request, how: Execution) -> dict[str, Any]:
        """Return the options that results depend on, besides model, data and seed."""

    def needed(self, job: Job) -> dict[str, Needed]:
        """Return what it keeps of the network, by the names of the files."""

    def evaluations(self, job: Job) -> tuple[int, str]:
        """Count network evaluations, and say how sure that is."""

    def run(self, job: Job, overwrite: bool) -> Found:
        """Do the work, writing each result as soon as it is there."""


def finder_of(objective: str) -> Finder:
    """Return the part of the main job that is particular to an objective."""
    return cast(Finder, import_module(f".{objective}", __package__))


def is_checked(request: Request) -> bool:
    """Return whether the model's description is looked at unless that is left out: where data choose."""
    return finder_of(request.objective).noises(request) is None


def request_from(options: Mapping[str, Any]) -> Request:
    """Return the request of these options; an unknown name is refused."""
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
    """Refuse options that only other objectives have a use for."""
    for name in given:
        users = [each for each in OBJECTIVES if name in finder_of(each).USES]
        if users and objective not in users:
            raise ValueError(
                f"{spelling(name)} is for {spelling('objective')} {' or '.join(users)}; with {objective} it would do nothing. "
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
    """Check everything that a job on ``parts``, data to choose on and to score on, could be refused for.

    ``record`` makes the record of a run from its identity; ``notes`` go to the notes of the result.
    """
    from ..statistics.identity import Inputs
    from ..statistics.passes import warn_about_clipping

    check_costs(loaded.denoiser, request, *parts)
    if loaded.denoiser.shape is None:
        loaded.denoiser.shape = parts[0].shape
    finder = finder_of(request.objective)
    if finder.noises(request) is None:
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
    """Prepare a job from data as a caller names them."""
    parts, notes = heard(lambda: split(asked, loaded, how.seed))
    if asked.heldout is not None:
        notes += shared_note(*parts)
    return prepare(loaded, parts, output, request, how=how, record=record, notes=notes, say=say)


def notes_of(loaded: LoadedModel) -> list[str]:
    """Return lines below that of the model: what was read from a foreign one and by which rules."""
    return [f"         {note}" for note in (*loaded.notes, *(f"Warning: {warning}" for warning in loaded.warnings))]


def say_skipped(statistics: Statistics, say: Say) -> None:
    """Say which samples were left out, if any."""
    if statistics.skipped:
        say(f"Warning: {statistics.skipped_note}")


def budgets_of(schedules: ScheduleSet, wanted: Sequence[int] | None, usual: Sequence[int]) -> list[int]:
    """Return the budgets asked for, or the usual ones, as far as there are schedules of them."""
    if wanted is not None:
        return [schedules[K].budget for K in wanted]
    return [K for K in usual if K in schedules] or [schedules.budgets[-1]]


def named(schedules: ScheduleSet, run: Run) -> ScheduleSet:
    """Return the schedules with the name of their run in their provenance."""
    return replace(schedules, provenance={**schedules.provenance, "run": run.id})


def check_costs(denoiser: Denoiser, request: Request, choosing: Samples, scoring: Samples) -> None:
    """Refuse what the solver or the network would refuse, before the network runs for hours."""
    from ..adaptive.loop import check_budgets
    from ..calling import missing_axis
    from ..pipeline import check_request

    check_request(denoiser, request.variance, request.decoder, request.max_budget)
    if request.budgets is not None:
        check_budgets(request.budgets, denoiser.process.T, request.decoder)
    if denoiser.shape is not None and denoiser.shape != choosing.shape:
        raise ValueError(
            f"The model takes samples of shape {denoiser.shape}, but the data has shape {choosing.shape}. "
            f"{missing_axis(choosing.shape, denoiser.shape)}Give data of its own shape; nothing is resized."
        )
    if scoring.shape != choosing.shape:
        raise ValueError(
            f"DATA has samples of shape {choosing.shape}, but --heldout has {scoring.shape}. Give both in one shape."
        )
