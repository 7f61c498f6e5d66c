"""Measure scores from few evaluated times beside those of every time: a table of docs/adaptive.md.

    python benchmarks/sparse_scores.py                                  all models of the zoo, 10 seeds each: many hours
    python benchmarks/sparse_scores.py fashion-simple --seeds 5         some of them; goes on where it stopped
    python benchmarks/sparse_scores.py --page                           write the table from what was measured

Paths are chosen once for each model, as `find` does. Every seed then has held-out images and noise of its own: they are
evaluated at every time, the scores are computed from that, and again from the few times that `find` would have evaluated, with
the error that interpolation is said to add. Differences are kept in runs/sparse/*.jsonl, one line for each model and seed.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dpstride
from dpstride import Denoiser, ScheduleSet, Statistics, zoo
from dpstride.adaptive.scores import most_indices, refine_scores
from dpstride.evaluate.comparison import STRIDES, compare, shown_paths
from dpstride.options import CostOptions

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "sparse"
PAGE = ROOT / "docs" / "adaptive.md"
CHOOSING = 64


def schedules_of(name: str, denoiser: Denoiser, folder: Path) -> ScheduleSet:
    """The best schedules, chosen adaptively, of this run or an earlier one."""
    path = folder / f"{name}.schedules.json"
    if not path.is_file():
        data = zoo.load_data("fashion-train")
        dpstride.optimise(denoiser, data, CHOOSING, tolerance=0.01, progress=False).save(path)
    return ScheduleSet.load(path)


def measured(denoiser: Denoiser, schedules: ScheduleSet, seed: int, samples: int, folder: Path) -> dict[str, Any]:
    """Differences of scores by few times from those by every time, and what was stated, in bits/dim."""
    data = zoo.load_data("fashion-test")
    chosen = torch.from_numpy(np.random.default_rng(seed).permutation(len(data))[:samples])
    checkpoint = folder / f"{denoiser.name}-{seed}.safetensors"
    every = dpstride.estimate(denoiser, data[chosen], seed=1000 + seed, progress=False, checkpoint=checkpoint)
    first = schedules.provenance["adaptive"]["steps"]
    limit = most_indices(schedules.process.T, len(first))
    sparse = scored_at_few(every, schedules, first, limit)
    few, all_ = compare(schedules, sparse), compare(schedules, every)
    line: dict[str, Any] = {"times": int(sparse.evaluated.sum()), "chosen": len(first), "T": schedules.process.T}
    for stride in STRIDES:
        for K in few.table_budgets:
            difference = few.curves[stride][K][0] - all_.curves[stride][K][0]
            line[f"{stride} {K}"] = (difference, few.interpolation[stride][K], all_.curves[stride][K][1])
    checkpoint.unlink()
    return line


def scored_at_few(every: Statistics, schedules: ScheduleSet, first: list[int], limit: int) -> Statistics:
    """Statistics as `find` would have them, from rows of those of every time."""
    return refine_scores(
        lambda steps: every, lambda steps: every, shown_paths(schedules), CostOptions.from_dict(schedules.options),
        fitted=None, first=first, limit=limit,
    )  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """The rows of docs/adaptive.md."""
    head = "| model | T | seeds × samples | times, choosing + scoring | scores | within interpolation's 95% | "
    rows = [
        f"{head}its part of the standard error, median | largest difference, bits/dim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(line["model"] for line in lines):
        these = [line for line in lines if line["model"] == name]
        scores = np.array([value for line in these for value in line.values() if isinstance(value, list)])
        inside = np.abs(scores[:, 0]) <= 1.96 * scores[:, 1] + 1e-12
        times = f"{these[0]['chosen']} + {int(np.median([line['times'] for line in these]))}"
        seeds = f"{len(these)} × {these[0]['samples']}"
        share = f"{np.median(scores[:, 1] / scores[:, 2]):.2f}"
        largest = f"{np.abs(scores[:, 0]).max():.4f}"
        cells = [name, f"{these[0]['T']:,}", seeds, times, str(len(scores)), f"{inside.mean():.1%}", share, largest]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="zoo names; all when none is given")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=16, help="held-out images of each seed")
    parser.add_argument("--page", action="store_true", help="write the table of docs/adaptive.md and stop")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    if options.page:
        lines = [json.loads(line) for path in sorted(options.runs.glob("*.jsonl")) for line in path.open()]
        pattern = re.compile(r"(?<=<!-- sparse -->\n).*?(?=\n<!-- /sparse -->)", re.DOTALL)
        PAGE.write_text(pattern.sub(lambda _: table(lines), PAGE.read_text()))
        return
    for name in options.models or zoo.names():
        denoiser, path = zoo.load(name), options.runs / f"{name}.jsonl"
        schedules = schedules_of(name, denoiser, options.runs)
        done = {json.loads(line)["seed"] for line in path.open()} if path.is_file() else set()
        for seed in sorted(set(range(options.seeds)) - done):
            found = measured(denoiser, schedules, seed, options.samples, options.runs)
            line = {"model": name, "seed": seed, "samples": options.samples} | found
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(table([json.loads(json.dumps(line))]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
