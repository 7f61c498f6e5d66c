"""Stage 9. `dpstride demo`: the whole method on an embedded model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .claim import claims_folder
from .console import emit, printer
from .inputs import load_model
from .options import complete_model, output, overwrite
from .report import run_of

if TYPE_CHECKING:
    from ..runs.record import Run

DEMO_MODEL = "fashion-simple"
# To choose and to score: with check and samples some 10,000 evaluations, half a minute on two cores.
DEMO_SAMPLES = (128, 128)
DEMO_BUDGET = 32


@click.command("demo", short_help="Run the whole method on an embedded model.")
@click.argument("model", default=DEMO_MODEL, shell_complete=complete_model)
@click.option(
    "-o",
    "--output",
    default="demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Output folder.",
)
@overwrite
@output
@claims_folder
def demo_command(model: str, output: Path, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """Run the whole method on an embedded model.

    Writes a table, schedules, figures, samples and report.html, which shows all of them. MODEL is a zoo name (dpstride
    models), a real network on real images, which takes a minute; or mixture, the exact denoiser of a Gaussian mixture in
    closed form, which needs no network and takes seconds.

    \b
    Examples:
      dpstride demo
      dpstride demo mixture -o mixture
    """
    from ..finding.inputs import Asked, split
    from ..finding.job import TOLERANCE, Request, prepare
    from ..integrations.loaded import LoadedModel
    from ..runs.execution import Execution
    from ..statistics.data import Samples
    from ..zoo.mixture import mixture_data, mixture_denoiser

    if model == "mixture":
        loaded = LoadedModel(mixture_denoiser())
        parts = Samples.read(mixture_data(256, seed=0)), Samples.read(mixture_data(256, seed=1))
        names = ("its own draws, 4 × 4 pixels of 8 bits", "other draws")
    else:
        loaded = load_model(model)
        names = ("fashion-train", "fashion-test")
        parts = split(Asked(*names, *DEMO_SAMPLES), loaded, seed=0)
    tolerance = None if model == "mixture" else TOLERANCE
    job = prepare(
        loaded, parts, output, Request(tolerance=tolerance, pictures=DEMO_BUDGET),
        how=Execution(progress=not quiet), record=partial(_record, model, names), say=printer(quiet or as_json),
    )  # fmt: skip
    job.say(job.plan())
    found = job.run(overwrite)
    emit(as_json, found.details, found.summary)


def _record(model: str, names: tuple[str, str], identity: dict[str, Any]) -> Run:
    """Return the record of a run; `demo` has none of the options of `find`."""
    chosen = {name: value for name, value in identity["options"].items() if name != "skip_nonfinite"}
    return run_of(model, *names, identity | {"verb": "demo", "options": chosen})
