"""Sample the embedded models along schedules for samples, even steps and the ELBO's paths, for docs/beyond/samples.md.

    python benchmarks/samples.py                              all models, samplers and budgets: hours on two cores
    python benchmarks/samples.py fashion-simple --budgets 8   one of them
    python benchmarks/samples.py --page-only                  rewrite the page from stored results

Paths are chosen on 128 training images (seed 0) with the default band, which was tuned on training images with other seeds.
Samples start from the same noise (seed 1) for every path, and ancestral steps also share the noise of each step. They are
compared with test images and kept in runs/beyond, one file per path, so that an interrupted run resumes; several runs can
work at once. Cells with results for the same paths in docs/beyond/results are not drawn again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from beyond import RUNS, results, save, table, write_page
from numpy.typing import NDArray
from torch import Tensor

from dpstride import (
    Denoiser,
    Schedule,
    Statistics,
    energy_distance,
    estimate_adaptively,
    even_stride,
    frechet_distance,
    schedules_from,
    zoo,
)
from dpstride.evaluate.features.extractor import FeatureExtractor, to_levels
from dpstride.evaluate.frechet import Moments
from dpstride.evaluate.kernel_distance import feature_discrepancy
from dpstride.objectives.band import SamplesPlan
from dpstride.options import SAMPLES_VARIANCE
from dpstride.racing.sampling import BuiltIn
from dpstride.runs.storage import read_arrays, write_arrays
from dpstride.zoo.classifier import fashion_features

SAMPLERS = ("ancestral", "ddim")
BUDGETS = (4, 8, 16, 32)
SEED, CHOOSING_SEED, CHOOSING = 1, 0, 128
BLOCKS = 20  # of the jackknife
BATCH = 50
DETERMINISTIC = "ddim"
Features = NDArray[np.float32]
MEASURES = {
    "frechet": "Fréchet distance, fashion features",
    "kernel": "kernel distance · 10³",
    "energy": "pixel energy distance · 10³",
}
SCALE = {"frechet": 1.0, "kernel": 1000.0, "energy": 1000.0}
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
    """Schedules by name and budget, all with the sampler, variance and fitted numbers of the schedules for samples."""
    ours = schedules_from(statistics, plan=SamplesPlan(sampler=sampler), max_budget=max(budgets))
    elbo = schedules_from(statistics, SAMPLES_VARIANCE if sampler == "ancestral" else None, max_budget=max(budgets))
    found = {}
    for K in budgets:
        found["samples", K] = ours[K]
        found["even", K] = ours.adopt(even_stride(statistics.process, K))
        found["elbo", K] = ours.adopt(replace(elbo[K], bpd=None, standard_error=None))
    return found


def drawn(name: str, denoiser: Denoiser, schedule: Schedule, label: str, count: int) -> NDArray[np.uint8]:
    """The samples of a schedule as uint8 images, read from their file if it exists."""
    identity = {
        "format": "dpstride-benchmark-samples",
        "steps": str(schedule.steps),
        "count": str(count),
        "seed": str(SEED),
        **({} if schedule.sampler == DETERMINISTIC else {"noise": "by number of the step"}),
    }
    path = RUNS / "samples" / name / f"{schedule.sampler}-{schedule.budget}-{label}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        arrays, there = read_arrays(path)
        if there.items() >= identity.items():
            return np.asarray(arrays["images"])
    images = to_levels(walked(denoiser, schedule, count)).numpy()
    write_arrays(path, {"images": images}, identity)
    print(f"{name} {schedule.sampler} {schedule.budget} {label}: {count} samples", flush=True)
    return images


def walked(denoiser: Denoiser, schedule: Schedule, count: int) -> Tensor:
    """Samples whose noise depends on the step's number, so that paths with equally many steps share all of it."""
    chain = BuiltIn(schedule.sampler, schedule.eta).walk(denoiser, schedule, SEED)
    parts = []
    for first in range(0, count, BATCH):
        x = chain.start(first, min(BATCH, count - first))
        for step in range(chain.budget):
            x = chain.advance(x, step, first)
        parts.append(x.float().cpu())
    return torch.cat(parts)


# --- measuring -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Real:
    """Test images, which are not used to choose anything."""

    extractor: FeatureExtractor
    features: Features
    pixels: NDArray[np.float64]

    @classmethod
    def load(cls) -> Real:
        extractor, images = fashion_features(), zoo.load_data("fashion-test").numpy()
        return cls(extractor, extractor(images), images / 127.5 - 1.0)


def measured(name: str, sampler: str, K: int, real: Real) -> dict[str, Any] | None:
    """Distances of a cell's schedules, and paired differences between ours and the others; None until all are drawn."""
    paths = {label: RUNS / "samples" / name / f"{sampler}-{K}-{label}.safetensors" for label in SCHEDULES}
    if not all(path.is_file() for path in paths.values()):
        return None
    kept = {label: read_arrays(path) for label, path in paths.items()}
    images = {label: np.asarray(arrays["images"]) for label, (arrays, _) in kept.items()}
    features = {label: real.extractor(each) for label, each in images.items()}
    kernels = {label: feature_discrepancy(each, real.features) for label, each in features.items()}
    energies = {label: energy_distance(each / 127.5 - 1.0, real.pixels) for label, each in images.items()}
    cell: dict[str, Any] = {"count": len(images["samples"]), "real": len(real.features)}
    for label, (_, header) in kept.items():
        frechet = frechet_distance(features[label], real.features)
        cell[label] = {
            "steps": header["steps"], "frechet": frechet, "kernel": kernels[label].value, "energy": energies[label].value,
        }  # fmt: skip
    for label in SCHEDULES[1:]:
        cell[f"samples minus {label}"] = {
            "frechet": frechet_difference(features["samples"], features[label], real.features),
            "kernel": kernels["samples"].minus(kernels[label]),
            "energy": energies["samples"].minus(energies[label]),
        }
    return cell


