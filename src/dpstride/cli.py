"""Stage 9. The command line: one verb per stage, plus `find` and `demo`, which run them all.

Every verb reads artefacts and writes one. Results go to standard output (as JSON with ``--json``), everything said on
the way to standard error. Exit codes: 0, 1 (the work failed), 2 (bad usage or input), 130 (interrupted, with what was
done kept). Heavy packages are imported inside the verbs, so that ``dpstride --help`` is instant.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import __version__
from .integrations.command import export_command
from .training.command import train_command

if TYPE_CHECKING:
    from .denoiser import Denoiser
    from .evaluate.comparison import Comparison
    from .integrations.loaded import LoadedModel
    from .schedule import ScheduleSet
    from .statistics.artefact import Statistics
    from .statistics.data import Samples

DEFAULT_SAMPLES = 128
INTERRUPTED = 130
DEMO_MODEL = "mixture"
DEMO_SAMPLES = (32, 48)  # to choose and to score with a network
DEMO_BUDGET = 32
VARIANCES = click.Choice(["posterior", "upper", "learned_range", "optimal"])
DECODERS = click.Choice(["upper", "first_pair", "respaced", "optimal"])


class _Range(click.ParamType[Any]):
    """uint8, continuous, or n:low:high."""

    name = "uint8|continuous|n:low:high"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("uint8", "continuous") or not isinstance(value, str):
            return value
        try:
            levels, low, high = value.split(":")
            return ("levels", int(levels), float(low), float(high))
        except ValueError:
            return self.fail(f"{value!r} is not 'uint8', 'continuous' or n:low:high, for example 16:-1:1.", param, ctx)


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several shared options as one decorator, listed in the order given."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_work = _options(
    click.option("--seed", default=0, show_default=True, help="Names the noise and the split of the data."),
    click.option("--batch-size", default=64, show_default=True, help="Samples per network pass."),
    click.option(
        "--data-range", type=_Range(), help="Values that the data takes.  [default: what the model takes, uint8]"
    ),
)
_model_option = click.option(
    "--model-option",
    "-M",
    "model_options",
    multiple=True,
    callback=lambda context, parameter, values: _option(context, parameter, values),
    metavar="KEY=VALUE",
    help="For the loader of MODEL, e.g. preset=cifar10-l-hybrid of an OpenAI checkpoint; may be repeated.",
)
_costs = _options(
    click.option("--variance", type=VARIANCES, help="Reverse variance.  [default: the model's own]"),
    click.option("--decoder", type=DECODERS, default="upper", show_default=True, help="Variance of the last step."),
    click.option("--max-budget", type=int, help="Largest number of steps.  [default: all]"),
)
_output = _options(
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--quiet", "-q", is_flag=True, help="Print only the result."),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dpstride")
def cli() -> None:
    """The best inference schedule of any pre-trained diffusion model, for every number of steps at once.

    \b
    MODEL is a zoo name (dpstride models), a diffusers folder or hub id, an OpenAI checkpoint, or
          package.module:function that returns a dpstride.Denoiser.
    DATA  is a zoo name, a folder of images, a .npy, .npz, .pt or .safetensors file, or
          package.module:function.
    """


@cli.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write."
)
@click.option("--heldout", metavar="DATA", help="Data to score on.  [default: a seeded, disjoint part of DATA]")
@click.option(
    "--samples", type=click.IntRange(min=1), help=f"Samples to choose the path on.  [default: {DEFAULT_SAMPLES}]"
)
@click.option(
    "--heldout-samples", type=click.IntRange(min=1), help=f"Samples to score on.  [default: {DEFAULT_SAMPLES}]"
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, the network evaluations and the time expected.")
@_model_option
@_costs
@_work
@_output
def find(
    model: str,
    data: str,
    output: Path,
    heldout: str | None,
    samples: int | None,
    heldout_samples: int | None,
    dry_run: bool,
    model_options: tuple[tuple[str, Any], ...],
    variance: Any,
    decoder: Any,
    max_budget: int | None,
    seed: int,
    batch_size: int,
    data_range: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """The main job: the best schedules of MODEL, chosen on DATA and scored on held-out data.

    Writes statistics.safetensors, heldout.safetensors, schedules.json, comparison.json, table.txt and figures. Run
    again after an interruption, it goes on where it stopped.

    \b
    Example:
      dpstride find my_package.my_model:denoiser images/ -o out --samples 128
    """
    say = _sayer(quiet or as_json)
    loaded = _load_model(model, model_options)
    denoiser = loaded.denoiser
    choosing, scoring = _split(data, heldout, samples, heldout_samples, loaded, data_range, seed)
    _check_costs(denoiser, variance, decoder, max_budget, choosing)
    say(_plan(denoiser, choosing, scoring, model, data, heldout))
    _say_notes(loaded, say)
    if dry_run:
        _print_dry_run(denoiser, choosing, scoring, batch_size, as_json)
        return
    schedules, comparison, files = _find(
        denoiser, choosing, scoring, output, variance, decoder, max_budget, seed, batch_size, say
    )
    _print_result(schedules, comparison, files, as_json)


@cli.command()
@click.argument("model", default=DEMO_MODEL)
@click.option("-o", "--output", default="demo", show_default=True, type=click.Path(file_okay=False, path_type=Path))
@_output
def demo(model: str, output: Path, as_json: bool, quiet: bool) -> None:
    """The whole method on an embedded model: table, schedules, figures and samples.

    MODEL is mixture when not given: the exact denoiser of a Gaussian mixture in closed form, with no network, in
    seconds. A zoo name (dpstride models) runs a real network on real images, which takes minutes.

    \b
    Examples:
      dpstride demo
      dpstride demo fashion-simple -o fashion
    """
    from .integrations.loaded import LoadedModel
    from .statistics.data import Samples
    from .zoo.mixture import mixture_data, mixture_denoiser

    say = _sayer(quiet or as_json)
    if model == "mixture":
        loaded = LoadedModel(mixture_denoiser())
        choosing, scoring = Samples.read(mixture_data(256, seed=0)), Samples.read(mixture_data(256, seed=1))
        names = ("its own draws, 4 × 4 pixels of 8 bits", "other draws")
    else:
        loaded = _load_model(model)
        names = ("fashion-train", "fashion-test")
        choosing, scoring = _split(*names, *DEMO_SAMPLES, loaded, None, seed=0)
    schedules, comparison, files = _demo(loaded.denoiser, choosing, scoring, model, names, output, say)
    _print_result(schedules, comparison, files, as_json)


@cli.command()
@click.argument("model")
@click.argument("data")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--samples", type=click.IntRange(min=1), help="Samples to use, the first of DATA.  [default: all]")
@_model_option
@_work
@_output
def estimate(
    model: str,
    data: str,
    output: Path,
    samples: int | None,
    model_options: tuple[tuple[str, Any], ...],
    seed: int,
    batch_size: int,
    data_range: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Statistics of MODEL on DATA: one network pass per step and batch. Resumes from its own output.

    \b
    Example:
      dpstride estimate my_package.my_model:denoiser train.npy -o statistics.safetensors
    """
    from .statistics.estimate import estimate as run

    say = _sayer(quiet or as_json)
    loaded = _load_model(model, model_options)
    denoiser = loaded.denoiser
    gathered = _read_samples(data, loaded, samples, data_range)
    say(f"{denoiser.name}: T = {denoiser.process.T}, {len(gathered)} samples of shape {gathered.shape}")
    _say_notes(loaded, say)
    statistics = run(denoiser, gathered, None, seed, batch_size, gathered.data_range, not quiet, output)
    evaluations = statistics.process.T * statistics.samples
    _print(as_json, {"statistics": str(output), "evaluations": evaluations}, f"{output}: {evaluations:,} evaluations")


