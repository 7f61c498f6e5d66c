"""Stage 9. `dpstride sample`: samples along a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .console import emit
from .inputs import load_model
from .options import VARIANCES, model_option, output


@click.command("sample")
@click.argument("model")
@click.argument("schedules", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--budget", "-k", required=True, type=int, help="Number of steps.")
@click.option(
    "--stride",
    type=click.Choice(["dp", "even", "quadratic"]),
    default="dp",
    show_default=True,
    help="The best path, or one made by hand with the same options.",
)
@click.option("-n", "count", default=64, show_default=True, type=click.IntRange(min=1), help="Number of samples.")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help=".png, .npy or .npz."
)
@click.option("--variance", type=VARIANCES, help="Reverse variance.  [default: the schedule's own]")
@click.option("--sampler", type=click.Choice(["ancestral", "ddim"]), default="ancestral", show_default=True)
@click.option("--eta", default=0.0, show_default=True, type=click.FloatRange(0.0, 1.0), help="Noise of DDIM.")
@click.option("--seed", default=0, show_default=True, help="Names the noise.")
@click.option("--batch-size", default=64, show_default=True, help="Samples per network pass.")
@model_option
@output
def sample_command(
    model: str,
    schedules: Path,
    budget: int,
    stride: str,
    count: int,
    output: Path,
    variance: Any,
    sampler: Any,
    eta: float,
    seed: int,
    batch_size: int,
    model_options: tuple[tuple[str, Any], ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Samples of MODEL along a path of K steps: a PNG grid, or arrays.

    \b
    Example:
      dpstride sample my_package.my_model:denoiser schedules.json -k 32 -n 64 -o samples.png
    """
    from ..evaluate.sampling import sample as run
    from ..report.images import save_samples
    from ..schedule import ScheduleSet, even_stride, quadratic_stride

    if output.suffix not in (".png", ".npy", ".npz"):
        raise click.UsageError(f"--output must end in .png, .npy or .npz, not {output.suffix!r}.")
    chosen = ScheduleSet.load(schedules)
    if stride == "dp":
        schedule = chosen[budget]
    else:
        schedule = chosen.adopt({"even": even_stride, "quadratic": quadratic_stride}[stride](chosen.process, budget))
    loaded = load_model(model, model_options)
    images = run(
        loaded.denoiser,
        schedule,
        count,
        seed,
        variance,
        batch_size=batch_size,
        sampler=sampler,
        eta=eta,
        progress=not quiet,
    )
    images = images if loaded.decode is None else loaded.decode(images)
    save_samples(images.numpy(), output)
    emit(as_json, {"samples": str(output), "shape": list(images.shape)}, f"{output}: {count} samples, {budget} steps")
