"""Stage 9. `dpstride study`: the paper's experimental section for any model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..finding.expected import seconds_of_features, seconds_to_estimate, seconds_to_sample
from ..finding.inputs import Asked, read_data, shared_note, split
from ..finding.job import HELDOUT as HELDOUT_FILE, STATISTICS, Request, check_costs, notes_of
from ..options import DEFAULT_OBJECTIVE, DEFAULT_SAMPLER, SAMPLERS
from ..pipeline import cost_options
from ..runs.folder import RECORD, Needed, begin
from .claim import claims_folder
from .console import emit, expected_time, printer
from .inputs import load_model
from .options import (
    Real,
    check_eta,
    conditioning_option,
    dry_run,
    model_option,
    run_arguments,
    run_options,
    variance_and_decoder,
)
from .report import run_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..integrations.loaded import LoadedModel
    from ..statistics.data import Samples
    from ..study.run import Study

SAMPLES, CHOOSING, HELDOUT = 1000, 512, 256


@click.command("study", short_help="Run the paper's whole evaluation on MODEL.")
@run_arguments
@conditioning_option
@click.option(
    "--samples",
    type=click.IntRange(min=2),
    default=SAMPLES,
    show_default=True,
    help="Number of samples for each distance; 50000 in the paper.",
)
@click.option(
    "--all-samples",
    type=click.IntRange(min=2),
    help="Number of samples along all T steps.  [default: --samples, or 1000/T of it if T is larger]",
)
@click.option(
    "--features",
    metavar="FEATURES",
    help="Features to measure distances in: fashion, inception, inception:PATH, none or package.module:function.  [default: "
    "those that fit the images]",
)
@click.option(
    "--budget",
    "-k",
    "budgets",
    multiple=True,
    type=click.IntRange(min=1),
    help="Number of steps to measure distances at; may be repeated.",
)
@click.option(
    "--choosing-samples", type=click.IntRange(min=2), help=f"Samples to choose paths on.  [default: {CHOOSING}]"
)
@click.option("--heldout-samples", type=click.IntRange(min=2), help=f"Samples to score on.  [default: {HELDOUT}]")
@variance_and_decoder
@click.option("--sampler", type=click.Choice(SAMPLERS), default=DEFAULT_SAMPLER, show_default=True, help="Sampler.")
@click.option("--eta", default=0.0, show_default=True, type=Real(0.0, 1.0), help="Noise of DDIM.")
@dry_run
@model_option
@run_options
@claims_folder
def study_command(
    model: str,
    data: str,
    output: Path,
    heldout: str | None,
    conditioning: str | None,
    samples: int,
    all_samples: int | None,
    features: str | None,
    budgets: tuple[int, ...],
    choosing_samples: int | None,
    heldout_samples: int | None,
    variance: Any,
    decoder: Any,
    sampler: Any,
    eta: float,
    dry_run: bool,
    model_options: tuple[tuple[str, Any], ...],
    seed: int,
    batch_size: int,
    data_range: Any,
    skip_nonfinite: bool,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the paper's whole evaluation on MODEL: tables, curves, paths, samples, distances, ablation, correlation.

    Paths are chosen on DATA, which samples are also compared with, and scored on held-out data. Writes report.html (a page
    that shows everything), results.json, tables (.txt, .md, .tex) and figures (.svg, .png). Run again after an interruption
    of any kind, it resumes where it stopped, with less than a minute lost. --samples may be raised later; a folder with
    results of another model, other data or other options is refused, and --overwrite replaces them.

    \b
    Examples:
      dpstride study fashion-simple fashion-train --heldout fashion-test -o study
      dpstride study google/ddpm-cifar10-32 images/ -o study --samples 50000 --features inception
    """
    from ..report.page import write_page
    from ..report.study_figures import save_study_figures
    from ..report.tables import save_tables, study_tables
    from ..schedule import ScheduleSet
    from ..statistics.identity import Inputs
    from ..study.plan import choosing_steps

    say = printer(quiet or as_json)
    check_eta(sampler, eta)
    loaded = load_model(model, model_options)
    asked = Asked(
        data, heldout, choosing_samples, heldout_samples,
        data_range=data_range, defaults=(CHOOSING, HELDOUT), conditioning=conditioning,
    )  # fmt: skip
    parts = split(asked, loaded, seed)
    check_costs(loaded.denoiser, Request(variance=variance, decoder=decoder), *parts)
    images = _images(data, loaded, data_range, seed)
    others = None if heldout is None else _images(heldout, loaded, data_range, seed + 1)
    shared, cut = shared_note(*parts) if heldout else (), _cut_note(loaded, images, parts[0])
    study, words = _prepare(
        loaded, parts, images, others=others, features=features, budgets=budgets, samples=samples,
        all_samples=all_samples, notes=(*shared, *cut),
        variance=variance, decoder=decoder, sampler=sampler, eta=eta, seed=seed, batch_size=batch_size,
        skip_nonfinite=skip_nonfinite, names=(data, heldout or f"held-out part of {data}"),
    )  # fmt: skip
    say(f"Model    {model}: {loaded.denoiser.process.name}, T = {loaded.denoiser.process.T:,}")
    notes = [f"Note: {note}" for note in (*study.notes, *study.few)]
    say("\n".join([*notes_of(loaded), *study.plan.lines(), f"Features {words}", *notes]))
    inputs = Inputs.of(loaded.denoiser, *parts, seed)
    identity = inputs.run("study", _options(study), DEFAULT_OBJECTIVE)
    run = run_of(model, data, heldout, identity)
    if not dry_run:
        process = loaded.denoiser.process
        needed = {
            STATISTICS: Needed(inputs.estimate, choosing_steps(process), skip_nonfinite),
            HELDOUT_FILE: Needed(inputs.heldout_estimate, range(1, process.T + 1), skip_nonfinite),
        }
        begin(output, run, needed, overwrite)
    expected = _expected_seconds(study)
    evaluations = study.plan.statistics_evaluations + study.plan.sampling_evaluations
    if dry_run:
        result = {
            "evaluations": evaluations,
            "seconds": expected,
            "samples": {point.name: point.samples for point in study.plan.points},
        }
        emit(
            as_json,
            result,
            f"Would make {evaluations:,} network evaluations besides the probes, {expected_time(expected)}.",
        )
        return
    say(f"In total {evaluations:,} network evaluations, {expected_time(expected)}, if none are saved yet.")
    results = replace(study, run_id=run.id).run(output, say, progress=not quiet)
    if results is None:  # a worker process of a launch
        return
    files = [output / "results.json", *save_tables(results, output)]
    files += save_study_figures(results, ScheduleSet.load(output / "schedules.json"), output)
    files = [write_page(output), output / RECORD, *files]
    text = [table.text() for table in study_tables(results)]
    text += [f"{results.sentence}\n"] if results.sentence else []
    text += [f"Note: {note}" for note in results.notes]
    text.append("Written: " + ", ".join(str(path) for path in files))
    summary = {
        "results": str(output / "results.json"),
        "agreement": results.sentence,
        "notes": list(results.notes),
        "files": [str(path) for path in files],
    }
    emit(as_json, summary, "\n".join(text))


