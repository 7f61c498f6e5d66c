"""The whole method, in the order of its stages; read this first.

denoiser, data → statistics → costs → solution → schedules

With a tolerance the first arrow goes by way of `adaptive`, which runs the network at a few grid indices only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .options import DEFAULT_DECODER
from .schedule import ScheduleSet

if TYPE_CHECKING:
    from .denoiser import Denoiser
    from .options import Decoder, Variance
    from .runs.record import Run
    from .statistics.artefact import Statistics


def optimise(
    denoiser: Denoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    data_range: object = "uint8",
    variance: Variance | None = None,
    decoder: Decoder = DEFAULT_DECODER,
    max_budget: int | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
    budgets: Sequence[int] | None = None,
) -> ScheduleSet:
    """The best schedule of every budget for ``denoiser``, chosen on ``data``.

    One network pass per (t, batch) gives the statistics, they give the cost L(t, s) of every step, and exact dynamic
    programming over that table gives the path of least negative ELBO for every number of steps. See `estimate`,
    `elbo_costs` and `solve` for the arguments.

    With a ``tolerance`` in bits/dim the network runs at a few grid indices only, until the paths of ``budgets`` are within
    it of the best: see `estimate_adaptively`, whose report is then in the schedules' provenance as "adaptive".
    """
    from .statistics.estimate import estimate

    check_request(denoiser, variance, decoder, max_budget)
    if tolerance is None:
        if budgets is not None:
            raise ValueError(
                "budgets are those that a tolerance is for; every budget is solved for. Give a tolerance too."
            )
        statistics = estimate(denoiser, data, samples, seed, batch_size, data_range, progress, checkpoint)
        return schedules_from(statistics, variance, decoder, max_budget, progress)
    from .adaptive.loop import check_budgets, estimate_adaptively

    wanted = check_budgets(budgets, denoiser.process.T, decoder, max_budget)
    statistics, report = estimate_adaptively(
        denoiser, data, samples, seed, batch_size, data_range, wanted, tolerance, variance, decoder,
        progress=progress, checkpoint=checkpoint,
    )  # fmt: skip
    schedules = schedules_from(statistics, variance, decoder, max_budget, progress)
    return replace(schedules, provenance={**schedules.provenance, "adaptive": report.to_dict()})


def schedules_from(
    statistics: Statistics,
    variance: Variance | None = None,
    decoder: Decoder = DEFAULT_DECODER,
    max_budget: int | None = None,
    progress: bool = False,
) -> ScheduleSet:
    """The best schedule of every budget from saved statistics: no network pass."""
    from .objectives.elbo import elbo_costs
    from .objectives.schedules import best_schedules

    return best_schedules(elbo_costs(statistics, variance, decoder), max_budget, progress)


def check_request(denoiser: Denoiser, variance: str | None, decoder: str, max_budget: int | None) -> None:
    """Refuse options that costs or solver would refuse, before the network has run for hours."""
    from . import decoders
    from .objectives.elbo import check_options

    process = denoiser.process
    check_options(process, denoiser.variance, variance, decoder)
    if max_budget is None:
        return
    whole = isinstance(max_budget, (int, np.integer)) and not isinstance(max_budget, bool)
    if not whole or not 1 <= max_budget <= process.T:
        raise ValueError(f"max_budget must be a whole number between 1 and T = {process.T}, not {max_budget!r}.")
    if max_budget < (least := decoders.find(decoder).least_budget):
        raise ValueError(
            f"decoder={decoder!r} takes its variance from a second step, so max_budget = {max_budget} leaves nothing to "
            f"choose. Allow at least {least} steps, or choose another decoder."
        )


def cost_options(denoiser: Denoiser, variance: str | None, decoder: str, max_budget: int | None) -> dict[str, Any]:
    """Options of costs as they are meant: left out, a variance is the model's own, and a budget the grid's."""
    from .objectives.elbo import check_options

    chosen = check_options(denoiser.process, denoiser.variance, variance, decoder)
    most = denoiser.process.T if max_budget is None else max_budget
    return {"variance": chosen.variance, "decoder": decoder, "max_budget": most}


def named(schedules: ScheduleSet, run: Run | None) -> ScheduleSet:
    """The schedules with the name of their run in their provenance."""
    return schedules if run is None else replace(schedules, provenance={**schedules.provenance, "run": run.id})
