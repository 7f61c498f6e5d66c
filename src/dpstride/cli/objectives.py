"""Stage 9. Options of `dpstride find` that belong to an objective."""

from __future__ import annotations

import click

from ..finding.job import TEACHER_STEPS, TRAJECTORIES, WEIGHT, check_uses
from ..options import DEFAULT_OBJECTIVE, DEFAULT_ODE_SAMPLER, OBJECTIVES, ODE_SAMPLERS
from .options import given, options

objective = options(
    click.option(
        "--objective",
        type=click.Choice(OBJECTIVES),
        default=DEFAULT_OBJECTIVE,
        show_default=True,
        help="What paths are best for: bits/dim, staying on a deterministic sampler's trajectory, or both.",
    ),
    click.option(
        "--sampler",
        type=click.Choice(ODE_SAMPLERS),
        default=DEFAULT_ODE_SAMPLER,
        show_default=True,
        help="Deterministic sampler of --objective trajectory.",
    ),
    click.option(
        "--lambda",
        "weight",
        type=click.FloatRange(min=0.0),
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


def check_objective(objective: str) -> None:
    """Refuse options of another objective."""
    typed = [name for name in click.get_current_context().params if given(name)]
    try:
        check_uses(objective, typed, _option)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _option(name: str) -> str:
    return "--lambda" if name == "weight" else f"--{name.replace('_', '-')}"