def _options(study: Study) -> dict[str, Any]:
    """Return the options that results depend on besides model, data and seed; samples and paths may be added later."""
    costs = cost_options(study.denoiser, study.variance, study.decoder, None)
    features = None if study.extractor is None else study.extractor.describe()
    options = {"sampler": study.sampler, "eta": study.eta, "features": features, "skip_nonfinite": study.skip_nonfinite}
    return {**costs, **options}


def _prepare(
    loaded: LoadedModel,
    parts: tuple[Any, Any],
    images: Tensor | None,
    *,
    others: Tensor | None,
    features: str | None,
    budgets: tuple[int, ...],
    samples: int,
    all_samples: int | None,
    **options: Any,
) -> tuple[Study, str]:
    """Return the study, and its features in words."""
    from ..given import refuse_given
    from ..study.features import NONE, extractor_named
    from ..study.plan import make_plan
    from ..study.run import Study

    refuse_given(loaded.denoiser.given, "A study")
    choosing, scoring = parts
    extractor, words = None, "none: the samples are not images"
    if images is not None:
        extractor, words = extractor_named(features, tuple(images.shape[1:]))
    elif features not in (None, NONE):
        raise ValueError(
            f"--features {features} needs images [C, H, W], but DATA has samples of shape {choosing.shape}. Leave it out to "
            "measure no distances."
        )
    if extractor is not None and images is not None:
        extractor(images[:1])  # refuse unsuitable images before hours of work
    if loaded.denoiser.shape is None:
        loaded.denoiser.shape = choosing.shape
    plan = make_plan(
        loaded.denoiser.process,
        samples,
        all_samples,
        budgets=budgets or None,
        choosing=len(choosing),
        heldout=len(scoring),
        drawn=images is not None,
        scored=extractor is not None,
    )
    study = Study(
        loaded.denoiser,
        choosing,
        scoring,
        plan,
        extractor=extractor,
        reference=images,
        heldout_images=None if others is None else others[:samples],
        decode=loaded.decode,
        **options,
    )
    return study, words


