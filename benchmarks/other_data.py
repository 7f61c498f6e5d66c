"""Compare schedules for samples with even steps and the ELBO's paths on points, small images, signals and tables.

    python benchmarks/other_data.py        writes its part of docs/beyond/samples.md, some minutes on one core

The denoisers are ideal ones in closed form, of mixtures of Gaussians, so that only the path is to blame. Paths are chosen on
256 samples of the data with seed 0; 2,000 samples start from noises of seed 1, the same for every path, and are compared by
energy distance with 2,000 others of the data (seed 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from beyond import table, write_page
from known_laws import SQUARED
from samples import BUDGETS, SAMPLERS, SCHEDULES, WORDS, counted, paths_of
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, Statistics, energy_distance, estimate, sample, schedules_from
from dpstride.objectives.band import SamplesPlan
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

CHOOSING, COUNT = 256, 2000
CHOOSING_SEED, SEED, REAL_SEED = 0, 1, 2
T = 1000
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """A mixture of Gaussians of any covariance, equally likely: means [J, dims] and covariances [J, dims, dims]."""

    means: Array
    covariances: Array

    def draw(self, count: int, seed: int) -> Array:
        """Samples [count, dims]."""
        rng = np.random.default_rng(seed)
        mode = rng.integers(len(self.means), size=count)
        roots = np.linalg.cholesky(self.covariances)
        return self.means[mode] + np.einsum(
            "nij,nj->ni", roots[mode], rng.standard_normal((count, self.means.shape[1]))
        )

    def denoiser(self) -> Denoiser:
        """The ideal denoiser on the linear process: E[x_0 given x_t], in the principal axes of each mode."""
        process = ForwardProcess.linear(T)
        f, g = torch.tensor(process.f), torch.tensor(process.g)
        means = torch.tensor(self.means)[:, None]  # [J, 1, dims]
        variances, axes = (torch.tensor(part) for part in np.linalg.eigh(self.covariances))
        variances = variances[:, None].clamp(min=0.0)

        def network(x: Tensor, time: Tensor) -> Tensor:
            f_t, g_t = f[time[0] + 1], g[time[0] + 1]
            along = (x.double() - f_t * means) @ axes  # [J, B, dims]
            spread = f_t**2 * variances + g_t**2
            log_weight = -0.5 * (along**2 / spread + spread.log()).sum(2)
            centred = (f_t * variances / spread * along) @ axes.transpose(1, 2)
            return (torch.softmax(log_weight, dim=0)[:, :, None] * (means + centred)).sum(0).to(x.dtype)

        return Denoiser(network, process, predicts="x0", clip=None, shape=(self.means.shape[1],))


def points() -> GaussianMixture:
    """Eight narrow modes on a circle, in two dimensions."""
    angle = 2.0 * np.pi * np.arange(8) / 8
    return GaussianMixture(np.stack([np.cos(angle), np.sin(angle)], axis=1), np.tile(0.05**2 * np.eye(2), (8, 1, 1)))


def signals(length: int = 64) -> GaussianMixture:
    """A tone of one of eight frequencies, of random phase and amplitude, in noise that is correlated over some four samples."""
    time = np.arange(length)
    noise = 0.1**2 * 0.8 ** np.abs(time[:, None] - time)
    tones = []
    for periods in range(1, 9):
        angle = 2.0 * np.pi * periods * time / length
        waves = np.stack([np.cos(angle), np.sin(angle)])
        tones.append(0.5**2 * waves.T @ waves + noise)
    return GaussianMixture(np.zeros((8, length)), np.stack(tones))


def columns(count: int = 10, groups: int = 3) -> GaussianMixture:
    """Rows of three groups: means of N(0, 1), and columns that two factors of the group correlate (generator of seed 3)."""
    rng = np.random.default_rng(3)
    loadings = 0.4 * rng.standard_normal((groups, count, 2))
    means = rng.standard_normal((groups, count))
    return GaussianMixture(means, loadings @ loadings.transpose(0, 2, 1) + 0.1**2 * np.eye(count))


@dataclass(frozen=True)
class Subject:
    """A denoiser, its data by count and seed, and what values they take."""

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
    """Energy distance of real data from real data, and a cell for every sampler and budget."""
    statistics, real, cells = subject.statistics(), subject.real(REAL_SEED), []
    for sampler in SAMPLERS:
        paths = paths_of(statistics, sampler, BUDGETS)
        squared = schedules_from(statistics, plan=SamplesPlan(SQUARED, sampler), max_budget=max(BUDGETS))  # type: ignore[arg-type]
        for K in BUDGETS:
            schedules = {label: paths[label, K] for label in SCHEDULES} | {"squared": squared[K]}
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
            values = [f"{1000.0 * cell[label]:.2f}" for label in (*SCHEDULES, "squared")]
            rows.append([name, WORDS[sampler], K, *values, *differences])
            counts[sampler].append(cell)
        print(name, flush=True)
    against = [
        [WORDS[sampler], *(counted(cells, label, "energy") for label in SCHEDULES[1:])]
        for sampler, cells in counts.items()
    ]
    squared = f"p = {SQUARED.exponent:g}, {SQUARED.low:g}–{SQUARED.high:g}"
    head = ["data, dimensions", "sampler", "steps", *(WORDS[label] for label in SCHEDULES), squared]
    parts = [
        "Schedules for samples against the others; *surely* is beyond two standard errors of the paired difference:",
        table(["sampler", *(f"against {WORDS[label]}" for label in SCHEDULES[1:])], against),
        f"**Energy distance · 10³**; {COUNT:,} real samples have " + ", ".join(floors) + ":",
        table([*head, *(f"for samples less {WORDS[label]}" for label in SCHEDULES[1:])], rows),
    ]
    write_page("samples", parts, section="other-data")


if __name__ == "__main__":
    main()
