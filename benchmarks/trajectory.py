"""Compare schedules for deterministic samplers on the embedded models, for docs/beyond/trajectory.md.

    python benchmarks/trajectory.py                        all models: hours on two cores
    python benchmarks/trajectory.py fashion-simple         one of them
    python benchmarks/trajectory.py fashion-simple --samples 64 --trajectories 32 --teacher-steps 200 --budgets 5,10
    python benchmarks/trajectory.py --page-only            rewrite the page from stored results

Samples start from the same noise for every schedule (seed 1; paths are chosen with seed 0). End points are kept in
runs/beyond, one file per path, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from beyond import RUNS, results, save, table, write_page
from numpy.typing import NDArray

from dpstride import (
    Denoiser,
    Schedule,
    ScheduleSet,
    estimate_adaptively,
    estimate_trajectory,
    even_stride,
    frechet_distance,
    kernel_distance,
    quadratic_stride,
    sample,
    schedules_from,
    trajectory_costs,
    trajectory_schedules,
    zoo,
)
from dpstride.evaluate.endpoints import endpoint_distance
from dpstride.evaluate.features.extractor import to_levels
from dpstride.finding.job import Request
from dpstride.finding.teacher import on_teacher_grid
from dpstride.objectives.schedules import best_schedules
from dpstride.objectives.step_costs import StepCosts
from dpstride.objectives.trajectory import Weight, propagation
from dpstride.runs.storage import read_arrays, write_arrays
from dpstride.statistics.trajectory_artefact import Trajectory
from dpstride.strides import ays_stride, karras_stride, log_snr_stride
from dpstride.zoo.classifier import fashion_features

SAMPLERS = ("ddim", "dpmpp_2m")
WORDS = {"ddim": "DDIM (Euler)", "dpmpp_2m": "DPM-Solver++ 2M"}
MEASURES = {
    "distance": ("root mean square distance from the teacher's end points", 1.0, 3),
    "frechet": ("Fréchet distance, fashion features", 1.0, 2),
    "kid": ("kernel distance · 10³", 1000.0, 2),
}


def greedy(L: NDArray[np.float64], budget: int) -> tuple[int, ...]:
    """Minimise the sum of costs greedily, by inserting one point after another where it lowers the sum most."""
    path = [L.shape[0] - 1, 0]
    while len(path) <= budget:
        best: tuple[float, int, int] | None = None
        for place, (t, s) in enumerate(itertools.pairwise(path)):
            if t - s > 1:
                inner = np.arange(s + 1, t)
                change = L[t, inner] + L[inner, s] - L[t, s]
                at = int(change.argmin())
                if best is None or change[at] < best[0]:
                    best = (float(change[at]), place + 1, int(inner[at]))
        assert best is not None
        path.insert(best[1], best[2])
    return tuple(path)


def norms_of(costs: StepCosts) -> StepCosts:
    """Square roots of the costs, whose sums bound the distance from the teacher."""
    return replace(
        costs, table=np.sqrt(costs.L), triples=None if costs.triples is None else np.sqrt(costs.triples), unit="norms"
    )


def run(
    name: str, samples: int, trajectories: int, teacher_steps: int, budgets: list[int], images: int, compile: bool
) -> None:
    folder = RUNS / "trajectory" / f"{name}-{teacher_steps}-{trajectories}"
    teacher = on_teacher_grid(zoo.load(name).faster(compile=compile), Request(teacher_steps=teacher_steps))
    process = teacher.process
    trajectory = estimate_trajectory(teacher, trajectories, 0, 64, checkpoint=folder / "trajectory.safetensors")
    dp = {sampler: trajectory_schedules(trajectory, sampler, max(budgets)) for sampler in SAMPLERS}
    norms = {
        sampler: best_schedules(norms_of(trajectory_costs(trajectory, sampler)), max(budgets)) for sampler in SAMPLERS
    }
    statistics, _ = estimate_adaptively(
        teacher, zoo.load_data("fashion-train"), images, checkpoint=folder / "statistics.safetensors"
    )
    elbo: ScheduleSet = schedules_from(statistics, max_budget=max(budgets))
    L = trajectory_costs(trajectory).L
    strides: dict[str, Callable[[int], Schedule]] = {
        "even": lambda K: even_stride(process, K),
        "quadratic": lambda K: quadratic_stride(process, K),
        "karras": lambda K: karras_stride(process, K),
        "log-SNR": lambda K: log_snr_stride(process, K),
        "Align Your Steps": lambda K: ays_stride(process, K),
        "ELBO": lambda K: elbo[K],
        "greedy": lambda K: Schedule(trajectory.process, greedy(L, K)),
    }
    extractor, real = fashion_features(), zoo.load_data("fashion-test")
    real_features = extractor(real)

    def measure(ends: NDArray[np.float32], target: NDArray[np.float32]) -> dict[str, Any]:
        import torch

        distance = endpoint_distance(ends, target)
        features = extractor(to_levels(torch.from_numpy(ends)))
        kid = kernel_distance(features, real_features)
        return {
            "distance": [distance.value, distance.standard_error],
            "frechet": float(frechet_distance(features, real_features)),
            "kid": [kid.value, kid.standard_error],
        }

    target = end_points(teacher, even_stride(process, process.T), "ddim", samples, folder)
    cells = {"teacher": measure(target, target)}
    for sampler in SAMPLERS:
        every = {
            **strides,
            "DP of norms": lambda K, sampler=sampler: norms[sampler][K],  # type: ignore[misc]
            "DP": lambda K, sampler=sampler: dp[sampler][K],  # type: ignore[misc]
        }
        for stride, make in every.items():
            for K in budgets:
                ends = end_points(teacher, make(K), sampler, samples, folder)
                cells[f"{sampler} {stride} {K}"] = measure(ends, target)
                print(name, sampler, stride, K, cells[f"{sampler} {stride} {K}"], flush=True)
    costs = {
        K: {"dp": float(sum_of(L, dp["ddim"][K].steps)), "greedy": float(sum_of(L, greedy(L, K)))} for K in budgets
    }
    setting = {"samples": samples, "trajectories": trajectories, "teacher_steps": process.T, "budgets": budgets}
    save("trajectory", name, {"setting": setting, "cells": cells, "costs": costs, "noisiest": noisiest(trajectory)})


def noisiest(trajectory: Trajectory) -> dict[str, float]:
    """The factor by which the square of an error grows from the noisiest measured level: measured, and by the formula."""
    level = int(trajectory.levels.max())
    weights: tuple[Weight, ...] = ("measured", "gaussian")
    found = {weight: propagation(trajectory.process, trajectory, weight)[level] for weight in weights}
    sigma = trajectory.process.g[level] / trajectory.process.f[level]
    return {"sigma": float(sigma), **{weight: float(value) for weight, value in found.items()}}


def sum_of(L: NDArray[np.float64], path: tuple[int, ...]) -> float:
    return float(sum(L[t, s] for t, s in itertools.pairwise(path)))


def end_points(denoiser: Denoiser, schedule: Schedule, sampler: Any, n: int, folder: Path) -> NDArray[np.float32]:
    """Samples of seed 1, read from this path's file if it exists."""
    key = f"{sampler}-{schedule.budget}-{abs(hash(schedule.times)):016x}-{n}"
    path = folder / "ends" / f"{key}.safetensors"
    if path.is_file():
        arrays, _ = read_arrays(path)
        return arrays["ends"]
    own = replace(schedule, options={"sampler": sampler})
    ends: NDArray[np.float32] = sample(denoiser, own, n, seed=1, batch_size=64).numpy()
    write_arrays(path, {"ends": ends}, {"times": str(schedule.times), "sampler": str(sampler)})
    return ends


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """A table of all models for each sampler and measure, then error growth, squares against norms, and greedy costs."""
    models = list(found)
    settings = [result["setting"] for result in found.values()]
    assert all(setting == settings[0] for setting in settings), "models were run with different options; run them again"
    (setting, *_), budgets = settings, settings[0]["budgets"]
    parts = [
        f"Paths are chosen on {setting['trajectories']} trajectories of {setting['teacher_steps']:,} steps and scored on "
        f"{setting['samples']} other noise samples. Cells are at {', '.join(map(str, budgets))} steps."
    ]
    for sampler in SAMPLERS:
        keys = [key.split(" ", 1)[1].rsplit(" ", 1)[0] for key in found[models[0]]["cells"] if key.startswith(sampler)]
        strides = list(dict.fromkeys(keys))
        for measure, (words, scale, digits) in MEASURES.items():
            rows, best = [], dict.fromkeys(strides, 0)
            values = {
                (model, stride, K): scale * first(found[model]["cells"][f"{sampler} {stride} {K}"][measure])
                for model in models
                for stride in strides
                for K in budgets
            }
            for model, K in itertools.product(models, budgets):
                best[min(strides, key=lambda stride: values[model, stride, K])] += 1
            for stride in strides:
                cells = [" / ".join(f"{values[model, stride, K]:.{digits}f}" for K in budgets) for model in models]
                rows.append([stride, *cells, best[stride]])
            if measure != "distance":
                own = [f"{scale * first(found[model]['cells']['teacher'][measure]):.{digits}f}" for model in models]
                rows.append(["teacher", *own, ""])
            parts += [f"**{WORDS[sampler]}: {words}**", table(["schedule", *models, "times best"], rows)]
    grown = [result["noisiest"] for result in found.values()]
    parts.append(
        "The square of an error at the noisiest measured level grows by a factor (measured, and for Gaussian data) of "
        + "; ".join(
            f"{each['measured']:.2g} ({each['gaussian']:.2g}) at σ = {each['sigma']:.3g} for {model}"
            for model, each in zip(models, grown, strict=True)
        )
        + "."
    )
    for sampler in SAMPLERS:
        cells = [
            [first(result["cells"][f"{sampler} {stride} {K}"]["distance"]) for stride in ("DP", "DP of norms")]
            for result in found.values()
            for K in budgets
        ]
        closer = sum(squares < norms for squares, norms in cells)
        parts.append(
            f"{WORDS[sampler]}: the path with the smallest sum of squares ends closer to the teacher than that with the "
            f"smallest sum of norms in {closer} of {len(cells)} cases."
        )
    ratios = [costs["greedy"] / costs["dp"] for result in found.values() for costs in result["costs"].values()]
    parts.append(
        f"The greedy path costs {min(ratios):.3f} to {max(ratios):.3f} times as much as the exact one (DDIM, by the cost that "
        "both minimise)."
    )
    return parts


def first(value: Any) -> float:
    """A measure without its standard error."""
    return float(value[0] if isinstance(value, list) else value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; all embedded ones by default")
    parser.add_argument("--samples", type=int, default=512, help="end points for scoring")
    parser.add_argument("--trajectories", type=int, default=64, help="noise samples for choosing the paths")
    parser.add_argument("--teacher-steps", type=int, default=1000)
    parser.add_argument("--budgets", default="5,8,10,16,32")
    parser.add_argument("--images", type=int, default=64, help="training images for choosing the ELBO's path")
    parser.add_argument("--compile", action="store_true", help="compile the networks")
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for each in arguments.names or zoo.names():
            numbers = [int(K) for K in arguments.budgets.split(",")]
            run(
                each, arguments.samples, arguments.trajectories, arguments.teacher_steps, numbers, arguments.images,
                arguments.compile,
            )  # fmt: skip
    write_page("trajectory", page(results("trajectory")))
    sys.exit(0)
