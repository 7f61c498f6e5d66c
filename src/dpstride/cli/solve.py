"""Stage 9. `dpstride solve`: schedules from saved statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .claim import claims_file
from .console import emit
from .options import costs, output, overwrite


@click.command("solve", short_help="Find the best schedules from STATISTICS.")
@click.argument("statistics", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Output file.")
@costs
@overwrite
@output
@claims_file
def solve_command(
    statistics: Path,
    output: Path,
    variance: Any,
    decoder: Any,
    max_budget: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find the best schedule for every number of steps from STATISTICS, without network passes.

    Schedules from other statistics or options, or of a results folder, are only replaced with --overwrite.

    \b
    Example:
      dpstride solve statistics.safetensors -o schedules.json --variance optimal --decoder optimal
    """
    from ..evaluate.purpose import caveat
    from ..pipeline import schedules_from
    from ..runs.folder import claim_schedules
    from ..statistics.artefact import Statistics

    schedules = schedules_from(Statistics.load(statistics), variance, decoder, max_budget, progress=not quiet)
    claim_schedules(output, schedules.options, schedules.provenance, overwrite)
    schedules.save(output)
    best = schedules.best_budget
    result = {
        "schedules": str(output),
        "budgets": len(schedules),
        "best_budget": best,
        "bpd": {budget: schedules[budget].bpd for budget in schedules.budgets},
    }
    said = f"{output}: {len(schedules)} schedules; K = {best} has the fewest bits/dim.\n{caveat(schedules.options)}"
    emit(as_json, result, said)
