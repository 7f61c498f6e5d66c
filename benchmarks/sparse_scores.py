"""Measure scores from few evaluated times beside those of every time: a table of docs/adaptive.md.

    python benchmarks/sparse_scores.py                                  all models of the zoo, 10 seeds each: many hours
    python benchmarks/sparse_scores.py fashion-simple --seeds 5         some of them; goes on where it stopped
    python benchmarks/sparse_scores.py --samples 128 --most 32          more samples, at the times of paths up to 32 steps only
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
from dpstride import Denoiser, ScheduleSet, zoo
from dpstride.adaptive.loop import in_rounds
from dpstride.adaptive.scores import most_indices, refine_scores
from dpstride.evaluate.comparison import STRIDES, compare, shown_paths
from dpstride.options import COMPARED_STRIDES, CostOptions
from dpstride.runs.execution import Execution
from dpstride.statistics.data import Samples
from dpstride.statistics.estimate import estimate_samples
from dpstride.strides import find

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


def measured(denoiser: Denoiser, schedules: ScheduleSet, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Differences of scores by few times from those by every time, and what was stated, in bits/dim."""
    data = zoo.load_data("fashion-test")
    chosen = torch.from_numpy(np.random.default_rng(seed).permutation(len(data))[: options.samples])
    samples, how = Samples.read(data[chosen]), Execution(1000 + seed, progress=False)
    first = schedules.provenance["adaptive"]["steps"]
    sparse = refine_scores(
        *in_rounds(denoiser, samples, how), shown_paths(schedules), CostOptions.from_dict(schedules.options),
        fitted=None, first=first, limit=most_indices(schedules.process.T, len(first)),
    )  # fmt: skip
    few = compare(schedules, sparse)
    budgets = [K for K in few.table_budgets if options.most is None or options.most >= K]
    visited = {index for K in budgets for path in paths_of(schedules, K) for index in path if index}
    every = estimate_samples(
        denoiser, samples, how, sorted(visited | set(np.flatnonzero(sparse.evaluated).tolist())), reuse=sparse
    )
    all_ = compare(schedules, every)
    line: dict[str, Any] = {"times": int(sparse.evaluated.sum()), "chosen": len(first), "T": schedules.process.T}
    for stride in STRIDES:
        for K in budgets:
            difference = few.curves[stride][K][0] - all_.curves[stride][K][0]
            line[f"{stride} {K}"] = (difference, few.interpolation[stride][K], few.curves[stride][K][1])
    return line


def paths_of(schedules: ScheduleSet, budget: int) -> list[tuple[int, ...]]:
    """The DP's path and the hand-made ones."""
    made = [find(stride).make(schedules.process, budget).steps for stride in COMPARED_STRIDES]
    return [schedules.entries[budget][0], *made]


def table(lines: list[dict[str, Any]]) -> str:
    """The rows of docs/adaptive.md."""
    head = "| model | T | seeds × samples | times, choosing + scoring | scores | within interpolation's 95% | "
    rows = [
        f"{head}its part of the standard error, median | largest difference, bits/dim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, samples, most in dict.fromkeys((line["model"], line["samples"], line["most"]) for line in lines):
        these = [line for line in lines if (line["model"], line["samples"], line["most"]) == (name, samples, most)]
        scores = np.array([value for line in these for value in line.values() if isinstance(value, list)])
        inside = np.abs(scores[:, 0]) <= 1.96 * scores[:, 1] + 1e-12
        times = f"{these[0]['chosen']} + {int(np.median([line['times'] for line in these]))}"
        seeds = f"{len(these)} × {samples}" + ("" if most is None else f", up to {most} steps")
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
    parser.add_argument("--most", type=int, help="largest number of steps that is scored; all when left out")
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
        there = [json.loads(line) for line in path.open()] if path.is_file() else []
        what = {"model": name, "samples": options.samples, "most": options.most}
        done = {line["seed"] for line in there if {key: line[key] for key in what} == what}
        for seed in sorted(set(range(options.seeds)) - done):
            line = what | {"seed": seed} | measured(denoiser, schedules, seed, options)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(table([json.loads(json.dumps(line))]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
