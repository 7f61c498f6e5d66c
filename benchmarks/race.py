"""Races on the embedded models, measured beside every other schedule, for the tables of docs/beyond/race.md.

    python benchmarks/race.py                                          all models and samplers: days on two cores
    python benchmarks/race.py fashion-simple --samplers ddim --budgets 4,8
    python benchmarks/race.py --tables-only                            tables from what is there

A cell is a model, a sampler and a number of steps. `dpstride.tune` races on training images (seed 0); then its winner, strides
made by hand, the ELBO's path, the trajectory objective's and that of GITS draw from the same fresh noises against test images
that chose nothing. Everything drawn is kept in runs/beyond/race, so that an interrupted run goes on; results are in
docs/beyond/results/race.

GITS (Chen et al. 2024, "On the Trajectory Regularity of ODE-based Diffusion Sampling") is written from its description: a
teacher of 60 Euler steps on Karras' schedule is followed from a warm-up batch; the cost of t → s is the mean distance between
one Euler step and the teacher at s, in z = x/f; dynamic programming minimises V_k(t) = min_s c(t, s) + γ V_(k−1)(s), with γ set
by hand.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from beyond import RUNS, results, save, table
from numpy.typing import NDArray
from samples import frechet_difference

from dpstride import Denoiser, Schedule, estimate_trajectory, trajectory_schedules, zoo
from dpstride.finding.inputs import Asked, load_gaussian, split
from dpstride.options import DEFAULT_ODE_SAMPLER, EVEN, ODE_SAMPLERS, RACED_BESIDE, OdeSampler
from dpstride.racing.event import Event
from dpstride.racing.finish import OURS
from dpstride.racing.outcome import Race
from dpstride.racing.run import prepare
from dpstride.racing.teacher import teacher_of
from dpstride.racing.wish import Wish
from dpstride.runs.execution import Execution
from dpstride.runs.folder import claimed
from dpstride.runs.record import Run
from dpstride.samplers import ddim
from dpstride.statistics.noise import standard_normal
from dpstride.strides import karras_stride

SAMPLERS = ("ancestral", "ddim", "dpmpp_2m")
BUDGETS = (4, 8, 16, 32)
SEED, GITS_SEED = 0, 5
GITS_TEACHER, GITS_GAMMA = 60, 1.1
AS_GOOD, SURE = 1.05, 2.0  # of the best other's Fréchet distance; standard errors of a paired difference
Array = NDArray[np.float64]


def folder_of(name: str, sampler: str) -> Path:
    return RUNS / "race" / f"{name}-{sampler}"


def gits_costs(denoiser: Denoiser, teacher: Sequence[int], warmup: int, batch: int = 64) -> Array:
    """c[i, j]: mean distance between one Euler step from point i of the teacher's path and its state at point j > i."""
    process, n = denoiser.process, len(teacher)
    f, total = process.f, np.full((n, n), np.inf)
    total[np.triu_indices(n, 1)] = 0.0
    assert denoiser.shape is not None
    for first in range(0, warmup, batch):
        count = min(batch, warmup - first)
        x = standard_normal(GITS_SEED, "prior", 0, first, count, denoiser.shape)
        states, ends = [x], []
        with torch.inference_mode():
            for t, s in itertools.pairwise(teacher):
                ends.append(denoiser(states[-1], t).x0_hat)
                a, b = map(float, ddim.coefficients(process, t, s))
                states.append(a * states[-1] + b * ends[-1])
        for i, t in enumerate(teacher[:-1]):
            for j in range(i + 1, n):
                a, b = map(float, ddim.coefficients(process, t, teacher[j]))
                missed = (a * states[i] + b * ends[i] - states[j]) / float(f[teacher[j]])
                total[i, j] += float(missed.flatten(1).norm(dim=1).sum())
    return total / warmup


def gits_paths(
    costs: Array, teacher: Sequence[int], most: int, gamma: float = GITS_GAMMA
) -> dict[int, tuple[int, ...]]:
    """The path of every number of steps, from what is left of the way and γ for all that comes after a step."""
    n = len(teacher)
    value, choice = np.full((most + 1, n), np.inf), np.zeros((most + 1, n), dtype=np.int64)
    value[0, n - 1] = 0.0
    for k in range(1, most + 1):
        sums = costs + gamma * value[k - 1]
        choice[k], value[k] = sums.argmin(axis=1), sums.min(axis=1)
    paths = {}
    for K in range(1, min(most, n - 1) + 1):
        at, path = 0, [teacher[0]]
        for k in range(K, 0, -1):
            at = int(choice[k, at])
            path.append(teacher[at])
        paths[K] = tuple(path)
    return paths


def prepared(name: str, sampler: str, options: argparse.Namespace) -> Event:
    """The race of a model and a sampler, checked."""
    loaded, data = load_gaussian(name), (zoo.load_data("fashion-train"), zoo.load_data("fashion-test"))
    wish = Wish(
        sampler=sampler, budgets=tuple(options.budgets), samples=options.samples, race_samples=options.race_samples,
        first_samples=min(64, options.race_samples), reference=options.reference_steps, real=options.real,
    )  # fmt: skip
    parts = split(Asked(*data, defaults=(wish.real, wish.real)), loaded, SEED)
    record = partial(Run.of_call, "tune", (name, "fashion-train", "fashion-test"), {"sampler": sampler})
    how = Execution(SEED, options.batch_size, False)
    return prepare(
        loaded, parts, folder_of(name, sampler), wish, how=how, record=record, say=partial(print, flush=True)
    )


