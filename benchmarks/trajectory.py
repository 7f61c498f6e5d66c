"""Schedules for deterministic samplers, compared on the embedded models, as docs/beyond/trajectory.md shows them.

    python benchmarks/trajectory.py                        all models: hours on two cores
    python benchmarks/trajectory.py fashion-simple         one of them
    python benchmarks/trajectory.py fashion-simple --samples 64 --trajectories 32 --teacher-steps 200 --budgets 5,10
    python benchmarks/trajectory.py --page-only            write the page again from what is there

Every schedule starts from the same noises (seed 1; paths were chosen with seed 0). End points are kept in runs/beyond, one
file per path, so that an interrupted run goes on.
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
from dpstride.cli.objectives import on_teacher_grid
from dpstride.evaluate.endpoints import endpoint_distance
from dpstride.evaluate.features.extractor import to_levels
from dpstride.evaluate.ode_strides import ays_stride, karras_stride, log_snr_stride
from dpstride.statistics.storage import read_arrays, write_arrays
from dpstride.zoo.classifier import fashion_features

SAMPLERS = ("ddim", "dpmpp_2m")
WORDS = {"ddim": "DDIM (Euler)", "dpmpp_2m": "DPM-Solver++ 2M"}


def greedy(L: NDArray[np.float64], budget: int) -> tuple[int, ...]:
    """The same sum of costs, minimised by inserting one point after another where it helps most."""
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


def run(
    name: str, samples: int, trajectories: int, teacher_steps: int, budgets: list[int], images: int, compile: bool
) -> None:
    folder = RUNS / "trajectory" / f"{name}-{teacher_steps}-{trajectories}"
    teacher = on_teacher_grid(zoo.load(name).faster(compile=compile), teacher_steps)
    process = teacher.process
    trajectory = estimate_trajectory(teacher, trajectories, 0, 64, checkpoint=folder / "trajectory.safetensors")
    dp = {sampler: trajectory_schedules(trajectory, sampler, max(budgets)) for sampler in SAMPLERS}
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
        every = {**strides, "DP": lambda K, sampler=sampler: dp[sampler][K]}  # type: ignore[misc]
        for stride, make in every.items():
            for K in budgets:
                ends = end_points(teacher, make(K), sampler, samples, folder)
                cells[f"{sampler} {stride} {K}"] = measure(ends, target)
                print(name, sampler, stride, K, cells[f"{sampler} {stride} {K}"], flush=True)
    costs = {
        K: {"dp": float(sum_of(L, dp["ddim"][K].steps)), "greedy": float(sum_of(L, greedy(L, K)))} for K in budgets
    }
    setting = {"samples": samples, "trajectories": trajectories, "teacher_steps": process.T, "budgets": budgets}
    save("trajectory", name, {"setting": setting, "cells": cells, "costs": costs})


def sum_of(L: NDArray[np.float64], path: tuple[int, ...]) -> float:
    return float(sum(L[t, s] for t, s in itertools.pairwise(path)))


def end_points(denoiser: Denoiser, schedule: Schedule, sampler: Any, n: int, folder: Path) -> NDArray[np.float32]:
    """Samples of seed 1, from the file of this path if it has enough."""
    key = f"{sampler}-{schedule.budget}-{abs(hash(schedule.times)):016x}-{n}"
    path = folder / "ends" / f"{key}.safetensors"
    if path.is_file():
        arrays, _ = read_arrays(path)
        return arrays["ends"]
    own = replace(schedule, options={"sampler": sampler})
    ends: NDArray[np.float32] = sample(denoiser, own, n, seed=1, batch_size=64).numpy()
    write_arrays(path, {"ends": ends}, {"times": str(schedule.times), "sampler": str(sampler)})
    return ends


def section(name: str, result: dict[str, Any]) -> str:
    setting, cells = result["setting"], result["cells"]
    budgets = setting["budgets"]
    full = cells["teacher"]
    parts = [
        f"### {name}",
        f"{setting['trajectories']} trajectories of {setting['teacher_steps']:,} steps chose; {setting['samples']} other "
        f"noises score. The teacher's own samples: Fréchet distance (fashion features) {full['frechet']:.2f}, KID "
        f"{1000 * full['kid'][0]:.2f} · 10⁻³.",
    ]
    for sampler in SAMPLERS:
        rows = []
        for stride in dict.fromkeys(key.split(" ", 1)[1].rsplit(" ", 1)[0] for key in cells if key.startswith(sampler)):
            row = [cells[f"{sampler} {stride} {K}"] for K in budgets]
            rows.append(
                [stride, *(f"{c['distance'][0]:.4f} / {c['frechet']:.2f} / {1000 * c['kid'][0]:.2f}" for c in row)]
            )
        parts.append(f"{WORDS[sampler]}: distance from the teacher / Fréchet distance / KID · 10³\n")
        parts.append(table(["schedule", *budgets], rows))
    ratio = ", ".join(f"{costs['greedy'] / costs['dp']:.3f} at {K}" for K, costs in result["costs"].items())
    parts.append(f"Cost of the greedy path over that of the exact one: {ratio} steps.")
    return "\n\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; every embedded one when none is given")
    parser.add_argument("--samples", type=int, default=512, help="end points that score")
    parser.add_argument("--trajectories", type=int, default=64, help="noises that choose")
    parser.add_argument("--teacher-steps", type=int, default=1000)
    parser.add_argument("--budgets", default="5,8,10,16,32")
    parser.add_argument("--images", type=int, default=64, help="training images that choose the ELBO's path")
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
    write_page("trajectory", [section(name, result) for name, result in results("trajectory").items()])
    sys.exit(0)
