"""Samples of the embedded models along schedules for samples, even steps and the ELBO's paths, as docs/beyond/samples.md shows.

    python benchmarks/samples.py                              all models, samplers and budgets: hours on two cores
    python benchmarks/samples.py fashion-simple --budgets 8   one of them
    python benchmarks/samples.py --page-only                  write the page again from what is there

Paths are chosen on 128 training images (seed 0) with the default band, which was settled on training images and other seeds.
Samples start from the same noises (seed 1) whatever the path, and are compared with test images. They are kept in runs/beyond,
one file per path, so that an interrupted run goes on; several may run at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from beyond import RUNS
from numpy.typing import NDArray

from dpstride import Denoiser, Schedule, Statistics, estimate_adaptively, even_stride, sample, schedules_from, zoo
from dpstride.evaluate.features.extractor import to_levels
from dpstride.objectives.band import SamplesPlan
from dpstride.options import SAMPLES_VARIANCE
from dpstride.runs.storage import read_arrays, write_arrays

SAMPLERS = ("ancestral", "ddim")
BUDGETS = (4, 8, 16, 32)
SEED, CHOOSING_SEED, CHOOSING = 1, 0, 128
SCHEDULES = ("samples", "even", "elbo")
WORDS = {
    "samples": "for samples",
    "even": "even",
    "elbo": "ELBO",
    "ancestral": "ancestral, optimal variance",
    "ddim": "DDIM",
}


def statistics_of(name: str, denoiser: Denoiser) -> Statistics:
    path = RUNS / "samples" / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    statistics, report = estimate_adaptively(
        denoiser, zoo.load_data("fashion-train"), CHOOSING, CHOOSING_SEED,
        band=SamplesPlan().band, checkpoint=path, progress=False,
    )  # fmt: skip
    print(f"{name}: {report.sentence()}", flush=True)
    return statistics


def paths_of(statistics: Statistics, sampler: Any, budgets: Sequence[int]) -> dict[tuple[str, int], Schedule]:
    """Schedules by name and budget; all of them with the sampler, variance and fitted numbers of those for samples."""
    ours = schedules_from(statistics, plan=SamplesPlan(sampler=sampler), max_budget=max(budgets))
    elbo = schedules_from(statistics, SAMPLES_VARIANCE if sampler == "ancestral" else None, max_budget=max(budgets))
    found = {}
    for K in budgets:
        found["samples", K] = ours[K]
        found["even", K] = ours.adopt(even_stride(statistics.process, K))
        found["elbo", K] = ours.adopt(replace(elbo[K], bpd=None, standard_error=None))
    return found


def drawn(name: str, denoiser: Denoiser, schedule: Schedule, label: str, count: int) -> NDArray[np.uint8]:
    """The samples of a schedule as uint8 images, from its file where they are kept."""
    identity = {
        "format": "dpstride-benchmark-samples",
        "steps": str(schedule.steps),
        "count": str(count),
        "seed": str(SEED),
    }
    path = RUNS / "samples" / name / f"{schedule.sampler}-{schedule.budget}-{label}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        arrays, there = read_arrays(path)
        if there.items() >= identity.items():
            return np.asarray(arrays["images"])
    images = to_levels(sample(denoiser, schedule, count, SEED, batch_size=100)).numpy()
    write_arrays(path, {"images": images}, identity)
    print(f"{name} {schedule.sampler} {schedule.budget} {label}: {count} samples", flush=True)
    return images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--page-only", action="store_true")
    options = parser.parse_args()
    budgets = [int(K) for K in options.budgets.split(",")]
    names = options.models or zoo.names()
    models = {} if options.page_only else {name: zoo.load(name) for name in names}
    statistics = {name: statistics_of(name, denoiser) for name, denoiser in models.items()}
    for K in budgets:
        for name, denoiser in models.items():
            for sampler in options.samplers.split(","):
                for (label, _), schedule in paths_of(statistics[name], sampler, [K]).items():
                    drawn(name, denoiser, schedule, label, options.samples)


if __name__ == "__main__":
    main()