def _images(text: str, loaded: LoadedModel, data_range: Any, seed: int) -> Tensor | None:
    """Return DATA as uint8 images [n, C, H, W] in a seeded order, or None if they are not images.

    For a latent model these are the images before encoding.
    """
    import numpy as np
    import torch

    from ..evaluate.features.extractor import to_levels
    from ..statistics.data import Samples

    data = read_data(text)
    low, high = -1.0, 1.0
    if loaded.encode is None:
        samples = Samples.read(data, None, loaded.data_range if data_range is None else data_range)
        images, low, high = samples.values, samples.data_range.low, samples.data_range.high
        if samples.data_range.levels not in (None, 256):
            images = samples.batch(0, len(samples), torch.device("cpu"), torch.float32).x
    else:
        first = data[0] if isinstance(data, tuple) else data
        images = torch.as_tensor(first) if isinstance(first, (torch.Tensor, np.ndarray)) else torch.zeros(0)
    if images.ndim != 4:
        return None
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(images)))
    return images[order] if images.dtype == torch.uint8 else to_levels(images[order].float(), low, high)


def _cut_note(loaded: LoadedModel, images: Tensor | None, choosing: Samples) -> tuple[str, ...]:
    """Return a warning if images cannot show all values of the data."""
    beyond = choosing.data_range.levels is None and bool((choosing.values.abs() > 1.0).any())
    if images is None or loaded.decode is not None or not beyond:
        return ()
    return (
        "DATA has values outside [−1, 1]. Images clip them, both real ones and samples: figures and distances do not show "
        "values beyond this range.",
    )


def _expected_seconds(study: Study) -> float:
    """Return the expected seconds of estimates, samples and features; conditional samples are assumed as slow as estimates."""
    per_time = seconds_to_estimate(study.denoiser, study.choosing, study.batch_size)
    per_step = per_time
    if study.plan.points and study.choosing.conditioning is None:
        per_step = seconds_to_sample(study.denoiser, study.batch_size)
    passes = per_time * study.plan.statistics_evaluations + per_step * study.plan.sampling_evaluations
    if study.extractor is None or study.reference is None:
        return passes
    real = sum(len(images) for images in (study.reference, study.heldout_images) if images is not None)
    images = real + sum(point.samples for point in study.plan.points)
    return passes + seconds_of_features(study.extractor, study.reference) * images
