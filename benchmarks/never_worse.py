"""Measure whether DP strides are ever worse than hand-made ones on held-out images: a table of docs/adaptive.md.

    python benchmarks/never_worse.py                                     all models of the zoo, K = 8 to 512: hours
    python benchmarks/never_worse.py fashion-vlb --budgets 256 512       some of it; resumes where it stopped
    python benchmarks/never_worse.py --page                              write the table from what was measured

Paths are chosen as `find` chooses them, from 128 samples at few times; and once more from the same statistics without
smoothing, as version 0.1 did. Every path is then scored on held-out images that are evaluated at each time that it visits, so
nothing is filled in, and compared with the best hand-made stride there of those that start at T, as it does. A held-out image
has one noise for all times here (the choosing ones have one for each, as ever): its errors are then alike at neighbouring
times, and the difference of two paths is known far better from as many images. All is kept in runs/never_worse.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch

import dpstride
from dpstride import Denoiser, Statistics, elbo_costs, solve, zoo
from dpstride.objectives.engine import ElboEngine
from dpstride.objectives.step_costs import standard_error
from dpstride.options import CostOptions
from dpstride.runs.execution import Execution
from dpstride.statistics import passes
from dpstride.statistics.data import Samples
from dpstride.statistics.estimate import estimate_samples
from dpstride.statistics.noise import standard_normal
from dpstride.strides import RULES

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "never_worse"
PAGE = ROOT / "docs" / "adaptive.md"
BUDGETS = (8, 16, 32, 64, 128, 256, 512)
CHOOSING, TOGETHER = 128, 16  # samples that choose, and held-out ones in a part
RIVALS = 0.003  # bits/dim above the best hand-made stride, by the choosing data, up to which others are scored
LN2 = float(np.log(2.0))

Path_ = tuple[int, ...]


def choosing_of(name: str, denoiser: Denoiser, folder: Path) -> Statistics:
    """Statistics that choose, as `find` has them."""
    path = folder / f"{name}.choosing.safetensors"
    if not path.is_file():
        data = zoo.load_data("fashion-train")
        chosen = torch.from_numpy(np.random.default_rng(0).permutation(len(data))[:CHOOSING])
        dpstride.estimate_adaptively(denoiser, data[chosen], check=False, progress=False)[0].save(path)
    return Statistics.load(path)


def paths_of(name: str, statistics: Statistics, folder: Path) -> dict[str, dict[str, Path_]]:
    """By budget the paths to score: the DP's, that of version 0.1 ("noisy"), and hand-made ones that come near."""
    kept = folder / f"{name}.paths.json"
    if not kept.is_file():
        schedules = dpstride.schedules_from(statistics, max_budget=max(BUDGETS))
        costs = elbo_costs(statistics)
        noisy, engine = solve(costs, max(BUDGETS)), ElboEngine(statistics, CostOptions.from_dict(costs.options))
        paths: dict[str, dict[str, list[int]]] = {}
        for K in BUDGETS:
            best = list(map(int, schedules[K].steps))
            made = {stride: list(map(int, rule.make(statistics.process, K).steps)) for stride, rule in RULES.items()}
            made = {stride: path for stride, path in made.items() if path[0] == best[0]}
            cost = {stride: engine.path_nats(path) for stride, path in made.items()}
            most = min(cost.values()) + RIVALS * statistics.dims * LN2
            near = {stride: path for stride, path in made.items() if cost[stride] <= most}
            paths[str(K)] = {"dp": best, "noisy": list(map(int, noisy.path(K)))} | near
        kept.write_text(json.dumps(paths))
    return {K: {which: tuple(path) for which, path in of.items()} for K, of in json.loads(kept.read_text()).items()}