def others_of(event: Event, options: argparse.Namespace) -> dict[str, dict[int, tuple[int, ...]]]:
    """Paths on the model's grid by the trajectory objective and by GITS, by name and number of steps."""
    denoiser, most = event.denoiser, max(event.budgets)
    sampler = cast(OdeSampler, event.wish.sampler if event.wish.sampler in ODE_SAMPLERS else DEFAULT_ODE_SAMPLER)
    teacher = teacher_of(denoiser)
    trajectory = estimate_trajectory(
        teacher, options.trajectories, GITS_SEED, progress=False,
        checkpoint=event.output.parent / f"{event.output.name}-trajectory.safetensors",
    )  # fmt: skip
    chosen, origin = trajectory_schedules(trajectory, sampler, most), teacher.process.origin
    place = {int(index): step for step, index in enumerate(denoiser.process.origin)}
    fine = karras_stride(denoiser.process, min(GITS_TEACHER, denoiser.process.T)).steps
    kept = event.output.parent / f"{event.output.name}-gits-{options.trajectories}.npy"
    if not kept.is_file():
        np.save(kept, gits_costs(denoiser, fine, options.trajectories))
    return {
        "trajectory": {K: tuple(place[int(origin[step])] for step in chosen[K].steps) for K in chosen.budgets},
        "GITS": gits_paths(np.load(kept), fine, most),
    }


def measure(event: Event, race: Race, options: argparse.Namespace) -> dict[str, Any]:
    """Fréchet distances of all schedules, by steps and name, and paired differences of the raced one from each."""
    real = event.measure.of_real(event.scoring)["features"]
    arena = event._arena(event.scoring, real, SEED + 1)  # that of the final measurement, so nothing is drawn twice
    own, cells = others_of(event, options), {}
    for K in event.budgets:
        entries = {name: entry.steps for (name, k), entry in race.finish.entries.items() if k == K}
        paths = entries | {name: paths[K] for name, paths in own.items() if K in paths}
        drawn = {}
        for name, path in paths.items():
            found = arena.draw(race.schedules.adopt(Schedule(race.schedules.process, path)), options.samples)
            assert found is not None
            drawn[name] = np.asarray(found.features[: options.samples], dtype=np.float64)
        cells[str(K)] = {
            name: {
                "steps": list(paths[name]),
                "frechet": event.measure.frechet(features, real),
                "ours minus it": None if name == OURS else frechet_difference(drawn[OURS], features, real),
            }
            for name, features in drawn.items()
        }
    return cells


# --- tables ----------------------------------------------------------------------------------------------------------------


def told(cells: Sequence[dict[str, Any]]) -> list[str]:
    """The counts that the race is judged by, over all cells."""
    good = surely = 0
    p_values, ratios = [], []
    for cell in cells:
        ours, rest = cell[OURS]["frechet"], {name: each for name, each in cell.items() if name != OURS}
        best = min(rest, key=lambda name: rest[name]["frechet"])
        value, error = rest[best]["ours minus it"]
        good += ours <= AS_GOOD * rest[best]["frechet"] or value <= SURE * error
        by_hand = [rest[name]["ours minus it"] for name in RACED_BESIDE if name in rest]
        surely += all(value < -SURE * error for value, error in by_hand)
        value, error = rest[EVEN]["ours minus it"]
        p_values.append(0.5 * math.erfc(value / error / math.sqrt(2.0)) if error > 0.0 else 1.0)
        ratios.append(ours / rest[EVEN]["frechet"])
    worse = 0  # after Holm's correction
    for i, p in enumerate(sorted(p_values)):
        if p * (len(p_values) - i) > 0.05:
            break
        worse += 1
    n = len(cells)
    return [
        f"- at most {AS_GOOD} × the best of all others, or within {SURE:g} standard errors of it: {good} of {n}",
        f"- closer than every hand-made schedule beyond {SURE:g} standard errors: {surely} of {n}",
        f"- farther than even steps after Holm's correction: {worse} of {n}",
        f"- median ratio to even steps: {np.median(ratios):.2f}",
    ]


def tables(found: dict[str, dict[str, Any]]) -> str:
    """Counts, then Fréchet distances of every cell."""
    rows, cells, names = [], [], dict.fromkeys((OURS, *RACED_BESIDE, "elbo", "trajectory", "GITS"))
    for model, by_sampler in found.items():
        for sampler, by_budget in by_sampler.items():
            for K, cell in by_budget.items():
                shown = [f"{cell[name]['frechet']:.3f}" if name in cell else "" for name in names]
                rows.append([model, sampler, K, *shown])
                cells.append(cell)
    if not cells:
        return "Nothing is measured yet."
    return "\n".join([*told(cells), "", table(["model", "sampler", "steps", *names], rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--budgets", type=lambda text: [int(K) for K in text.split(",")], default=list(BUDGETS))
    parser.add_argument("--samples", type=int, default=1000, help="of every path at the end")
    parser.add_argument("--race-samples", type=int, default=256)
    parser.add_argument("--reference-steps", type=int, default=256)
    parser.add_argument(
        "--trajectories", type=int, default=256, help="of the teachers of GITS and of the trajectory objective"
    )
    parser.add_argument("--real", type=int, default=2048, help="real images for the race and for the end, each")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    for name in () if options.tables_only else options.models or zoo.names():
        for sampler in options.samplers.split(","):
            event = prepared(name, sampler, options)
            with claimed(event.output):
                race = event.run()
                print(f"{name}, {sampler}: {race.answer}", flush=True)
                cells = measure(event, race, options)
            kept = results("race").get(name, {})
            kept.setdefault(sampler, {}).update(cells)
            save("race", name, kept)
    print(tables(results("race")))


if __name__ == "__main__":
    main()
