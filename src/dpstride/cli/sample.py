"""Stage 9. `dpstride sample`: samples along a path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..finding.inputs import named_data
from ..options import BEST, COMPARED_STRIDES, DEFAULT_ORDER, ORDERS, SAMPLERS
from .claim import claims_file
from .console import emit
from .inputs import load_any
from .options import VARIANCES, check_eta, complete_file, given, model_argument, model_option, output, overwrite

if TYPE_CHECKING:
    from torch import Tensor

    from ..evaluate.stream import Conditioning


@click.command("sample", short_help="Samples of MODEL along a path of K steps.")
@model_argument
@click.argument("schedules", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--budget", "-k", required=True, type=int, help="Number of steps.")
@click.option(
    "--stride",
    type=click.Choice([BEST, *COMPARED_STRIDES]),
    default=BEST,
    show_default=True,
    help="The best path, or one made by hand with the same options.",
)
@click.option("-n", "count", default=64, show_default=True, type=click.IntRange(min=1), help="Number of samples.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help=".png, .npy or .npz; .txt or .npy of tokens.",
)
@click.option("--variance", type=VARIANCES, help="Reverse variance.  [default: the schedule's own]")
@click.option(
    "--sampler",
    type=click.Choice(SAMPLERS),
    help="[default: what the schedule is for, else ancestral]",
)
@click.option("--eta", type=click.FloatRange(0.0, 1.0), help="Noise of DDIM.  [default: the schedule's own, else 0]")
@click.option(
    "--conditioning",
    metavar="DATA",
    shell_complete=complete_file,
    help="Data whose conditioning the samples get, one after the other and over again; for conditional models.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default=DEFAULT_ORDER,
    show_default=True,
    help="Which tokens a round reveals, for masked diffusion.",
)
@click.option("--seed", default=0, show_default=True, help="Names the noise.")
@click.option("--batch-size", default=64, show_default=True, help="Samples per network pass.")
@model_option
@overwrite
@output
@claims_file
def sample_command(
    model: str,
    schedules: Path,
    budget: int,
    stride: str,
    count: int,
    output: Path,
    variance: Any,
    sampler: Any,
    eta: float | None,
    conditioning: str | None,
    order: Any,
    seed: int,
    batch_size: int,
    model_options: tuple[tuple[str, Any], ...],
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Samples of MODEL along a path of K steps: a PNG grid, or arrays; of a model of tokens text, or token ids.

    Images are drawn with the range of values that the schedules' data had. Interrupted, the same command goes on where it
    was; --overwrite gives up samples of another model, path or seed that were not finished. It spreads over the processes
    of torchrun.

    \b
    Examples:
      dpstride sample my_package.my_model:denoiser schedules.json -k 32 -n 64 -o samples.png
      dpstride sample runs/letters/model schedules.json -k 8 -o samples.txt
    """
    from tqdm import tqdm

    from ..evaluate.sampling import Chain
    from ..evaluate.stream import UNCONDITIONAL, sample_stream
    from ..integrations.loaded import LoadedModel
    from ..report.images import check_drawable, save_samples
    from ..runs.numbers import check_batch_size
    from ..schedule import ScheduleSet
    from ..statistics.artefact import DataRange
    from ..strides import beside
    from .sample_masked import FILES, AskedTokens, sample_tokens

    if output.suffix not in (".png", ".npy", ".npz", *FILES):
        raise click.UsageError(f"--output must end in .png, .npy or .npz, and .txt for tokens, not {output.suffix!r}.")
    check_batch_size(batch_size)
    loaded = load_any(model, model_options)
    if not isinstance(loaded, LoadedModel):
        unused = tuple(f"--{name}" for name in ("variance", "sampler", "eta", "conditioning") if given(name))
        asked = AskedTokens(
            schedules, budget, stride, count, output, order=order, seed=seed, batch_size=batch_size, unused=unused
        )
        sample_tokens(loaded, asked, as_json=as_json, quiet=quiet)
        return
    if given("order") or output.suffix == ".txt":
        raise click.UsageError(
            "--order and .txt are for masked diffusion of tokens. Leave --order out; images are .png."
        )
    chosen = ScheduleSet.load(schedules)
    check_eta(sampler or chosen.sampler, eta or 0.0)
    schedule = beside(chosen, stride, budget)
    chain = Chain.along(loaded.denoiser, schedule, seed=seed, variance=variance, sampler=sampler, eta=eta)
    if loaded.decode is None and output.suffix != ".npy":
        check_drawable((count, *(loaded.denoiser.shape or ())))
    shape: list[int] = []
    condition = UNCONDITIONAL if conditioning is None else _conditioning(conditioning, count)
    drawn = DataRange.parse(chosen.provenance.get("data_range", "uint8") if loaded.decode is None else "uint8")

    def write(samples: Tensor) -> None:
        images = samples if loaded.decode is None else loaded.decode(samples)
        save_samples(images.numpy(), output, drawn.low, drawn.high)
        shape.extend(images.shape)

    with tqdm(total=count * budget, desc="sample", unit="eval", disable=True if quiet else None) as bar:
        sample_stream(
            chain, count, output, write,
            batch_size=batch_size, conditioning=condition, update=bar.update, overwrite=overwrite,
        )  # fmt: skip
    emit(as_json, {"samples": str(output), "shape": shape}, f"{output}: {count} samples, {budget} steps")


def _conditioning(text: str, count: int) -> Conditioning:
    """``count`` entries of the conditioning in DATA."""
    import torch

    from ..evaluate.stream import Conditioning
    from ..statistics.data import Samples

    data = named_data(text, labels=True)
    if not isinstance(data, tuple):
        raise ValueError(f"--conditioning {text}: these data have no conditioning, only samples.")
    entries = Samples.read((torch.zeros(len(data[0]), 1), data[1]), None, "continuous")
    return Conditioning.of(entries, count)
