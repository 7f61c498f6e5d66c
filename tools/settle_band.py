"""Compare settings of the objective for samples on training images and seeds that score nothing else.

    python tools/settle_band.py fashion-simple ddim 8

prints the Fréchet distance on fashion features of 256 samples (seed 7) from 2,048 training images, for even steps and for each
setting. `objectives/band.py` has the setting that was kept; `benchmarks/samples.py` measures it on test
images and other noises.
"""

from __future__ import annotations

import sys

import torch

from dpstride import Band, Schedule, estimate_adaptively, even_stride, frechet_distance, schedules_from, zoo
from dpstride.evaluate.features.extractor import to_levels
from dpstride.objectives.band import DEFAULT, SamplesPlan
from dpstride.racing.sampling import BuiltIn
from dpstride.zoo.classifier import fashion_features

SETTINGS = (
    Band(1.0, 0.4, 12.0),
    Band(),
    Band(1.0, 0.2, 20.0),
    Band(1.5, 0.2, 20.0),
    Band(1.6, 0.1, 20.0),
    Band(evenness=0.3),
    Band(evenness=0.5),
    Band(cap=1.0),
    Band(cap=1.0, evenness=0.5),
    Band(cap=1.5, evenness=0.3),
    Band(cap=1.5, evenness=0.5),
)
COUNT, SEED, BATCH = 256, 7, 128


def main(name: str, sampler: str, budget: int) -> None:
    """Print a line for each schedule."""
    denoiser, data, extractor = zoo.load(name), zoo.load_data("fashion-train"), fashion_features()
    real = extractor(data[:2048])
    statistics, _ = estimate_adaptively(
        denoiser, data, 128, budgets=(8, 16, 32), tolerance=0.01, band=DEFAULT, progress=False
    )

    def distance(schedule: Schedule) -> float:
        chain = BuiltIn(schedule.sampler).walk(denoiser, schedule, SEED)  # all noise in common
        images = []
        for first in range(0, COUNT, BATCH):
            x = chain.start(first, BATCH)
            for step in range(chain.budget):
                x = chain.advance(x, step, first)
            images.append(to_levels(x))
        return frechet_distance(extractor(torch.cat(images)), real)

    for band in SETTINGS:
        schedules = schedules_from(statistics, max_budget=budget, plan=SamplesPlan(band, sampler))  # type: ignore[arg-type]
        if band is SETTINGS[0]:
            print(f"even: {distance(schedules.adopt(even_stride(denoiser.process, budget))):.3f}")
        print(f"{band.words}: {distance(schedules[budget]):.3f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python tools/settle_band.py MODEL SAMPLER BUDGET")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
