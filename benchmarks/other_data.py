"""Compare schedules for samples with even steps and the ELBO's paths on points, small images, signals and tables.

    python benchmarks/other_data.py        writes its part of docs/beyond/samples.md, a few minutes on one core

The denoisers are the ideal ones of mixtures of Gaussians, in closed form, so differences come from the path alone. Paths are
chosen on 256 samples of the data with seed 0; 2,000 samples start from noise of seed 1, the same for every path, and are
compared by energy distance with 2,000 new samples of the data (seed 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from beyond import table, write_page
from known_laws import PLAIN, SQUARED, words_of
from mixtures import Array, GaussianMixture, T, columns, points, signals
from samples import BUDGETS, SAMPLERS, SCHEDULES, WORDS, counted, paths_of

from dpstride import Denoiser, Statistics, energy_distance, estimate, sample, schedules_from
from dpstride.objectives.band import SamplesPlan
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

CHOOSING, COUNT = 256, 2000
CHOOSING_SEED, SEED, REAL_SEED = 0, 1, 2
OTHERS = (PLAIN, SQUARED)  # bands to compare with the default


@dataclass(frozen=True)
class Subject:
    """A denoiser, a function that draws data by count and seed, and the range of the data."""

    denoiser: Denoiser
    draw: Callable[[int, int], Any]
    data_range: str = "continuous"

    @classmethod
    def of(cls, mixture: GaussianMixture) -> Subject:
        return cls(mixture.denoiser(), mixture.draw)

    def statistics(self) -> Statistics:
        data = self.draw(CHOOSING, CHOOSING_SEED)
        return estimate(
            self.denoiser, data, seed=CHOOSING_SEED, batch_size=CHOOSING, data_range=self.data_range,
            progress=False, check=False,
        )  # fmt: skip

    def real(self, seed: int) -> Array:
        data = np.asarray(self.draw(COUNT, seed), dtype=np.float64)
        return data if self.data_range == "continuous" else data / 127.5 - 1.0


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "points, 2": lambda: Subject.of(points()),
    "images, 4 × 4": lambda: Subject(mixture_denoiser(T), mixture_data, "uint8"),
    "signals, 64": lambda: Subject.of(signals()),
    "rows, 10": lambda: Subject.of(columns()),
}


def measured(subject: Subject) -> tuple[float, list[tuple[str, int, dict[str, Any]]]]:
    """Energy distance between two sets of real data, and a cell for every sampler and budget."""
    statistics, real, cells = subject.statistics(), subject.real(REAL_SEED), []
    for sampler in SAMPLERS:
        paths = paths_of(statistics, sampler, BUDGETS)
        others = {
            words_of(band): schedules_from(statistics, plan=SamplesPlan(band, sampler), max_budget=max(BUDGETS))  # type: ignore[arg-type]
            for band in OTHERS
        }
        for K in BUDGETS:
            schedules = {label: paths[label, K] for label in SCHEDULES}
            schedules |= {words: found[K] for words, found in others.items()}
            found = {
                label: energy_distance(sample(subject.denoiser, schedule, COUNT, SEED, batch_size=COUNT), real)
                for label, schedule in schedules.items()
            }
            cell: dict[str, Any] = {label: each.value for label, each in found.items()}
            for label in SCHEDULES[1:]:
                cell[f"samples minus {label}"] = {"energy": found["samples"].minus(found[label])}
            cells.append((sampler, K, cell))
    return energy_distance(subject.real(REAL_SEED + 1), real).value, cells


def main() -> None:
    rows, floors, counts = [], [], {sampler: [] for sampler in SAMPLERS}  # type: ignore[var-annotated]
    for name, make in SUBJECTS.items():
        floor, cells = measured(make())
        floors.append(f"{1000.0 * floor:.2f} ({name})")
        for sampler, K, cell in cells:
            differences = [
                "{:+.2f} ± {:.2f}".format(*(1000.0 * number for number in cell[f"samples minus {label}"]["energy"]))
                for label in SCHEDULES[1:]
            ]
            values = [f"{1000.0 * cell[label]:.2f}" for label in (*SCHEDULES, *map(words_of, OTHERS))]
            rows.append([name, WORDS[sampler], K, *values, *differences])
            counts[sampler].append(cell)
        print(name, flush=True)
    against = [
        [WORDS[sampler], *(counted(cells, label, "energy") for label in SCHEDULES[1:])]
        for sampler, cells in counts.items()
    ]
    head = ["data, dimensions", "sampler", "steps", *(WORDS[label] for label in SCHEDULES), *map(words_of, OTHERS)]
    parts = [
        "Schedules for samples against the others; *significantly* means by more than two standard errors of the paired "
        "difference:",
        table(["sampler", *(f"against {WORDS[label]}" for label in SCHEDULES[1:])], against),
        f"**Energy distance · 10³**; between two sets of {COUNT:,} real samples it is " + ", ".join(floors) + ":",
        table([*head, *(f"for samples − {WORDS[label]}" for label in SCHEDULES[1:])], rows),
    ]
    write_page("samples", parts, section="other-data")


if __name__ == "__main__":
    main()
