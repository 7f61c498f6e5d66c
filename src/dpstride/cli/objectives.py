"""Stage 9. Options of `dpstride find` that belong to an objective."""

from __future__ import annotations

from typing import Any

import click

from ..finding.job import TEACHER_STEPS, TRAJECTORIES, WEIGHT, check_uses
from ..options import (
    DEFAULT_OBJECTIVE,
    DEFAULT_ODE_SAMPLER,
    OBJECTIVE_FOR,
    OBJECTIVES,
    PURPOSES,
    SAMPLERS,
    Objective,
    Purpose,
)
from .options import Real, given, options


class Pair(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Two numbers, LOW,HIGH."""

    name = "pair"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[float, float]:
        """Return the two numbers."""
        try:
            low, high = (float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not two numbers LOW,HIGH, such as 0.2,20.", parameter, context)
        return low, high


objective = options(
    click.option(
        "--for",
        "purpose",
        type=click.Choice(PURPOSES),
        help="What the schedules are for: the likelihood of data (bits/dim), or samples in few steps.  [default: likelihood]",
    ),
    click.option(
        "--objective",
        type=click.Choice(OBJECTIVES),
        default=DEFAULT_OBJECTIVE,
        show_default=True,
        help="What paths are best for: elbo is --for likelihood, samples is --for samples; trajectory stays on a deterministic "
        "sampler's trajectory; mixed weighs bits/dim and trajectory.",
    ),
    click.option(
        "--sampler",
        type=click.Choice(SAMPLERS),
        default=DEFAULT_ODE_SAMPLER,
        show_default=True,
        help="Sampler that schedules --for samples are made for; of --objective trajectory, a deterministic one.",
    ),
    click.option("--eta", default=0.0, show_default=True, type=Real(0.0, 1.0), help="Noise of DDIM, --for samples."),
    click.option(
        "--exponent",
        type=Real(min=0.0),
        help="Weight of noise levels --for samples: p of σ^p.  [default: 1.3]",
    ),
    click.option(
        "--band",
        metavar="LOW,HIGH",
        type=Pair(),
        help="Noise levels that count --for samples, in standard deviations of the data.  [default: 0.2,20]",
    ),
    click.option(
        "--cap",
        type=Real(min=0.0, min_open=True, infinite=True),
        help="Count errors --for samples as at most so many times the data's variance; inf for no bound.  [default: 1.5]",
    ),
    click.option(
        "--evenness",
        type=Real(0.0, 1.0, max_open=True),
        help="Share of even steps in the cost --for samples.  [default: 0.5]",
    ),
    click.option(
        "--lambda",
        "weight",
        type=Real(min=0.0),
        default=WEIGHT,
        show_default=True,
        help="With --objective mixed: bits/dim that a mean square distance of 1 per dimension is worth.",
    ),
    click.option(
        "--trajectories",
        type=click.IntRange(min=2),
        default=TRAJECTORIES,
        show_default=True,
        help="Number of noise samples for the reference sampler.",
    ),
    click.option(
        "--teacher-steps",
        type=click.IntRange(min=2),
        default=TEACHER_STEPS,
        show_default=True,
        help="Steps of the reference sampler, at most, and of the grid that paths are chosen on.",
    ),
)


def objective_of(purpose: Purpose | None, objective: Objective) -> Objective:
    """Return the objective that --for and --objective say together, or refuse them where they contradict each other."""
    wanted = objective if purpose is None else OBJECTIVE_FOR[purpose]
    if given("objective") and wanted != objective:
        raise click.UsageError(f"--for {purpose} is --objective {wanted}, not {objective}. Give one of the two.")
    return wanted


def check_objective(objective: str) -> None:
    """Refuse options of another objective."""
    typed = [name for name in click.get_current_context().params if given(name)]
    try:
        check_uses(objective, typed, _option)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _option(name: str) -> str:
    return "--lambda" if name == "weight" else f"--{name.replace('_', '-')}"
