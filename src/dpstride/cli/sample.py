"""Stage 9. `dpstride sample`: samples along a path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..finding.expected import fitting_steps
from ..finding.inputs import condition_of
from ..options import BEST, COMPARED_STRIDES, DEFAULT_ORDER, ORDERS, SAMPLERS
from ..runs.bars import progress_bar
from ..runs.launched import launch_size
from .claim import claims_file
from .console import emit, printer
from .inputs import load_any, load_model
from .options import VARIANCES, Real, check_eta, complete_file, given, model_argument, model_option, output, overwrite

if TYPE_CHECKING:
    from torch import Tensor

    from ..evaluate.stream import Conditioning
    from ..integrations.loaded import LoadedModel


@click.command("sample", short_help="Draw samples of MODEL along a path of K steps.")
@model_argument
@click.argument("schedules", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--budget", "-k", type=int, help="Number of steps.")
@click.option(
    "--seconds",
    type=Real(min=0.0, min_open=True),
    help="Instead of -k: as many steps as fit into this time for all samples, measured by a few timed steps.",
)
@click.option(
    "--stride",
    type=click.Choice([BEST, *COMPARED_STRIDES]),
    default=BEST,
    show_default=True,
    help="The best path, or a hand-made one with the same options.",
)
@click.option("-n", "count", default=64, show_default=True, type=click.IntRange(min=1), help="Number of samples.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Output file: .png, .npy or .npz; for tokens .txt or .npy.",
)
@click.option("--variance", type=VARIANCES, help="Reverse variance.  [default: the schedule's own]")
@click.option(
    "--sampler",
    type=click.Choice(SAMPLERS),
    help="Sampler.  [default: the schedule's own, else ancestral]",
)
@click.option("--eta", type=Real(0.0, 1.0), help="Noise of DDIM.  [default: the schedule's own, else 0]")
@click.option(
    "--conditioning",
    metavar="DATA",
    shell_complete=complete_file,
    help="Prompts (.txt, one per line), labels, or data that have them; samples take them in turn, cyclically.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default=DEFAULT_ORDER,
    show_default=True,
    help="For masked diffusion: which tokens a round reveals.",
)
@click.option("--seed", default=0, show_default=True, help="Random seed for the noise.")
@click.option("--batch-size", default=64, show_default=True, help="Samples per network pass.")
@model_option
@overwrite
@output
@claims_file
def sample_command(
    model: str,
    schedules: Path,
    budget: int | None,
    seconds: float | None,
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
    """Draw samples of MODEL along a path of K steps, or of as many as fit into --seconds.

    Writes a PNG grid or arrays; for a model of tokens, text or token ids. Images have the range of values of the schedules'
    data. Run again after an interruption, it resumes where it stopped; --overwrite discards unfinished samples of another
    model, path or seed. Runs on all processes of torchrun.

    \b
    Examples:
      dpstride sample my_package.my_model:denoiser schedules.json -k 32 -n 64 -o samples.png
      dpstride sample my_package.my_model:denoiser schedules.json --seconds 2 -n 1 -o sample.png
      dpstride sample runs/letters/model schedules.json -k 8 -o samples.txt
    """
    from ..evaluate.sampling import Chain
    from ..evaluate.stream import sample_stream
    from ..integrations.forms import TOKENS, kind_of
    from ..integrations.published import read_schedules, schedules_on
    from ..report.images import check_drawable, save_samples
    from ..runs.numbers import check_batch_size
    from ..schedule import ScheduleSet
    from ..statistics.artefact import DataRange
    from ..strides import beside
    from .sample_masked import AskedTokens, sample_tokens

    if kind_of(str(schedules)) is TOKENS:
        unused = tuple(f"--{name}" for name in ("variance", "sampler", "eta", "conditioning", "seconds") if given(name))
        asked = AskedTokens(
            schedules,
            budget,
            stride,
            count,
            output=output,
            order=order,
            seed=seed,
            batch_size=batch_size,
            unused=unused,
        )
        sample_tokens(load_any(model, model_options), asked, as_json=as_json, quiet=quiet)
        return
    if output.suffix not in (".png", ".npy", ".npz") or given("order"):
        raise click.UsageError(
            f"--output must end in .png, .npy or .npz, not {output.suffix!r}; .txt and --order are for unmasking schedules of "
            "tokens."
        )
    if (budget is None) == (seconds is None):
        raise click.UsageError("Give either --budget (-k), a number of steps, or --seconds.")
    if seconds is not None and launch_size() > 1:
        raise click.UsageError(
            "--seconds is measured in each process, so several would not agree. Give --budget (-k) instead."
        )
    saved = read_schedules(schedules)
    if isinstance(saved, ScheduleSet) and budget is not None:
        beside(saved, stride, budget)  # an unknown budget is refused before the model is read
    loaded = load_model(model, model_options)
    chosen = schedules_on(saved, loaded.denoiser.process)
    check_eta(sampler or chosen.sampler, eta or 0.0)
    check_batch_size(batch_size)

    def chain_of(steps: int) -> Chain:
        schedule = beside(chosen, stride, steps)
        return Chain.along(loaded.denoiser, schedule, seed=seed, variance=variance, sampler=sampler, eta=eta)

    longest = chain_of(chosen.budgets[-1] if budget is None else budget)
    if loaded.decode is None and output.suffix != ".npy":
        check_drawable((count, *(loaded.denoiser.shape or ())))
    shape: list[int] = []
    condition = _conditioning(conditioning, count, loaded)
    measured: dict[str, float] = {}
    if seconds is not None:
        fits = fitting_steps(longest, chosen.budgets, seconds, count, batch_size=batch_size, conditioning=condition)
        printer(quiet or as_json)(str(fits))
        measured, longest = {"seconds_per_pass": fits.seconds_per_pass}, chain_of(fits.budget)
    chain, budget = longest, longest.budget
    drawn = DataRange.parse(chosen.provenance.get("data_range", "uint8") if loaded.decode is None else "uint8")

    def write(samples: Tensor) -> None:
        images = samples if loaded.decode is None else loaded.decode(samples)
        save_samples(images.numpy(), output, drawn.low, drawn.high)
        shape.extend(images.shape)

    with progress_bar(count * budget, "sample", "eval", not quiet) as bar:
        sample_stream(
            chain, count, output, write,
            batch_size=batch_size, conditioning=condition, update=bar.update, overwrite=overwrite,
        )  # fmt: skip
    result = {"samples": str(output), "shape": shape, "budget": budget, **measured}
    emit(as_json, result, f"{output}: {count} samples, {budget} steps")


def _conditioning(text: str | None, count: int, model: LoadedModel) -> Conditioning:
    """Return ``count`` entries of the conditioning in DATA."""
    import torch

    from ..evaluate.stream import UNCONDITIONAL, Conditioning
    from ..finding.conditions import count_of, entries_of, missing
    from ..statistics.data import Samples

    kind = condition_of(model)
    if text is None:
        if kind is not None and model.conditioning is not None:
            raise missing(kind, "`dpstride sample` by itself")
        if model.denoiser.given is not None:
            raise model.denoiser.given.missing("nothing: name a file that has them with --conditioning")
        return UNCONDITIONAL
    entries = entries_of(text, kind)
    found = count_of(entries)
    if model.condition is not None:
        entries = model.condition(entries, found)
    return Conditioning.of(Samples.read((torch.zeros(found, 1), entries), None, "continuous"), count)
