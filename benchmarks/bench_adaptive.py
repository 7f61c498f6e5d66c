"""Measure the adaptive mode's savings and the accuracy of its error estimates, on the embedded models: `make bench-adaptive`.

    python benchmarks/bench_adaptive.py --page                       all models, and a section of docs/performance.md
    python benchmarks/bench_adaptive.py fashion-simple mixture       some of them; mixture needs no network
    python benchmarks/bench_adaptive.py --full 64 --heldout 64       smaller references, quicker and noisier

It takes hours and can be stopped at any time: statistics are kept in runs/adaptive, and the results of each seed in
docs/performance (with --page) or there. An unchanged model is not measured again. For each model two references are
estimated once:

    full        256 images of fashion-train, whose schedules are the baseline
    heldout     256 images of fashion-test, on which all schedules are scored, without any new pass

Up to T = 1000 the full table is evaluated at every step. At T = 4000, and on the held-out images, every gap-th step is
evaluated, gap = T/500, and all of the first 10 gap steps, because few steps span much log-SNR there; the others are filled
in. No gap is then wider than 0.2 in log-SNR, far narrower than those that the adaptive mode interpolates. Then follow 10
seeds, each with 128 other images of fashion-train and other noise.

Two quantities are measured for every seed's schedules. The target concerns their cost on the held-out images above that of
the full table's schedules. The reported interval concerns their regret: their cost above that of the best schedules. The
true best schedules are unknown; the closest available are those of all 512 images of both references together.

A table is noisy from one step to the next (each step has independent noise), and the best of all paths through it would
mostly be a path through its luckiest steps; so the costs of steps that cover the same share of the way to t = 1 (in
log-SNR) are first smoothed over t, by local lines of width 0.15 in log-SNR. (This can be validated without any
adaptive run: smoothing changes the costs of even and quadratic strides by less than their noise, and the best paths of one
smoothed table cost less on the other images than those of a table smoothed at only one step length.) The
unsmoothed difference is printed too, with its standard error over images. The first 10 steps are too far apart to
be smoothed, so each image is evaluated there with 8 noise samples.

Still, the best path of a table is overfitted to its own images: there it has an advantage that it loses on other images,
a = E [c(p*) − c(p)] for the path p of least cost c in the table and the true best path p*. Near the optimum, where costs are
quadratic in the effect of noise on the path, the excess cost of p over p* on other images equals its advantage on its own,
and twice as many images halve both. So if the path from a table of 256 images is scored on another such table, it loses 4 a
there, where a is that of both tables together; this is measured both ways and subtracted from the regret.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import VARIABLE, judge, print_table
from numpy.typing import NDArray

import dpstride
import page
from dpstride import CostTable, Denoiser, Statistics, zoo
from dpstride.adaptive.loop import BUDGETS, TOLERANCE
from dpstride.objectives.step_costs import standard_error
from dpstride.statistics.coordinate import noise_coordinate
from dpstride.statistics.data import Samples
from dpstride.variances import snr_difference
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

Array = NDArray[np.float64]
ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "adaptive"
KEPT = ROOT / "docs" / "performance"
PAPER_SAMPLES = 128  # the paper's cheapest setting, relative to which evaluations are reported
EVERY_UP_TO = 1000  # largest T at which the full table is evaluated at every step; other references are evaluated at
TIMES, FIRST = 500, 10  # this many evenly spaced steps, and at all steps of the first so many gaps
APART, NOISES = 10, 8  # number of first steps that are too far apart to be smoothed, and noise samples per image there
WIDTH = 0.15  # width of the local lines in log-SNR
REACHES = np.log(np.geomspace(0.002, 1.0, 24))  # relative lengths of the steps whose costs are smoothed


@dataclass(frozen=True)
class Seed:
    """Results of one adaptive run, by budget, in bits/dim."""

    above_full: list[float]  # held-out, smoothed
    raw: list[float]  # the same, not smoothed
    raw_error: list[float]
    regret: list[float]  # above the best path of both smoothed references, minus
    advantage: list[float]  # the overfitting advantage of that path
    believed: list[float]
    high: list[float]
    evaluations: int
    stopped: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="zoo names, or mixture; default: all zoo models")
    parser.add_argument("--full", type=int, default=256, help="images of the full table")
    parser.add_argument("--heldout", type=int, default=256, help="held-out images")
    parser.add_argument("--samples", type=int, default=128, help="images of each adaptive run")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=10, help="0 to 9 were used to develop the method")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder for statistics")
    parser.add_argument("--compile", action="store_true", help="compile the networks")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    entries = options.runs / "entries.jsonl"
    options.runs.mkdir(parents=True, exist_ok=True)
    entries.unlink(missing_ok=True)
    rows: list[list[str]] = []
    of_model: dict[str, list[Seed]] = {}
    grids: dict[str, int] = {}
    for name in options.models or zoo.names():
        of_model[name], grids[name] = measure(name, options)
        rows += rows_of(name, grids[name], of_model[name])
        stopped = [seed.stopped for seed in of_model[name]]
        print(f"{name}: stopped by {', '.join(f'{kind} {stopped.count(kind)}' for kind in sorted(set(stopped)))}")
    os.environ[VARIABLE] = str(entries)
    print_table(TITLE.format(options=options), HEAD, rows)
    for name, seeds in of_model.items():
        means = np.mean([seed.above_full for seed in seeds], axis=0)
        within = np.mean([np.array(seed.above_full) <= 0.01 for seed in seeds])
        judge(
            f"{name}, held-out cost above the full table's schedule, K = {', '.join(map(str, BUDGETS))}",
            "within 0.01 bits/dim",
            f"{means.max():+.4f} at the worst K, mean of {len(seeds)} seeds; {within:.0%} of single seeds within",
            bool(means.max() <= 0.01),
        )
        share = PAPER_SAMPLES * grids[name] / max(seed.evaluations for seed in seeds)
        judge(f"{name}, evaluations", "at most 1/40 of 128 × T", f"1/{share:.0f} at most", share >= 40.0)
    every = [seed for seeds in of_model.values() for seed in seeds]
    for words, back in (("", 0.0), (", with nothing taken off the regret", 1.0)):
        covered = [np.array(one.regret) + back * np.array(one.advantage) <= np.array(one.high) for one in every]
        judge(
            f"stated 95% intervals, pooled over {len(of_model)} models, {len(BUDGETS)} budgets and the seeds{words}",
            "cover the truth in at least 90%",
            f"{np.mean(covered):.1%} of {np.size(covered)} cases",
            bool(np.mean(covered) >= 0.9),
        )
    if options.page:
        found = [json.loads(line) for line in entries.read_text(encoding="utf-8").splitlines()]
        page.write("adaptive", page.section(found))


TITLE = (
    "Adaptive estimates of {options.samples} images, {options.seeds} seeds, tolerance {options.tolerance}: held-out bits/dim "
    "above the schedule\nof the full table ({options.full} images), on {options.heldout} other images"
)
HEAD = (
    "model", "T", "K", "above full: mean", "most", "raw mean", "± of a seed", "regret: mean", "most", "believed", "95% below",
    "covered", "evaluations", "of 128 T",
)  # fmt: skip


def rows_of(name: str, T: int, seeds: list[Seed]) -> list[list[str]]:
    rows = []
    evaluations = np.mean([seed.evaluations for seed in seeds])
    for k, K in enumerate(BUDGETS):
        at = {
            field: np.array([getattr(seed, field)[k] for seed in seeds])
            for field in ("above_full", "raw", "raw_error", "regret", "believed", "high")
        }
        rows.append(
            [
                name, f"{T:,}", str(K), f"{at['above_full'].mean():+.4f}", f"{at['above_full'].max():+.4f}",
                f"{at['raw'].mean():+.4f}", f"{at['raw_error'].mean():.4f}", f"{at['regret'].mean():.4f}",
                f"{at['regret'].max():.4f}", f"{at['believed'].mean():.4f}", f"{at['high'].mean():.4f}",
                f"{(at['regret'] <= at['high']).sum()}/{len(seeds)}", f"{evaluations:,.0f}",
                f"1/{PAPER_SAMPLES * T / evaluations:.0f}",
            ]
        )  # fmt: skip
    return rows


def measure(name: str, options: argparse.Namespace) -> tuple[list[Seed], int]:
    denoiser, train, test = subject(name)
    denoiser = denoiser.faster(compile=options.compile)
    kept = (KEPT if options.page else options.runs) / f"{name}.json"
    asked = {
        "model": denoiser.fingerprint, "images": options.samples, "full": options.full, "heldout": options.heldout,
        "tolerance": options.tolerance, "first_seed": options.first_seed,
    }  # fmt: skip
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    seeds = [Seed(**seed) for seed in found["seeds"]] if {key: found.get(key) for key in asked} == asked else []
    order = np.random.default_rng(0).permutation(len(train))
    reference: Reference | None = None
    for number in range(options.first_seed + len(seeds), options.first_seed + options.seeds):
        if reference is None:
            reference = Reference(
                denoiser,
                train.take(order[: options.full]),
                test.take(range(options.heldout)),
                options.runs / name,
                options,
            )
        images = np.random.default_rng(100 + number).choice(order[options.full :], options.samples, replace=False)
        seed, sentence = one_seed(denoiser, train.take(images), number, reference, options)
        print(f"{name}, seed {number}: {sentence}", flush=True)
        seeds.append(seed)
        kept.parent.mkdir(parents=True, exist_ok=True)
        document = asked | {"seeds": [rounded(asdict(seed)) for seed in seeds]}
        kept.with_suffix(".partial").write_text(json.dumps(document) + "\n", encoding="utf-8")
        kept.with_suffix(".partial").replace(kept)
    return seeds[: options.seeds], denoiser.process.T


def rounded(seed: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [float(f"{number:.6g}") for number in value] if isinstance(value, list) else value
        for key, value in seed.items()
    }


class Reference:
    """Tables of the reference images (not the seeds'), costs of the best paths, and the full table's schedules."""

    def __init__(
        self, denoiser: Denoiser, train: Samples, test: Samples, folder: Path, options: argparse.Namespace
    ) -> None:
        T = denoiser.process.T
        gap = max(1, T // TIMES)
        some = sorted({*range(1, FIRST * gap), *range(gap, T, gap), T})
        every = None if T <= EVERY_UP_TO else some
        folder.mkdir(parents=True, exist_ok=True)
        full, heldout = (
            dpstride.estimate(
                denoiser, images, seed=seed, batch_size=options.batch_size, data_range=images.data_range, steps=steps,
                checkpoint=folder / f"{name}-{len(images)}.safetensors",
            )
            for seed, name, images, steps in ((0, "full", train, every), (1, "heldout", test, some))
        )  # fmt: skip
        self.table, full_table = dpstride.elbo_costs(heldout), dpstride.elbo_costs(full)
        self.baseline = dpstride.solve(full_table, max(BUDGETS))
        self.smooth, other = (
            smoothed(with_more_noise(table, denoiser, images, seed, folder / name, options), found)
            for seed, name, images, found, table in (
                (1, "heldout", test, heldout, self.table),
                (0, "full", train, full, full_table),
            )
        )
        self.both = replace(self.smooth, L=0.5 * (self.smooth.L + other.L))
        best = dpstride.solve(self.both, max(BUDGETS))
        self.advantage = own_advantage(self.smooth, other)
        self.least = {K: float(best.cost_nats(K)) + self.advantage[K] for K in BUDGETS}


def with_more_noise(
    table: CostTable, denoiser: Denoiser, images: Samples, seed: int, file: Path, options: argparse.Namespace
) -> CostTable:
    """Return the table with its first rows from the same images with several noise samples each."""
    last = min(APART, table.T)
    steps = sorted({*range(1, last + 1), table.T})
    again = images.take(np.tile(np.arange(len(images)), NOISES))
    found = dpstride.estimate(
        denoiser, again, seed=seed, batch_size=options.batch_size, data_range=images.data_range, steps=steps,
        checkpoint=file.with_name(f"{file.name}-{len(images)}-noises.safetensors"),
    )  # fmt: skip
    L = table.L.copy()
    L[1 : last + 1] = dpstride.elbo_costs(found).L[1 : last + 1]
    return replace(table, L=L)


def own_advantage(one: CostTable, other: CostTable) -> dict[int, float]:
    """Return the overfitting advantage of the best path of both tables together, in nats, by budget."""
    best = [dpstride.solve(table, max(BUDGETS)) for table in (one, other)]
    lost = {
        K: [
            float(table.step_nats(theirs.path(K)).sum()) - float(own.cost_nats(K))
            for table, own, theirs in ((one, best[0], best[1]), (other, best[1], best[0]))
        ]
        for K in BUDGETS
    }
    return {K: 0.25 * float(np.mean(both_ways)) for K, both_ways in lost.items()}


def one_seed(
    denoiser: Denoiser, images: Samples, number: int, reference: Reference, options: argparse.Namespace
) -> tuple[Seed, str]:
    table, smooth, both = reference.table, reference.smooth, reference.both
    unit = 1.0 / (table.dims * math.log(2.0))
    statistics, report = dpstride.estimate_adaptively(
        denoiser, images, seed=100 + number, batch_size=options.batch_size, data_range=images.data_range,
        tolerance=options.tolerance,
    )  # fmt: skip
    chosen = dpstride.solve(dpstride.elbo_costs(statistics), max(BUDGETS))
    paths = [(chosen.path(K), reference.baseline.path(K)) for K in BUDGETS]
    scores = [[float(smooth.step_nats(path).sum()) * unit for path in pair] for pair in paths]
    raw = [[float(table.step_nats(path).sum()) * unit for path in pair] for pair in paths]
    assert table.unit_totals is not None
    errors = []
    for pair in paths:
        totals, sizes = table.unit_totals(pair)
        errors.append(standard_error(totals[0] - totals[1], sizes) * unit)
    seed = Seed(
        above_full=[own - other for own, other in scores],
        raw=[own - other for own, other in raw],
        raw_error=errors,
        regret=[
            (float(both.step_nats(own).sum()) - reference.least[K]) * unit
            for (own, _), K in zip(paths, BUDGETS, strict=True)
        ],
        advantage=[reference.advantage[K] * unit for K in BUDGETS],
        believed=[report.regret[K].believed for K in BUDGETS],
        high=[report.regret[K].high for K in BUDGETS],
        evaluations=report.evaluations,
        stopped=report.stopped,
    )
    return seed, report.sentence()


def subject(name: str) -> tuple[Denoiser, Samples, Samples]:
    """A model with images to choose on and images to score on."""
    if name == "mixture":
        return mixture_denoiser(), Samples.read(mixture_data(2048, seed=0)), Samples.read(mixture_data(2048, seed=1))
    return zoo.load(name), Samples.read(zoo.load_data("fashion-train")), Samples.read(zoo.load_data("fashion-test"))


def smoothed(table: CostTable, statistics: Statistics) -> CostTable:
    """Return the table with the level of each row, and the decoder's cost, smoothed over t."""
    process, T = table.process, table.T
    u = noise_coordinate(process, float(statistics.data_square.mean()))[1:]
    # What steps from t cost per unit of snr, by how far they go: a share of the way to t = 1, which every row has.
    far = [np.log((u[t - 1] - u[: t - 1][::-1]) / (u[t - 1] - u[0])) for t in range(2, T + 1)]  # to s = t − 1, …, 1
    level = np.empty((T - 1, REACHES.size))
    for t, reach in enumerate(far, start=2):
        s = np.arange(t - 1, 0, -1)
        each = np.log(table.L[t, s] / snr_difference(process, np.full_like(s, t), s))
        level[t - 2] = np.interp(REACHES, reach, each)
    change = smooth_curve(u[1:], level) - level
    L = table.L.copy()
    for t, reach in enumerate(far, start=2):
        L[t, t - 1 : 0 : -1] *= np.exp(np.interp(reach, REACHES, change[t - 2]))
    pairs = table.pairs
    if pairs is None:
        L[1:, 0] = smooth_curve(u, table.L[1:, 0])
    return replace(table, L=L)


def smooth_curve(u: Array, y: Array) -> Array:
    """Smooth by local lines, then smooth the residuals once more: lines alone flatten curvature (twicing, Tukey 1977)."""
    lines = local_line(u, y)
    return lines + local_line(u, y - lines)


def local_line(u: Array, y: Array) -> Array:
    """Return, at each u, the value of the line fitted to y with Gaussian weights of WIDTH; isolated points are unchanged."""
    result = np.empty_like(y)
    for i, at in enumerate(u):
        near = np.abs(u - at) < 5.0 * WIDTH
        x, weight = u[near] - at, np.exp(-0.5 * ((u[near] - at) / WIDTH) ** 2)
        moments = [(weight * x**p).sum() for p in range(3)]
        spread = moments[0] * moments[2] - moments[1] ** 2
        kernel = weight if spread < 1e-12 else weight * (moments[2] - moments[1] * x) / spread * moments[0]
        result[i] = kernel @ y[near] / moments[0]
    return result


if __name__ == "__main__":
    main()
