"""The whole method, in the order of its stages; read this first.

denoiser, data → statistics → costs → solution → schedules

With a tolerance the first arrow goes through `adaptive`, which runs the network at a few grid indices only. `find` is the
main job of the command line: all of this, held-out scores, files and a report; its parts are in `finding/`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from .finding.job import Request
from .options import DEFAULT_DECODER, DEFAULT_OBJECTIVE, SAMPLES, check_choice
from .runs.arguments import check_kinds, check_names, spelt_out
from .runs.execution import Execution, WorkOnData
from .runs.numbers import whole_number
from .schedule import ScheduleSet

if TYPE_CHECKING:
    from .denoiser import Denoiser
    from .finding.job import Found
    from .objectives.band import Band, SamplesPlan
    from .options import Decoder, Objective, Sampler, Variance
    from .statistics.artefact import Statistics


@spelt_out(WorkOnData, defaults=Execution)
def optimise(
    denoiser: Denoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    *,
    data_range: object = "uint8",
    variance: Variance | None = None,
    decoder: Decoder = DEFAULT_DECODER,
    max_budget: int | None = None,
    tolerance: float | None = None,
    budgets: Sequence[int] | None = None,
    check: bool = True,
    objective: Objective = DEFAULT_OBJECTIVE,
    band: Band | None = None,
    sampler: Sampler | None = None,
    eta: float | None = None,
    **how: Unpack[WorkOnData],
) -> ScheduleSet:
    """The best schedule of every budget for ``denoiser``, chosen on ``data``.

    One network pass per (t, batch) gives the statistics, they give the cost L(t, s) of every step, and exact dynamic
    programming over that table gives the path of least negative ELBO for every number of steps. See `estimate`,
    `elbo_costs` and `solve` for the arguments.

    With a ``tolerance`` in bits/dim the network runs at a few grid indices only, until the paths of ``budgets`` are within
    it of the best; see `estimate_adaptively`, whose report is then in the schedules' provenance as "adaptive".

    With ``objective="samples"`` paths are optimised for sample quality in few steps instead; see `band_costs`, whose weights
    are those of ``band``. ``sampler`` ("ddim" when None), ``eta`` and ``variance`` ("optimal" when None) are then stored with
    the schedules, and used by `sample`, `DPStrideScheduler` and exports; a tolerance is a fraction of a path's cost.
    """
    from .statistics.estimate import estimate

    check_kinds(optimise, denoiser=denoiser)
    check_names(optimise, how, WorkOnData)
    progress = how.get("progress", True)
    check_request(denoiser, variance, decoder, max_budget)
    plan = _samples_plan(objective, band, sampler, eta)
    if tolerance is None:
        if budgets is not None:
            raise ValueError(
                "budgets are those that a tolerance is for; without one every budget is solved. Give a tolerance too."
            )
        statistics = estimate(denoiser, data, samples, seed, data_range=data_range, check=check, **how)
        return schedules_from(statistics, variance, decoder, max_budget, progress=progress, plan=plan)
    from .adaptive.loop import check_budgets, estimate_adaptively

    wanted = check_budgets(budgets, denoiser.process.T, decoder, max_budget)
    statistics, report = estimate_adaptively(
        denoiser, data, samples, seed, data_range=data_range, budgets=wanted, tolerance=tolerance, variance=variance,
        decoder=decoder, check=check, band=None if plan is None else plan.band, **how,
    )  # fmt: skip
    schedules = schedules_from(statistics, variance, decoder, max_budget, progress=progress, plan=plan)
    return replace(schedules, provenance={**schedules.provenance, "adaptive": report.to_dict()})


@spelt_out(Request)
def find(
    model: Any,
    data: Any,
    output: str | os.PathLike[str],
    heldout: Any = None,
    *,
    samples: int | None = None,
    heldout_samples: int | None = None,
    data_range: object = None,
    seed: int = 0,
    batch_size: int = 64,
    skip_nonfinite: bool = False,
    progress: bool = True,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
    **request: Any,
) -> Found:
    """The main job, as ``dpstride find`` does it: the best schedules of a model, scored on held-out data, with a report.

    Writes schedules.json, comparison.json, table.txt, figures, statistics and report.html into ``output``. Called again
    after an interruption it resumes where it stopped, as the command does; a folder with results of another model,
    other data or other options is refused.

    Further keywords are those of `dpstride.finding.job.Request`: variance, decoder, max_budget, budgets, tolerance (None
    evaluates every grid index), objective, and more.

    Args:
        model: a `Denoiser`, what `load_model` returned, or MODEL as the command line takes it; or a `MaskedDenoiser`.
        data: what `estimate` (for tokens `estimate_masked`) takes, or DATA as the command line takes it.
        output: folder to write.
        heldout: data to score on; a seeded, disjoint part of ``data`` when None.
        samples: number of samples to choose the path on, 128 (or half of the data) when None.
        heldout_samples: number of samples to score on, 128 (or the other half) when None.
        data_range: values that the data takes, as for `estimate`; those that the model takes when None.
        seed: random seed for the noise and the order of the data.
        batch_size: samples per network pass.
        skip_nonfinite: leave out samples for which the network gives NaN or infinity.
        progress: show progress bars (only ever on a terminal).
        overwrite: replace the results of another run in the folder.
        say: called with lines of text about the work, such as `print`; silent when None.
    """
    from .finding.inputs import Asked, job_of, load_model
    from .finding.job import check_uses, request_from
    from .runs.folder import claimed
    from .runs.record import Run

    check_kinds(find, output=output)
    wanted, folder = request_from(request), Path(output)
    how = Execution(seed, batch_size, progress, skip_nonfinite=skip_nonfinite)
    check_uses(wanted.objective, [*request, *(["skip_nonfinite"] if skip_nonfinite else [])])
    options = {"samples": samples, "heldout_samples": heldout_samples, "seed": seed, **request}
    inputs = Asked(data, heldout, samples, heldout_samples, data_range=data_range)
    with claimed(folder):
        job = job_of(
            load_model(model), inputs, wanted, folder, how=how,
            record=partial(Run.of_call, "find", (model, data, heldout), options), say=say or (lambda text: None),
        )  # fmt: skip
        job.say(job.plan())
        found: Found = job.run(overwrite)
        return found


def schedules_from(
    statistics: Statistics,
    variance: Variance | None = None,
    decoder: Decoder = DEFAULT_DECODER,
    max_budget: int | None = None,
    progress: bool = False,
    *,
    plan: SamplesPlan | None = None,
) -> ScheduleSet:
    """The best schedule of every budget from saved statistics, for bits/dim or by a ``plan`` for samples: no network pass.

    Where rows are filled in, paths for bits/dim are chosen from smoothed rows (`statistics.smooth`); otherwise they would
    favour indices where the network ran and the noise happened to be low. Statistics of every step are used as they are.
    """
    check_kinds(schedules_from, statistics=statistics)
    from .objectives.elbo import elbo_costs
    from .objectives.schedules import best_schedules
    from .statistics.interpolate import smoothed

    if plan is None:
        return best_schedules(elbo_costs(smoothed(statistics), variance, decoder), max_budget, progress)
    return best_schedules(plan.costs(statistics, variance, decoder), max_budget, progress)


def _samples_plan(objective: str, band: Band | None, sampler: Sampler | None, eta: float | None) -> SamplesPlan | None:
    """The plan of `optimise` for samples; None for bits/dim, for which its options are refused."""
    check_choice("objective", objective, (DEFAULT_OBJECTIVE, SAMPLES))
    if objective == SAMPLES:
        from .objectives.band import SamplesPlan

        return SamplesPlan.of(band, sampler, eta)
    for name, value in (("band", band), ("sampler", sampler), ("eta", eta)):
        if value is not None:
            raise ValueError(f"{name} is for objective={SAMPLES!r}; for bits/dim it has no effect. Leave it out.")
    return None


def check_request(denoiser: Denoiser, variance: str | None, decoder: str, max_budget: int | None) -> None:
    """Refuse options that costs or solver would refuse, before the network has run for hours."""
    from . import decoders
    from .objectives.elbo import check_options

    process = denoiser.process
    check_options(process, denoiser.variance, variance, decoder)
    if max_budget is None:
        return
    whole_number(max_budget, f"max_budget must be a whole number between 1 and T = {process.T}", 1, process.T)
    if max_budget < (least := decoders.find(decoder).least_budget):
        raise ValueError(
            f"decoder={decoder!r} takes its variance from a second step, so max_budget = {max_budget} leaves nothing to "
            f"choose. Allow at least {least} steps, or choose another decoder."
        )


def cost_options(denoiser: Denoiser, variance: str | None, decoder: str, max_budget: int | None) -> dict[str, Any]:
    """Cost options with defaults filled in: the model's own variance, and T as the largest budget."""
    from .objectives.elbo import check_options

    chosen = check_options(denoiser.process, denoiser.variance, variance, decoder)
    most = denoiser.process.T if max_budget is None else max_budget
    return {"variance": chosen.variance, "decoder": decoder, "max_budget": most}
