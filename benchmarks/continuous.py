"""Measure the gain from times between grid points, for docs/beyond/continuous.md.

    python benchmarks/continuous.py                       both continuous-time models
    python benchmarks/continuous.py fashion-flow --grids 50,200 --budgets 8,16
    python benchmarks/continuous.py --page-only           rewrite the page from stored results

For grids of several sizes, compares held-out bits/dim of the grid's best path and of the refined one, both by direct evaluation
with K network passes on the same test images (seed 1). Paths are chosen from adaptive statistics of training images (seed 0).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from beyond import RUNS, results, save, table, write_page

from dpstride import Schedule, bits_per_dim, estimate_adaptively, zoo
from dpstride.objectives.continuous import continuous_costs, refine_path
from dpstride.solver import solve

MODELS = ("fashion-continuous", "fashion-flow")


def run(name: str, grids: list[int], budgets: list[int], samples: int, heldout: int) -> None:
    denoiser = zoo.load(name)
    source = denoiser.process
    assert source.f_function is not None
    assert source.g_function is not None
    train, test = zoo.load_data("fashion-train"), zoo.load_data("fashion-test")[:heldout]
    cells: dict[str, Any] = {}
    for T in grids:
        process = type(source).from_functions(
            source.f_function, source.g_function, np.linspace(0.0, float(source.times[-1]), T + 1), source.name
        )
        model = denoiser.on_grid(process)
        checkpoint = RUNS / "continuous" / f"{name}-{T}-{samples}.safetensors"
        statistics, _ = estimate_adaptively(model, train, samples, checkpoint=checkpoint, variance="posterior")
        costs = continuous_costs(statistics, "posterior")
        solution = solve(costs.grid, max(budgets))
        for K in budgets:
            path = solution.path(K)
            refined = refine_path(costs, path)
            scores = [
                bits_per_dim(denoiser.on_grid(s.process), test, s, seed=1, variance="posterior", decoder="upper")
                for s in (Schedule(costs.process(process.times[path[::-1]]), tuple(range(K, -1, -1))), refined.schedule)
            ]
            believed = (refined.grid_cost_nats - refined.cost_nats) / (costs.grid.dims * np.log(2.0))
            cells[f"{T} {K}"] = {
                "grid": [scores[0].bpd, scores[0].standard_error],
                "refined": [scores[1].bpd, scores[1].standard_error],
                "believed_gain": float(believed),
            }
            print(name, T, K, cells[f"{T} {K}"], flush=True)
    setting = {"grids": grids, "budgets": budgets, "samples": samples, "heldout": heldout}
    save("continuous", name, {"setting": setting, "cells": cells})


def section(name: str, result: dict[str, Any]) -> str:
    setting, cells = result["setting"], result["cells"]
    rows = []
    for T in setting["grids"]:
        for K in setting["budgets"]:
            cell = cells[f"{T} {K}"]
            (grid, _), (refined, error) = cell["grid"], cell["refined"]
            rows.append(
                [
                    T,
                    K,
                    f"{grid:.4f}",
                    f"{refined:.4f}",
                    f"{grid - refined:+.4f}",
                    f"{cell['believed_gain']:+.4f}",
                    f"{error:.3f}",
                ]
            )
    head = ["grid", "steps", "grid's path", "refined", "gain", "gain on the choosing data", "standard error"]
    return "\n\n".join(
        [
            f"### {name}",
            f"Held-out bits/dim with `posterior` variance; paths are chosen on {setting['samples']} training images and scored "
            f"on {setting['heldout']} test images. Each time has its own noise, so gains are noisy too.",
            table(head, rows),
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"models; {' and '.join(MODELS)} by default")
    parser.add_argument("--grids", default="50,100,1000")
    parser.add_argument("--budgets", default="8,16,32")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--heldout", type=int, default=512)
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for each in arguments.names or MODELS:
            lists = [[int(n) for n in text.split(",")] for text in (arguments.grids, arguments.budgets)]
            run(each, lists[0], lists[1], arguments.samples, arguments.heldout)
    write_page("continuous", [section(name, result) for name, result in results("continuous").items()])
    sys.exit(0)
