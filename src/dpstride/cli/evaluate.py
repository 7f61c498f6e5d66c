"""Stage 9. `dpstride evaluate`: held-out bits/dim of schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..finding.inputs import read_samples
from ..finding.job import notes_of
from ..options import BEST, COMPARED_STRIDES
from .console import complain, emit, printer
from .inputs import load_model
from .options import complete_data, complete_model, conditioning_option, model_option, output, work


@click.command("evaluate", short_help="Score SCHEDULES and other strides on held-out data.")
@click.argument("schedules", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--statistics", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Held-out statistics.")
@click.option("--model", shell_complete=complete_model, help="MODEL, for direct evaluation on --data.")
@click.option("--data", shell_complete=complete_data, help="Held-out DATA, for direct evaluation.")
@click.option(
    "--samples", type=click.IntRange(min=1), help="Use only this many samples, the first of --data.  [default: all]"
)
@click.option("--budget", "-k", "budgets", multiple=True, type=int, help="Number of steps; may be repeated.")
@model_option
@conditioning_option
@work
@output
def evaluate_command(
    schedules: Path,
    statistics: Path | None,
    model: str | None,
    data: str | None,
    samples: int | None,
    budgets: tuple[int, ...],
    model_options: tuple[tuple[str, Any], ...],
    conditioning: str | None,
    seed: int,
    batch_size: int,
    data_range: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Held-out bits/dim of SCHEDULES, compared with even and quadratic strides.

    With --statistics every budget is scored without network passes; with --model and --data each --budget is evaluated
    directly, with K network passes per batch.

    \b
    Examples:
      dpstride evaluate schedules.json --statistics heldout.safetensors
      dpstride evaluate schedules.json --model my_package.my_model:denoiser --data test.npy -k 32
    """
    from ..evaluate.comparison import Comparison, check_provenance, compare
    from ..evaluate.purpose import caveat
    from ..report.text import comparison_table
    from ..schedule import ScheduleSet
    from ..statistics.artefact import Statistics
    from ..strides import beside

    chosen = ScheduleSet.load(schedules)
    check_provenance(chosen)
    for budget in budgets:
        chosen[budget]  # an unknown budget is refused before any work
    if statistics is not None and model is None and data is None:
        comparison = compare(chosen, Statistics.load(statistics))
    elif statistics is None and model is not None and data is not None:
        from ..evaluate.likelihood import bits_per_dim

        if not budgets:
            raise click.UsageError(
                "Direct evaluation needs at least one --budget; it takes K network passes per batch."
            )
        loaded = load_model(model, model_options)
        printer(quiet or as_json)("\n".join([f"Model    {model}", *notes_of(loaded)]))
        denoiser = loaded.denoiser
        gathered = read_samples(data, loaded, samples, data_range=data_range, conditioning=conditioning)
        curves: dict[str, dict[int, tuple[float, float]]] = {stride: {} for stride in (*COMPARED_STRIDES, BEST)}
        for budget in budgets:
            for stride, curve in curves.items():
                found = bits_per_dim(
                    denoiser,
                    gathered,
                    beside(chosen, stride, budget),
                    seed,
                    batch_size=batch_size,
                    data_range=gathered.data_range,
                    progress=not quiet,
                )
                curve[budget] = (found.bpd, found.standard_error)
        comparison = Comparison(
            T=chosen.process.T,
            curves=curves,
            chosen={budget: (chosen[budget].bpd or 0.0, chosen[budget].standard_error or 0.0) for budget in budgets},
            model=denoiser.describe(),
            options=dict(chosen.options),
            samples={"chosen": int(chosen.provenance["data"]["samples"]), "heldout": len(gathered)},
            seeds={"chosen": int(chosen.provenance["seed"]), "heldout": seed},
        )
    else:
        raise click.UsageError("Give either --statistics, or both --model and --data.")
    columns = sorted(budgets) or comparison.table_budgets
    result = {
        stride: {budget: {"bpd": curve[budget][0], "standard_error": curve[budget][1]} for budget in columns}
        for stride, curve in comparison.curves.items()
    }
    text = f"{comparison_table(comparison, columns)}\n{caveat(comparison.options)}"
    emit(as_json, {"bits_per_dim": result, "warnings": list(comparison.warnings)}, text)
    for warning in comparison.warnings:
        complain(f"Note: {warning}")
