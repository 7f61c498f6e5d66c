"""`tune`: statistics → candidates → a race of every budget → the winners measured again → schedules and files."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..finding.inputs import Asked, load_gaussian, shared_note, split
from ..options import DEFAULT_OBJECTIVE, SAMPLES, STRIDES, TRAJECTORY
from ..runs.arguments import check_kinds, spelt_out
from ..runs.execution import Execution
from ..runs.folder import Needed, claimed
from ..runs.numbers import check_batch_size, check_seed, whole_number
from ..runs.record import Run
from .candidates import MADE
from .event import Event, Say
from .finish import OURS, REFERENCE
from .measure import check_enough, measure_of
from .outcome import Race
from .sampling import sampling_of
from .wish import Wish

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from ..integrations.loaded import LoadedModel
    from ..schedule import ScheduleSet
    from ..statistics.data import Samples


@spelt_out(Wish)
def tune(
    model: Any,
    data: Any,
    output: str | os.PathLike[str],
    heldout: Any = None,
    *,
    data_range: object = None,
    seed: int = 0,
    batch_size: int = 64,
    progress: bool = True,
    overwrite: bool = False,
    say: Say | None = None,
    **wish: Any,
) -> Race:
    """Race schedules by measured samples, and measure the winners again on held-out noise and real data.

    Candidates are the objective for samples with many weights, hand-made and published strides and the ELBO's path; each
    races at every budget, with the sampler that you will use. Writes report.html, schedules.json, race.json, table.txt and
    sample grids into ``output``; called again after an interruption, it resumes where it stopped.

    Further keywords are those of `dpstride.racing.wish.Wish`: sampler, eta, variance, features, budgets, samples, and more.

    Args:
        model: a `Denoiser`, the result of `load_model`, or MODEL as on the command line.
        data: data as for `estimate`, or DATA as on the command line.
        output: folder to write.
        heldout: real data for the final measurement; a seeded, disjoint part of ``data`` when None.
        data_range: values that the data takes, as for `estimate`; the model's own range when None.
        seed: random seed for the noise and the order of the data; the final measurement uses another.
        batch_size: samples per network pass.
        progress: show progress bars (only ever on a terminal).
        overwrite: replace the results of another run in the folder.
        say: called with a line of text for every stage; silent when None.
    """
    check_kinds(tune, output=output)
    asked, folder, how = (
        Wish.of(wish),
        Path(output),
        Execution(check_seed(seed), check_batch_size(batch_size), progress),
    )
    said = {
        name: value for name, value in {"seed": seed, **wish}.items() if isinstance(value, (int, float, str, tuple))
    }
    with claimed(folder):
        loaded = load_gaussian(model)
        parts = split(Asked(data, heldout, data_range=data_range, defaults=(asked.real, asked.real)), loaded, seed)
        event = prepare(
            loaded, parts, folder, asked, how=how, record=partial(Run.of_call, "tune", (model, data, heldout), said),
            notes=() if heldout is None else shared_note(*parts), say=say or (lambda text: None),
        )  # fmt: skip
        return event.run(overwrite)


def prepare(
    loaded: LoadedModel,
    parts: tuple[Samples, Samples],
    output: Path,
    wish: Wish,
    *,
    how: Execution,
    record: Callable[[dict[str, Any]], Run],
    notes: tuple[str, ...] = (),
    say: Say = lambda text: None,
) -> Event:
    """Check every input before any long work; ``parts`` are the real data of the race and of the final measurement."""
    from ..finding.job import Request, check_costs
    from ..given import refuse_given
    from ..statistics.identity import Inputs

    choosing, scoring = parts
    denoiser, T = loaded.denoiser, loaded.denoiser.process.T
    refuse_given(denoiser.given, "A race by the samples of whole data")
    check_costs(denoiser, Request(objective=SAMPLES, variance=wish.variance), *parts)
    sampling = sampling_of(wish.sampler, wish.eta, wish.passes)
    if wish.reference is not None:
        whole_number(wish.reference, f"reference must be a whole number of steps from 1 to T = {T}", 1, T)
    least, most = sampling.cost.along(1), sampling.cost.along(T)
    for budget in wish.budgets:
        rule = f"Budgets must be whole numbers of evaluations from {least} to {most} (1 to T = {T} steps)"
        whole_number(budget, rule, least, most)
    wish = wish.on(denoiser.process)
    for name, schedules in wish.also.items():
        _check_also(name, schedules, denoiser)
    check_enough(choosing, "DATA")
    check_enough(scoring, "The held-out data")
    if denoiser.shape is None:
        denoiser.shape = choosing.shape
    measure = measure_of(wish.features, loaded, choosing)
    inputs = Inputs.of(denoiser, *parts, how.seed)
    options = {
        "sampler": sampling.words,
        "sampler_settings": dict(sampling.settings),
        "variance": wish.variance,
        "passes": sampling.cost.step,
        "measure": measure.describe(),
        "choosing": wish.choosing,
    }
    few = Inputs.of(denoiser, choosing.take(range(min(wish.choosing, len(choosing)))), scoring, how.seed)
    event = Event(
        loaded, *parts, output, wish, how=how, sampling=sampling, measure=measure,
        record=record(inputs.run("tune", options, SAMPLES)), needed=Needed(few.estimate), notes=notes, say=say,
    )  # fmt: skip
    if wish.evaluations is not None and wish.evaluations < (least := event.least()):
        raise ValueError(
            f"{wish.evaluations:,} network evaluations are too few: the first round of the race and the final measurement "
            f"take about {least:,}. Allow at least that many, or use fewer samples, budgets or reference steps."
        )
    return event


def _check_also(name: str, schedules: ScheduleSet, denoiser: Denoiser) -> None:
    """Refuse schedules of another process, and names that are taken."""
    from ..evaluate.likelihood import steps_on

    if name in (DEFAULT_OBJECTIVE, TRAJECTORY, *STRIDES, OURS, REFERENCE, *MADE):
        raise ValueError(f"also: {name!r} is the name of another candidate. Give your schedules another name.")
    try:
        steps_on(denoiser.process, next(iter(schedules)))
    except ValueError as error:
        raise ValueError(f"also, {name!r:.200}: {error}") from error
