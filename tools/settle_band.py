"""Compare settings and forms of the objective for samples, on training images and a seed that are not used for scoring.

    python tools/settle_band.py MODEL SAMPLER BUDGET [--forms]

prints the Fréchet distance on fashion features of 256 samples (seed 7, the same noise for all) from 2,048 training images, for
even steps and for each setting; with --forms for the forms of the cost: divergences for `posterior` or `optimal` variance, and
a last step that stops at a noise level or returns the mean. `objectives/band.py` has the choice made; `benchmarks/samples.py`
measures it on test images with other noise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from dpstride import (
    Band,
    Denoiser,
    Schedule,
    Statistics,
    estimate_adaptively,
    even_stride,
    frechet_distance,
    schedules_from as schedules_of,
    zoo,
)
from dpstride.evaluate.features.extractor import to_levels
from dpstride.objectives.band import DEFAULT, SamplesPlan
from dpstride.racing.sampling import BuiltIn
from dpstride.zoo.classifier import fashion_features

SETTINGS = (Band(), Band(1.6, 0.1, 20.0), Band(cap=1.5), Band(evenness=0.5), Band(cap=1.5, evenness=0.3), DEFAULT)
COUNT, SEED, BATCH = 256, 7, 64


def drawn(denoiser: Denoiser, schedule: Schedule) -> torch.Tensor:
    """Samples as uint8 images."""
    chain = BuiltIn(schedule.sampler).walk(denoiser, schedule, SEED)
    images = []
    for first in range(0, COUNT, BATCH):
        x = chain.start(first, BATCH)
        for step in range(chain.budget):
            x = chain.advance(x, step, first)
        images.append(to_levels(x))
    return torch.cat(images)


def settings(statistics: Statistics, sampler: str, budget: int) -> Iterator[tuple[str, Schedule]]:
    """Even steps, then the schedules of all settings, with their names."""
    of_band = partial(schedules_of, statistics, max_budget=budget)
    found = {band: of_band(plan=SamplesPlan(band, sampler)) for band in SETTINGS}  # type: ignore[arg-type]
    yield "even", found[DEFAULT].adopt(even_stride(statistics.process, budget))
    yield from ((band.words, schedules[budget]) for band, schedules in found.items())


def forms(statistics: Statistics, sampler: str, budget: int) -> Iterator[tuple[str, Schedule]]:
    """Schedules of the plain band, for each form of its cost."""
    from known_laws import FORMS, PLAIN, band_paths

    schedules = schedules_of(statistics, plan=SamplesPlan(PLAIN, sampler), max_budget=budget)  # type: ignore[arg-type]
    for words, (variance, mean_returned) in FORMS.items():
        path = band_paths(statistics, PLAIN, variance, mean_returned)(budget)
        yield words, schedules.adopt(Schedule(statistics.process, path))


def main(name: str, sampler: str, budget: int, what: str = "--settings") -> None:
    """Print a line for each schedule."""
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the forms are in known_laws.py
    denoiser, data, extractor = zoo.load(name), zoo.load_data("fashion-train"), fashion_features()
    real = extractor(data[:2048])
    statistics, _ = estimate_adaptively(denoiser, data, 128, band=DEFAULT, progress=False)
    compared = {"--settings": settings, "--forms": forms}[what]
    for words, schedule in compared(statistics, sampler, budget):
        distance = frechet_distance(extractor(drawn(denoiser, schedule)), real)
        print(f"{name} {sampler} {budget}, {words}: {distance:.2f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: python tools/settle_band.py MODEL SAMPLER BUDGET [--forms]")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
