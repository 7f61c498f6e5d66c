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
        help="What paths are chosen for: elbo is --for likelihood, samples is --for samples; trajectory keeps close to a "
        "deterministic sampler's trajectory; mixed weighs bits/dim and trajectory.",
    ),
    click.option(
        "--sampler",
        type=click.Choice(SAMPLERS),
        default=DEFAULT_ODE_SAMPLER,
        show_default=True,
        help="With --for samples: sampler that schedules are made for; with --objective trajectory a deterministic one.",
    ),
    click.option(
        "--eta", default=0.0, show_default=True, type=Real(0.0, 1.0), help="With --for samples: noise of DDIM."
    ),
    click.option(
        "--exponent",
        type=Real(min=0.0),
        help="With --for samples: weight of noise levels, p of σ^p.  [default: 1.3]",
    ),
    click.option(
        "--band",
        metavar="LOW,HIGH",
        type=Pair(),
        help="With --for samples: noise levels that count, in standard deviations of the data.  [default: 0.2,20]",
    ),
    click.option(
        "--cap",
        type=Real(min=0.0, min_open=True, infinite=True),
        help="With --for samples: cap on errors, in units of the data's variance; inf for none.  [default: 1.5]",
    ),
    click.option(
        "--evenness",
        type=Real(0.0, 1.0, max_open=True),
        help="With --for samples: share of even steps in the cost.  [default: 0.5]",
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
        help="Maximum number of steps of the reference sampler, and of the grid that paths are chosen on.",
    ),
)


def objective_of(purpose: Purpose | None, objective: Objective) -> Objective:
    """Return the objective that --for and --objective name; refuse them if they contradict each other."""
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
