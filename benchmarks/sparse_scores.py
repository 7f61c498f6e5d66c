"""Measure scores from few evaluated times beside those of every time: a table of docs/adaptive.md.

    python benchmarks/sparse_scores.py                                  all models of the zoo, 10 seeds each: hours
    python benchmarks/sparse_scores.py fashion-simple --seeds 5         some of them; resumes where it stopped
    python benchmarks/sparse_scores.py --samples 128 --most 32          more samples, paths of up to 32 steps only
    python benchmarks/sparse_scores.py --page                           write the table from what was measured

Paths are chosen once for each model, as `find` does. Every seed then has held-out images and noise of its own: they are
evaluated at every time that a path visits, the scores are computed from that, and again from the few times that `find` would
have evaluated, with the error that interpolation is said to add. Short paths come first, for all seeds, because they visit few
times; passes are kept, and longer paths add to them. Differences are kept in runs/sparse/*.jsonl, one line for each model,
seed and largest number of steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections import defaultdict
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dpstride
from dpstride import Denoiser, ScheduleSet, zoo
from dpstride.adaptive.loop import in_rounds
from dpstride.adaptive.scores import most_indices, refine_scores
from dpstride.evaluate.comparison import STRIDES, compare, shown_paths, usual_budgets
from dpstride.options import BEST, COMPARED_STRIDES, CostOptions
from dpstride.runs.execution import Execution
from dpstride.statistics.data import Samples
from dpstride.statistics.estimate import estimate_samples
from dpstride.strides import find

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "sparse"
PAGE = ROOT / "docs" / "adaptive.md"
CHOOSING = 64
MOST = (64, 256, 1000, 4000)  # steps of the longest path that is scored, one after the other


def schedules_of(name: str, denoiser: Denoiser, folder: Path) -> ScheduleSet:
    """The best schedules of the table's budgets, chosen adaptively, of this run or an earlier one."""
    path = folder / f"{name}.schedules.json"
    if not path.is_file():
        data, T = zoo.load_data("fashion-train"), denoiser.process.T
        choosing = folder / f"{name}.choosing.safetensors"
        every = dpstride.optimise(
            denoiser, data, CHOOSING, tolerance=0.01, check=False, progress=False, checkpoint=choosing
        )
        ScheduleSet.of([every[K] for K in (*usual_budgets(T), T)]).save(path)
    return ScheduleSet.load(path)


def measured(name: str, denoiser: Denoiser, seed: int, most: int, options: argparse.Namespace) -> dict[str, Any]:
    """Differences of scores by few times from those by every time, and what was stated, in bits/dim."""
    schedules = schedules_of(name, denoiser, options.runs)
    data = zoo.load_data("fashion-test")
    chosen = torch.from_numpy(np.random.default_rng(seed).permutation(len(data))[: options.samples])
    passes = options.runs / f"{name}.{options.samples}.{seed}.safetensors"
    samples, how = Samples.read(data[chosen]), Execution(1000 + seed, progress=False, checkpoint=passes)
    T, first = schedules.process.T, schedules.provenance["adaptive"]["steps"]
    budgets = [K for K in schedules.budgets if most >= K]
    visited = {index for K in budgets for path in paths_of(schedules, K) for index in path if index} | {1, T}
    every = estimate_samples(denoiser, samples, how, sorted(visited))
    evaluate, finish = in_rounds(denoiser, samples, how)
    sparse = refine_scores(
        evaluate, finish, shown_paths(schedules), CostOptions.from_dict(schedules.options),
        fitted=None, first=first, limit=most_indices(T, len(first)),
    )  # fmt: skip
    few, all_ = compare(schedules, sparse), compare(schedules, every)
    line: dict[str, Any] = {"times": int(sparse.evaluated.sum()), "chosen": len(first), "T": T}
    for stride in STRIDES:
        for K in budgets if stride == BEST else [K for K in budgets if K < T]:  # all steps are one path
            difference = few.curves[stride][K][0] - all_.curves[stride][K][0]
            line[f"{stride} {K}"] = (difference, few.interpolation[stride][K], few.curves[stride][K][1])
    return line


def paths_of(schedules: ScheduleSet, budget: int) -> list[tuple[int, ...]]:
    """The DP's path and the hand-made ones."""
    made = [find(stride).make(schedules.process, budget).steps for stride in COMPARED_STRIDES]
    return [schedules.entries[budget][0], *made]


def table(lines: list[dict[str, Any]]) -> str:
    """The rows of docs/adaptive.md: of each model and number of samples, and all together."""
    head = "| model | T | seeds × samples | steps of the paths | steps evaluated, choosing + scoring | scores | within the 95% "
    rows = [
        f"{head}interval | interpolation / standard error, median | largest difference, bits/dim |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    longest = {(line["model"], line["samples"], line["seed"]): line for line in sorted(lines, key=itemgetter("most"))}
    kinds: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for line in longest.values():
        kinds[line["model"], line["samples"], most_of(line)].append(line)
    for (name, samples, most), these in sorted(kinds.items()):
        times = f"{these[0]['chosen']} + {int(np.median([line['times'] for line in these]))}"
        steps = f"8 to {most}" + (", all" if most == these[0]["T"] else "")
        cells = [name, f"{these[0]['T']:,}", f"{len(these)} × {samples}", steps, times, *counted(these)]
        rows.append("| " + " | ".join(cells) + " |")
    if len(kinds) > 1:
        rows.append("| all | | | | | " + " | ".join(counted(list(longest.values()))) + " |")
    return "\n".join(rows)


def most_of(line: dict[str, Any]) -> int:
    """The largest number of steps of a line's scores."""
    return max(int(key.split()[1]) for key, value in line.items() if isinstance(value, list))


def counted(lines: list[dict[str, Any]]) -> list[str]:
    """How many scores, the share of them within their interval, their usual share of the error, the largest difference."""
    scores = np.array([value for line in lines for value in line.values() if isinstance(value, list)])
    inside = np.abs(scores[:, 0]) <= 1.96 * scores[:, 1] + 1e-12
    share = np.median(scores[:, 1] / scores[:, 2])
    return [str(len(scores)), f"{inside.mean():.1%}", f"{share:.2f}", f"{np.abs(scores[:, 0]).max():.4f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="zoo names; all when none is given")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=8, help="held-out images of each seed")
    parser.add_argument("--most", type=int, nargs="+", default=list(MOST), help="steps of the longest path")
    parser.add_argument("--page", action="store_true", help="write the table of docs/adaptive.md and stop")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    if options.page:
        lines = [json.loads(line) for path in sorted(options.runs.glob("*.jsonl")) for line in path.open()]
        pattern = re.compile(r"(?<=<!-- sparse -->\n).*?(?=\n<!-- /sparse -->)", re.DOTALL)
        PAGE.write_text(pattern.sub(lambda _: table(lines), PAGE.read_text()))
        return
    models = {name: zoo.load(name) for name in options.models or zoo.names()}
    for most, seed, name in itertools.product(options.most, range(options.seeds), models):
        path, denoiser = options.runs / f"{name}.jsonl", models[name]
        what = {"model": name, "samples": options.samples, "seed": seed}
        lines = [json.loads(line) for line in path.open()] if path.is_file() else []
        budgets = [K for K in (*usual_budgets(denoiser.process.T), denoiser.process.T) if most >= K]
        if any({key: line[key] for key in what} == what and most_of(line) >= budgets[-1] for line in lines):
            continue
        line = json.dumps(what | {"most": most} | measured(name, denoiser, seed, most, options))
        with path.open("a") as file:
            file.write(line + "\n")
        print(table([json.loads(line)]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