@cli.command()
@click.argument("statistics", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@_costs
@_output
def solve(
    statistics: Path, output: Path, variance: Any, decoder: Any, max_budget: int | None, as_json: bool, quiet: bool
) -> None:
    """The best schedule of every budget from STATISTICS: no network pass.

    \b
    Example:
      dpstride solve statistics.safetensors -o schedules.json --variance optimal --decoder optimal
    """
    from .pipeline import schedules_from
    from .statistics.artefact import Statistics

    schedules = schedules_from(Statistics.load(statistics), variance, decoder, max_budget)
    schedules.save(output)
    best = schedules.best_budget
    result = {
        "schedules": str(output),
        "budgets": len(schedules),
        "best_budget": best,
        "bpd": {budget: schedules[budget].bpd for budget in schedules.budgets},
    }
    _print(as_json, result, f"{output}: {len(schedules)} schedules; the best budget is K = {best}")


@cli.command()
@click.argument("schedules", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--statistics", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Held-out statistics.")
@click.option("--model", help="MODEL, for direct evaluation on --data.")
@click.option("--data", help="Held-out DATA, for direct evaluation.")
@click.option("--samples", type=click.IntRange(min=1), help="Samples to use, the first of --data.  [default: all]")
@click.option("--budget", "-k", "budgets", multiple=True, type=int, help="A number of steps; may be repeated.")
@_model_option
@_work
@_output
def evaluate(
    schedules: Path,
    statistics: Path | None,
    model: str | None,
    data: str | None,
    samples: int | None,
    budgets: tuple[int, ...],
    model_options: tuple[tuple[str, Any], ...],
    seed: int,
    batch_size: int,
    data_range: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Held-out bits/dim of SCHEDULES beside even and quadratic strides.

    From held-out statistics every budget is scored without a network pass; with --model and --data the budgets asked for
    are evaluated directly, K network passes per batch.

    \b
    Examples:
      dpstride evaluate schedules.json --statistics heldout.safetensors
      dpstride evaluate schedules.json --model my_package.my_model:denoiser --data test.npy -k 32
    """
    from .evaluate.comparison import Comparison, compare
    from .report.text import comparison_table
    from .schedule import ScheduleSet, even_stride, quadratic_stride
    from .statistics.artefact import Statistics

    chosen = ScheduleSet.load(schedules)
    for budget in budgets:
        chosen[budget]  # an unknown budget is refused before any work
    if statistics is not None and model is None and data is None:
        comparison = compare(chosen, Statistics.load(statistics))
    elif statistics is None and model is not None and data is not None:
        from .evaluate.likelihood import bits_per_dim

        if not budgets:
            raise click.UsageError(
                "Direct evaluation needs at least one --budget; it takes K network passes per batch."
            )
        loaded = _load_model(model, model_options)
        _say_notes(loaded, _sayer(quiet or as_json))
        denoiser = loaded.denoiser
        gathered = _read_samples(data, loaded, samples, data_range)
        curves: dict[str, dict[int, tuple[float, float]]] = {"even": {}, "quadratic": {}, "dp": {}}
        for budget in budgets:
            for schedule in (
                chosen.adopt(even_stride(chosen.process, budget)),
                chosen.adopt(quadratic_stride(chosen.process, budget)),
                chosen[budget],
            ):
                found = bits_per_dim(
                    denoiser,
                    gathered,
                    schedule,
                    seed,
                    batch_size=batch_size,
                    data_range=gathered.data_range,
                    progress=not quiet,
                )
                curves[schedule.stride][budget] = (found.bpd, found.standard_error)
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
    text = comparison_table(comparison, columns)
    _print(as_json, {"bits_per_dim": result, "warnings": list(comparison.warnings)}, text)
    for warning in comparison.warnings:
        click.echo(f"Note: {warning}", err=True)


@cli.command()
@click.argument("model")
@click.argument("schedules", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--budget", "-k", required=True, type=int, help="Number of steps.")
@click.option("-n", "count", default=64, show_default=True, type=click.IntRange(min=1), help="Number of samples.")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help=".png, .npy or .npz."
)
@click.option("--variance", type=VARIANCES, help="Reverse variance.  [default: the schedule's own]")
@click.option("--sampler", type=click.Choice(["ancestral", "ddim"]), default="ancestral", show_default=True)
@click.option("--eta", default=0.0, show_default=True, type=click.FloatRange(0.0, 1.0), help="Noise of DDIM.")
@click.option("--seed", default=0, show_default=True, help="Names the noise.")
@click.option("--batch-size", default=64, show_default=True, help="Samples per network pass.")
@_model_option
@_output
def sample(
    model: str,
    schedules: Path,
    budget: int,
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
    """Samples of MODEL along the best path of K steps: a PNG grid, or arrays.

    \b
    Example:
      dpstride sample my_package.my_model:denoiser schedules.json -k 32 -n 64 -o samples.png
    """
    from .evaluate.sampling import sample as run
    from .report.images import save_samples
    from .schedule import ScheduleSet

    if output.suffix not in (".png", ".npy", ".npz"):
        raise click.UsageError(f"--output must end in .png, .npy or .npz, not {output.suffix!r}.")
    schedule = ScheduleSet.load(schedules)[budget]
    loaded = _load_model(model, model_options)
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
    _print(as_json, {"samples": str(output), "shape": list(images.shape)}, f"{output}: {count} samples, {budget} steps")


@cli.command()
@_output
def models(as_json: bool, quiet: bool) -> None:
    """The embedded models, and what each scores on held-out images.

    \b
    Example:
      dpstride models
    """
    from . import zoo

    found = zoo.describe()
    lines = [
        f"{name:20} {facts['process']}, T = {facts['T']}, {facts['parameters']:,} parameters, "
        f"{facts['held_out']['bpd']:.2f} ± {facts['held_out']['standard_error']:.2f} bits/dim"
        for name, facts in found.items()
    ]
    _print(as_json, {"models": found, "data": list(zoo.data_names())}, "\n".join(lines) or "There is none yet.")


cli.add_command(export_command)
cli.add_command(train_command)


# --- the main job ----------------------------------------------------------------------------------------------------------


def _find(
    denoiser: Denoiser,
    choosing: Samples,
    scoring: Samples,
    output: Path,
    variance: Any,
    decoder: Any,
    max_budget: int | None,
    seed: int,
    batch_size: int,
    say: Callable[[str], None],
) -> tuple[ScheduleSet, Comparison, list[Path]]:
    """Statistics → schedules → held-out statistics → comparison → figures, each written as soon as it is there."""
    from .evaluate.comparison import compare
    from .pipeline import schedules_from
    from .report.figures import save_figures
    from .report.text import comparison_table

    output.mkdir(parents=True, exist_ok=True)

    def estimate_to(name: str, data: Samples, seed: int) -> Statistics:
        from .statistics.estimate import estimate as run

        start = time.monotonic()
        statistics = run(denoiser, data, None, seed, batch_size, data.data_range, True, output / name)
        say(f"{output / name}: {denoiser.process.T * len(data):,} evaluations in {time.monotonic() - start:.0f} s")
        return statistics

    statistics = estimate_to("statistics.safetensors", choosing, seed)
    schedules = schedules_from(statistics, variance, decoder, max_budget)
    schedules.save(output / "schedules.json")
    comparison = compare(schedules, estimate_to("heldout.safetensors", scoring, seed + 1))
    comparison.save(output / "comparison.json")
    (output / "table.txt").write_text(comparison_table(comparison) + "\n", encoding="utf-8")
    files = [output / "schedules.json", output / "comparison.json", output / "table.txt"]
    return schedules, comparison, files + save_figures(comparison, schedules, output)


def _demo(
    denoiser: Denoiser,
    choosing: Samples,
    scoring: Samples,
    model: str,
    names: tuple[str, str],
    output: Path,
    say: Callable[[str], None],
) -> tuple[ScheduleSet, Comparison, list[Path]]:
    """`find` on embedded data, and samples of the model along a short path."""
    from .evaluate.sampling import sample as run
    from .report.images import save_samples

    say(_plan(denoiser, choosing, scoring, model, *names))
    schedules, comparison, files = _find(denoiser, choosing, scoring, output, None, "upper", None, 0, 64, say)
    budget = min(DEMO_BUDGET, schedules.budgets[-1])
    path = output / f"samples_{budget}_steps.png"
    save_samples(run(denoiser, schedules[budget], n=36).numpy(), path)
    return schedules, comparison, [*files, path]


def _split(
    data: str,
    heldout: str | None,
    samples: int | None,
    heldout_samples: int | None,
    model: LoadedModel,
    data_range: Any,
    seed: int,
) -> tuple[Samples, Samples]:
    """What chooses the path and what scores it: two data sets, or disjoint parts of one in a seeded order."""
    import numpy as np

    gathered = _read_samples(data, model, None, data_range)
    order = np.random.default_rng(seed).permutation(len(gathered)).tolist()
    if heldout is not None:
        other = _read_samples(heldout, model, None, data_range)
        other_order = np.random.default_rng(seed + 1).permutation(len(other)).tolist()
        wanted = min(DEFAULT_SAMPLES, len(gathered)) if samples is None else samples
        other_wanted = min(DEFAULT_SAMPLES, len(other)) if heldout_samples is None else heldout_samples
        _check_enough(wanted, len(gathered), "DATA")
        _check_enough(other_wanted, len(other), "--heldout")
        return gathered.take(order[:wanted]), other.take(other_order[:other_wanted])
    if len(gathered) < 2:
        raise ValueError(
            "DATA holds one sample, which cannot both choose the path and score it. Give more, or --heldout."
        )
    wanted = min(DEFAULT_SAMPLES, len(gathered) // 2) if samples is None else samples
    other_wanted = min(DEFAULT_SAMPLES, len(gathered) - wanted) if heldout_samples is None else heldout_samples
    _check_enough(wanted + max(other_wanted, 1), len(gathered), "DATA")
    return gathered.take(order[:wanted]), gathered.take(order[wanted : wanted + other_wanted])


def _check_enough(wanted: int, available: int, name: str) -> None:
    if wanted > available:
        raise ValueError(
            f"{wanted} samples were asked of {name}, which has {available}. Lower --samples or --heldout-samples, or give "
            "more data."
        )


def _check_costs(denoiser: Denoiser, variance: Any, decoder: Any, max_budget: int | None, data: Samples) -> None:
    """Refuse what the solver would refuse, before the network runs for hours."""
    from .pipeline import check_request

    check_request(denoiser, variance, decoder, max_budget)
    if denoiser.shape is not None and denoiser.shape != data.shape:
        raise ValueError(f"The model takes samples of shape {denoiser.shape}, but the data has shape {data.shape}.")


def _plan(denoiser: Denoiser, choosing: Samples, scoring: Samples, model: str, data: str, heldout: str | None) -> str:
    process = denoiser.process
    clip = "no clipping" if denoiser.clip is None else f"x0 clipped to [{denoiser.clip[0]:g}, {denoiser.clip[1]:g}]"
    return "\n".join(
        [
            f"Model    {model}: predicts {denoiser.predicts}, {denoiser.variance} variance, {clip}",
            f"Process  {process.name}, {process.kind}, T = {process.T}",
            f"Data     {len(choosing)} samples of shape {choosing.shape} choose the path ({data})",
            f"         {len(scoring)} other samples score it ({heldout or 'a disjoint part of the same data'})",
        ]
    )


def _print_dry_run(denoiser: Denoiser, choosing: Samples, scoring: Samples, batch_size: int, as_json: bool) -> None:
    """Network evaluations, and the time they take by a few timed passes of the same work."""
    from .statistics.estimate import estimate as run

    process = denoiser.process
    evaluations = process.T * (len(choosing) + len(scoring))
    few = choosing.take(range(min(batch_size, len(choosing))))
    seconds = []
    for t in (process.T, process.T, max(1, process.T // 2)):  # the first pass also warms up
        start = time.monotonic()
        run(denoiser.on_grid(process.subset([t])), few, None, 0, batch_size, few.data_range, progress=False)
        seconds.append(time.monotonic() - start)
    expected = min(seconds) / len(few) * evaluations
    result = {"evaluations": evaluations, "seconds": expected, "batch_size": batch_size}
    _print(as_json, result, f"Would make {evaluations:,} network evaluations, about {_duration(expected)}.")


def _print_result(schedules: ScheduleSet, comparison: Comparison, files: list[Path], as_json: bool) -> None:
    from .report.text import comparison_table

    result = {
        "enough": {"tolerance": 0.1, "budget": comparison.enough(0.1)},
        "bits_per_dim": {
            stride: {
                budget: {"bpd": curve[budget][0], "standard_error": curve[budget][1]}
                for budget in comparison.table_budgets
            }
            for stride, curve in comparison.curves.items()
        },
        "best_budget": schedules.best_budget,
        "warnings": list(comparison.warnings),
        "files": [str(path) for path in files],
    }
    lines = [comparison_table(comparison), "", comparison.sentence()]
    lines += [f"Note: {warning}" for warning in comparison.warnings]
    lines += ["", "Written: " + ", ".join(str(path) for path in files)]
    _print(as_json, result, "\n".join(lines))


# --- inputs and outputs ----------------------------------------------------------------------------------------------------


def _load_model(text: str, options: tuple[tuple[str, Any], ...] = ()) -> LoadedModel:
    from . import zoo
    from .integrations.loaded import LoadedModel
    from .integrations.loading import load_model

    if text in zoo.names():
        return LoadedModel(zoo.load(text))
    if not options:
        return load_model(text)
    try:
        return load_model(text, **dict(options))
    except TypeError as error:
        raise ValueError(f"MODEL {text!r} did not take the options given with --model-option ({error}).") from error


def _read_samples(text: str, model: LoadedModel, samples: int | None, data_range: Any) -> Samples:
    """DATA as the model takes it: encoded where it works on latents, with the value range that it implies."""
    from . import zoo
    from .statistics.data import Samples
    from .statistics.files import read_data

    data = zoo.load_data(text) if text in zoo.data_names() else read_data(text)
    if model.encode is not None:
        data = model.encode(*data) if isinstance(data, tuple) else model.encode(data)
    return Samples.read(data, samples, model.data_range if data_range is None else data_range)


def _option(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """KEY=VALUE pairs; a value that is JSON (a number, true, a list) is read as such, any other is text."""
    pairs = []
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key.isidentifier():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE.")
        try:
            pairs.append((key, json.loads(text)))
        except ValueError:
            pairs.append((key, text))
    return tuple(pairs)


def _say_notes(loaded: LoadedModel, say: Callable[[str], None]) -> None:
    """What was read from a foreign model and by which rules, before the work starts."""
    for note in (*loaded.notes, *(f"Warning: {warning}" for warning in loaded.warnings)):
        say(f"         {note}")


def _sayer(silent: bool) -> Callable[[str], None]:
    return (lambda text: None) if silent else (lambda text: click.echo(text, err=True))


def _print(as_json: bool, result: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(result) if as_json else text)


def _duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60.0:.0f} minutes" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} hours"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors of the user become one message and an exit code, never a traceback."""
    code = _run(arguments)
    if code == INTERRUPTED:
        # CPython may still end by the signal itself after Ctrl-C (exit code -2); everything is written, so leave now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    try:
        return int(cli.main(args=arguments, prog_name="dpstride", standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted; what was done is kept, and the same command goes on from there.", err=True)
        return INTERRUPTED
    except (ValueError, ImportError) as error:
        from .denoiser import NonFiniteError  # it brings torch, which --help must not wait for

        click.echo(f"Error: {error}", err=True)
        return 1 if isinstance(error, NonFiniteError) else 2
    except (OSError, RuntimeError, MemoryError) as error:
        click.echo(f"Error: {error or type(error).__name__}", err=True)
        return 1