def is_measured(name: str, sampler: str, K: int, paths: dict[str, Schedule], count: int) -> bool:
    """Return whether the results hold this cell, for the same paths and at least this many samples."""
    cell = results("samples").get(name, {}).get(sampler, {}).get(str(K))
    return (
        cell is not None
        and cell["count"] >= count
        and all(cell[label]["steps"] == str(path.steps) for label, path in paths.items())
    )


def frechet_difference(ours: Features, other: Features, real: Features) -> tuple[float, float]:
    """Difference of Fréchet distances and its standard error, by the jackknife over blocks of samples and of real images."""

    def difference(kept: NDArray[np.intp], kept_real: NDArray[np.intp]) -> float:
        moments = Moments.of(real[kept_real])
        return frechet_distance(ours[kept], moments) - frechet_distance(other[kept], moments)

    everything, variance = [np.arange(len(ours)), np.arange(len(real))], 0.0
    for part in (0, 1):
        without = []
        for block in np.array_split(everything[part], BLOCKS):
            kept = list(everything)
            kept[part] = np.setdiff1d(everything[part], block)
            without.append(difference(*kept))
        variance += (BLOCKS - 1) / BLOCKS * float(np.square(np.array(without) - np.mean(without)).sum())
    return difference(*everything), math.sqrt(variance)


def counted(cells: Sequence[dict[str, Any]], label: str, measure: str) -> str:
    """Counts of cells where our samples are closer than the others, significantly closer, and significantly farther."""
    differences = [cell[f"samples minus {label}"][measure] for cell in cells]
    closer = sum(value < 0.0 for value, _ in differences)
    ahead = sum(value < -2.0 * error for value, error in differences)
    behind = sum(value > 2.0 * error for value, error in differences)
    return f"closer in {closer} of {len(differences)}, significantly in {ahead}; significantly farther in {behind}"


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """Counts over all cells, then a table for each measure."""
    cells = [
        (sampler, name, int(K), cell)
        for name, result in found.items()
        for sampler, by_budget in result.items()
        for K, cell in by_budget.items()
    ]
    if not cells:
        return ["Nothing is measured yet."]
    cells.sort(key=lambda each: each[:3])
    first, all_cells = cells[0][3], len(zoo.names()) * len(SAMPLERS) * len(BUDGETS)
    parts = [
        (f"All {all_cells}" if len(cells) == all_cells else f"{len(cells)} of {all_cells}")
        + f" cells (model, sampler, steps) are measured, with {first['count']:,} samples per path against {first['real']:,} "
        "test images. Schedules for samples against the others; *significantly* means by more than two standard errors of the "
        "paired difference:"
    ]
    for sampler in (None, *SAMPLERS):
        own = [cell for other, _, _, cell in cells if sampler in (None, other)]
        rows = [[WORDS[label], *(counted(own, label, measure) for measure in MEASURES)] for label in SCHEDULES[1:]]
        parts += [
            f"{'both samplers' if sampler is None else WORDS[sampler]}:",
            table(["against", *MEASURES.values()], rows),
        ]
    for measure, words in MEASURES.items():
        scale, rows = SCALE[measure], []
        for sampler, name, K, cell in cells:
            value, error = (scale * number for number in cell["samples minus even"][measure])
            shown = [f"{scale * cell[label][measure]:.2f}" for label in SCHEDULES]
            rows.append([name, WORDS[sampler], K, *shown, f"{value:+.2f} ± {error:.2f}"])
        head = ["model", "sampler", "steps", *(WORDS[label] for label in SCHEDULES), "for samples − even"]
        parts += [f"**{words}**", table(head, rows)]
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--compile", action="store_true", help="use torch.compile, a third faster on a CPU")
    parser.add_argument("--page-only", action="store_true")
    options = parser.parse_args()
    budgets = [int(K) for K in options.budgets.split(",")]
    names = options.models or zoo.names()
    models = {} if options.page_only else {name: zoo.load(name) for name in names}
    statistics = {name: statistics_of(name, denoiser) for name, denoiser in models.items()}
    if options.compile:
        models = {name: denoiser.faster(compile=True) for name, denoiser in models.items()}
    for K in budgets:
        for name, denoiser in models.items():
            for sampler in options.samplers.split(","):
                paths = {label: path for (label, _), path in paths_of(statistics[name], sampler, [K]).items()}
                if is_measured(name, sampler, K, paths, options.samples):
                    continue
                for label, schedule in paths.items():
                    drawn(name, denoiser, schedule, label, options.samples)
    real = Real.load()
    for name in names:
        kept = results("samples").get(name, {})
        for sampler in SAMPLERS:
            for K in BUDGETS:
                if (cell := measured(name, sampler, K, real)) is not None:
                    kept.setdefault(sampler, {})[str(K)] = cell
        if kept:
            save("samples", name, kept)
    write_page("samples", page(results("samples")))


if __name__ == "__main__":
    main()