def heldout_of(name: str, denoiser: Denoiser, part: int, times: Iterable[int], folder: Path) -> Statistics:
    """Held-out statistics of a part of the images at these times, and at those known before."""
    data = zoo.load_data("fashion-test")
    order = np.random.default_rng(1).permutation(len(data))[TOGETHER * part : TOGETHER * (part + 1)]
    path = folder / f"{name}.heldout-{part}.safetensors"
    known = Statistics.load(path) if path.is_file() else None
    wanted = set(times) | {1, denoiser.process.T}
    if known is None or not known.evaluated[sorted(wanted)].all():
        before = set() if known is None else set(np.flatnonzero(known.evaluated).tolist())
        how = Execution(1000 + part, progress=False, checkpoint=path.with_suffix(".progress"))
        images = Samples.read(data[torch.from_numpy(order)])
        with mock.patch.object(passes, "standard_normal", noise_of_image):
            known = estimate_samples(denoiser, images, how, sorted(wanted | before), reuse=known, whole=False)
        known.save(path)
    return known


def noise_of_image(seed: int, purpose: Any, step: int, first: int, **samples: Any) -> torch.Tensor:
    """The noise of `standard_normal` at step 0, whatever the step."""
    return standard_normal(seed, purpose, 0, first, **samples)


def differences(parts: list[Statistics], paths: dict[str, Path_]) -> dict[str, Any]:
    """Bits/dim of each path with those of the best hand-made stride taken off, and its standard error over images."""
    names, means, units = list(paths), [], []
    for heldout in parts:
        engine = ElboEngine(heldout, CostOptions(heldout.model["variance"]))
        means.append([engine.path_nats(paths[which]) for which in names])
        units.append(engine.unit_totals([paths[which] for which in names])[0])
    scale = parts[0].dims * LN2
    mean, each = np.mean(means, axis=0) / scale, np.concatenate(units, axis=1) / scale
    rival = 2 + int(mean[2:].argmin())
    found: dict[str, Any] = {"stride": names[rival], "images": each.shape[1], "bpd": float(mean[0])}
    for row, which in enumerate(names[:2]):
        found[which] = float(mean[row] - mean[rival]), error_of(each[row] - each[rival])
    return found | {"gain": (float(mean[0] - mean[1]), error_of(each[0] - each[1]))}


def error_of(values: npt.NDArray[np.float64]) -> float:
    """Standard error of the mean of single images."""
    return float(standard_error(values, np.ones(values.size)))


def table(lines: list[dict[str, Any]]) -> str:
    """The rows of docs/adaptive.md."""
    head = "| model | K | held-out images | best hand-made stride | "
    rows = [
        f"{head}DP, unsmoothed − hand-made | DP, smoothed − hand-made | smoothed − unsmoothed |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        cells = [line["model"], str(line["K"]), str(line["images"]), line["stride"]]
        cells += [f"{value:+.4f} ± {error:.4f}" for value, error in (line["noisy"], line["dp"], line["gain"])]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="zoo names; all when none is given")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS), choices=BUDGETS)
    parser.add_argument("--parts", type=int, default=1, help=f"parts of {TOGETHER} held-out images")
    parser.add_argument("--page", action="store_true", help="write the table of docs/adaptive.md and stop")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    measured = options.runs / "measured.jsonl"
    lines = [json.loads(line) for line in measured.open()] if measured.is_file() else []
    if options.page:
        pattern = re.compile(r"(?<=<!-- never-worse -->\n).*?(?=\n<!-- /never-worse -->)", re.DOTALL)
        # The last of a model and a budget has the most images.
        kept = {(line["model"], line["K"]): line for line in lines}
        PAGE.write_text(pattern.sub(lambda _: table([kept[key] for key in sorted(kept)]), PAGE.read_text()))
        return
    for name in options.models or zoo.names():
        denoiser = zoo.load(name)
        paths = paths_of(name, choosing_of(name, denoiser, options.runs), options.runs)
        times = {t for K in options.budgets for path in paths[str(K)].values() for t in path if t}
        parts = [heldout_of(name, denoiser, part, times, options.runs) for part in range(options.parts)]
        for K in options.budgets:
            line = {"model": name, "K": K} | json.loads(json.dumps(differences(parts, paths[str(K)])))
            with measured.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(table([line]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
