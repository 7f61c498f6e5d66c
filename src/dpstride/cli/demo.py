"""Stage 9. `dpstride demo`: the whole method on an embedded model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pipeline import cost_options
from ..runs.folder import RECORD, begin
from .claim import claims_folder
from .console import printer
from .find import Sparse, find_schedules, plan, print_result, sparse_options, statistics_of_find
from .inputs import load_model, split
from .options import complete_model, output, overwrite
from .report import run_of

if TYPE_CHECKING:
    from ..evaluate.comparison import Comparison
    from ..integrations.loaded import LoadedModel
    from ..runs.record import Run
    from ..statistics.data import Samples

DEMO_MODEL = "fashion-simple"
DEMO_SAMPLES = (128, 48)  # to choose adaptively, and to score at every step: under five minutes of two cores
DEMO_BUDGET = 32


@click.command("demo", short_help="The main job on an embedded model, with samples.")
@click.argument("model", default=DEMO_MODEL, shell_complete=complete_model)
@click.option("-o", "--output", default="demo", show_default=True, type=click.Path(file_okay=False, path_type=Path))
@overwrite
@output
@claims_folder
def demo_command(model: str, output: Path, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """The whole method on an embedded model: table, schedules, figures, samples and report.html, which shows all.

    MODEL is a zoo name (dpstride models), a real network on real images, which takes minutes; or mixture, the exact
    denoiser of a Gaussian mixture in closed form, with no network, in seconds.

    \b
    Examples:
      dpstride demo
      dpstride demo mixture -o mixture
    """
    from ..adaptive.loop import TOLERANCE, check_budgets
    from ..integrations.loaded import LoadedModel
    from ..statistics.data import Samples
    from ..statistics.identity import Inputs
    from ..zoo.mixture import mixture_data, mixture_denoiser

    say = printer(quiet or as_json)
    if model == "mixture":
        loaded = LoadedModel(mixture_denoiser())
        choosing, scoring = Samples.read(mixture_data(256, seed=0)), Samples.read(mixture_data(256, seed=1))
        names = ("its own draws, 4 × 4 pixels of 8 bits", "other draws")
    else:
        loaded = load_model(model)
        names = ("fashion-train", "fashion-test")
        choosing, scoring = split(*names, *DEMO_SAMPLES, loaded, None, seed=0)
    sparse = None if model == "mixture" else (TOLERANCE, check_budgets(None, loaded.denoiser.process.T, "upper"))
    options = cost_options(loaded.denoiser, None, "upper", None) | sparse_options(sparse)
    inputs = Inputs.of(loaded.denoiser, choosing, scoring, seed=0)
    run = run_of(model, *names, inputs.run("demo", options, "elbo"))
    every = range(1, loaded.denoiser.process.T + 1)
    begin(output, run, statistics_of_find(inputs, every if sparse is None else None, every), overwrite)
    comparison, files = _demo(loaded, choosing, scoring, model, names, output, say, sparse, not quiet, run)
    print_result(comparison, files, as_json)


def _demo(
    loaded: LoadedModel,
    choosing: Samples,
    scoring: Samples,
    model: str,
    names: tuple[str, str],
    output: Path,
    say: Callable[[str], None],
    sparse: Sparse | None,
    progress: bool,
    run: Run,
) -> tuple[Comparison, list[Path]]:
    """`find` on embedded data, and samples of the model along short paths, from the same seeds."""
    from ..evaluate.sampling import sample
    from ..report.images import save_samples
    from ..report.page import write_page
    from ..strides import even_stride, quadratic_stride

    say(plan(loaded, choosing, scoring, model, *names))
    denoiser = loaded.denoiser
    schedules, comparison, files = find_schedules(
        denoiser, choosing, scoring, output, None, "upper", None, 0, 64, say, sparse, False, progress=progress, run=run
    )
    budget = min(DEMO_BUDGET, schedules.budgets[-1])
    for name, schedule in (
        ("", schedules[budget]),
        ("_even", schedules.adopt(even_stride(schedules.process, budget))),
        ("_quadratic", schedules.adopt(quadratic_stride(schedules.process, budget))),
    ):
        files.append(output / f"samples_{budget}_steps{name}.png")
        save_samples(sample(denoiser, schedule, n=36, progress=progress).numpy(), files[-1])
    return comparison, [write_page(output), output / RECORD, *files]
