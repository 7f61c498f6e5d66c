"""Race schedules on the embedded models and compare the winners with other schedules, for the tables of docs/beyond/race.md.

    python benchmarks/race.py                                          all cells: days on two cores
    python benchmarks/race.py fashion-simple --samplers ddim --budgets 4,8
    python benchmarks/race.py --page-only                              rewrite the page from stored results

A cell is a model, a sampler and a number of steps; cells with few steps come first. Each cell is a separate race, as `tune`
runs it for one budget, on training images (seed 0). Then the winner, the hand-made strides and the paths of the ELBO, the
trajectory objective and GITS are sampled from the same fresh noise and compared with test images that were not used to choose.
The other measurements of `tune` (many even steps, and the fewest steps that are as close) are left out. Cells with results in
docs/beyond/results are not drawn again; all samples are kept in runs/beyond/race, so an interrupted run resumes.

Evaluations with bitwise identical input are made once: all paths of a model share the first evaluation of each sample, and
paths with the same first steps share those too.

GITS (Chen et al. 2024, "On the Trajectory Regularity of ODE-based Diffusion Sampling") is implemented from its description: a
teacher of 60 Euler steps on Karras' schedule is followed from a warm-up batch; the cost of t → s is the mean distance between
one Euler step and the teacher at s, in z = x/f; dynamic programming minimises V_k(t) = min_s c(t, s) + γ V_(k−1)(s), with γ set
by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from beyond import RUNS, results, save, table, write_page
from numpy.typing import NDArray
from samples import frechet_difference
from torch import Tensor

from dpstride import Denoiser, Schedule, zoo
from dpstride.evaluate.features.extractor import to_levels
from dpstride.finding.inputs import Asked, load_gaussian, split
from dpstride.options import DEFAULT_OBJECTIVE, DEFAULT_ODE_SAMPLER, EVEN, RACED_BESIDE, TRAJECTORY
from dpstride.racing.event import Event
from dpstride.racing.finish import OURS
from dpstride.racing.halving import Purse
from dpstride.racing.measure import Measure
from dpstride.racing.run import prepare
from dpstride.racing.teacher import followed, trajectory_paths
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
GITS_TEACHER, GITS_GAMMA, GITS_WARMUP = 60, 1.1, 64
AS_GOOD, SURE = 1.05, 2.0  # of the best other's distance; standard errors of a paired difference
BATCH = 64
MEMORY = 2**30  # bytes of outputs that are remembered
GITS = "GITS"
MEASURES = {
    "frechet": "Fréchet distance, fashion features",
    "kernel": "kernel distance of fashion features · 10³",
    "energy": "pixel energy distance · 10³",
}
SCALE = {"frechet": 1.0, "kernel": 1000.0, "energy": 1000.0}
WORDS = {"ancestral": "ancestral", "ddim": "DDIM", "dpmpp_2m": "DPM-Solver++ 2M"}
SHOWN = {"karras": "Karras", "log_snr": "log-SNR", "ays": "Align Your Steps", "elbo": "ELBO"}
Array = NDArray[np.float64]
Paths = dict[int, tuple[int, ...]]


@dataclass(eq=False)
class Remembered:
    """A network that evaluates each input once: recent outputs are cached by the exact bits of x and of the times."""

    network: Callable[..., Any]
    kept: OrderedDict[bytes, Tensor] = field(default_factory=OrderedDict)
    size: int = 0
    asked: int = 0
    passed: int = 0

    def __call__(self, x: Tensor, time: Tensor) -> Any:
        key = hashlib.sha256(x.contiguous().numpy().tobytes() + time.numpy().tobytes()).digest()
        self.asked += len(x)
        if key not in self.kept:
            self.passed += len(x)
            self.kept[key] = self.network(x, time).clone()
            self.size += self.kept[key].nbytes
            while self.size > MEMORY:
                self.size -= self.kept.popitem(last=False)[1].nbytes
        self.kept.move_to_end(key)
        return self.kept[key].clone()


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
    """The path of every number of steps, where γ weighs the costs of all later steps."""
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


def prepared(name: str, sampler: str, denoiser: Denoiser, options: argparse.Namespace) -> Event:
    """Return the checked race of a model and a sampler; all samplers share the model's statistics and trajectories."""
    wish = Wish(
        sampler=sampler, budgets=BUDGETS, samples=options.samples, race_samples=options.race_samples,
        first_samples=min(BATCH, options.race_samples), real=options.real,
    )  # fmt: skip
    loaded = replace(load_gaussian(name), denoiser=denoiser)
    parts = split(
        Asked(zoo.load_data("fashion-train"), zoo.load_data("fashion-test"), defaults=(wish.real, wish.real)),
        loaded,
        SEED,
    )
    record = partial(Run.of_call, "tune", (name, "fashion-train", "fashion-test"), {"sampler": sampler})
    how = Execution(SEED, BATCH, False)
    return prepare(loaded, parts, RUNS / "race" / name, wish, how=how, record=record, say=partial(print, flush=True))


def trajectory_of(event: Event) -> Paths:
    """Paths of the trajectory objective on the model's grid, as in races; with DDIM's costs for a stochastic sampler."""
    sampler = followed(event.sampling) or DEFAULT_ODE_SAMPLER
    found = trajectory_paths(event.denoiser, sampler, event.choosing, max(BUDGETS), event.how, event.output)
    place = {int(index): step for step, index in enumerate(event.denoiser.process.origin)}
    origin = found.process.origin
    return {K: tuple(place[int(origin[step])] for step in found[K].steps) for K in found.budgets}


def gits_of(event: Event) -> Paths:
    """GITS' paths, whose costs depend only on the model."""
    process = event.denoiser.process
    fine = karras_stride(process, min(GITS_TEACHER, process.T)).steps
    kept = event.output / f"gits-{GITS_WARMUP}.npy"
    if not kept.is_file():
        np.save(kept, gits_costs(event.denoiser, fine, GITS_WARMUP))
    return gits_paths(np.load(kept), fine, max(BUDGETS))


def measured(event: Event, K: int, others: dict[str, Paths]) -> dict[str, Any]:
    """Race a cell; return distances of all schedules by name, and paired differences of the raced one from each."""
    statistics = event.statistics()
    one, purse = replace(event, wish=replace(event.wish, budgets=(K,))), Purse()
    field = one.field(statistics)
    choice = one.choose(field, purse)
    entries = {OURS: choice.schedules[K]} | field.beside(choice.base, K)
    entries |= {name: choice.base.adopt(Schedule(field.process, paths[K], name)) for name, paths in others.items()}
    pixels = replace(event, measure=Measure(None, event.measure.pictures)).arena(event.scoring, SEED + 1)
    features_of = event.measure.extractor
    assert features_of is not None
    real = event.measure.of_real(event.scoring)["features"]
    features, kernels, energies, cell = {}, {}, {}, {}
    for name, schedule in entries.items():
        drawn = pixels.draw(schedule, event.wish.samples)
        assert drawn is not None
        assert event.denoiser.shape is not None
        x = torch.from_numpy(np.asarray(drawn.features)).reshape(-1, *event.denoiser.shape)
        features[name] = features_of(to_levels(x))
        kernels[name] = event.measure.distance(features[name], real)
        energies[name] = pixels.measure.distance(drawn.features, pixels.real)
        cell[name] = {
            "steps": list(schedule.steps),
            "frechet": event.measure.frechet(features[name], real),
            "kernel": kernels[name].value,
            "energy": energies[name].value,
        }
    for name in entries.keys() - {OURS}:
        cell[name]["ours minus it"] = {
            "frechet": frechet_difference(features[OURS], features[name], real),
            "kernel": kernels[OURS].minus(kernels[name]),
            "energy": energies[OURS].minus(energies[name]),
        }
    heat = choice.heats[0]
    return {
        "samples": event.wish.samples,
        "real": len(real),
        "winner": heat.winner,
        "variance": choice.base.options.get("variance") if event.wish.sampler == "ancestral" else None,
        "race evaluations": purse.spent,
        "schedules": cell,
    }


# --- tables ----------------------------------------------------------------------------------------------------------------


def counts(cells: Sequence[dict[str, Any]], measure: str) -> list[str]:
    """The counts by which races are judged, over all cells."""
    good = ahead = 0
    p_values, ratios = [], []
    for cell in cells:
        ours, rest = cell[OURS][measure], {name: each for name, each in cell.items() if name != OURS}
        best = min(rest, key=lambda name: rest[name][measure])
        value, error = rest[best]["ours minus it"][measure]
        good += ours <= AS_GOOD * rest[best][measure] or value <= SURE * error
        by_hand = [rest[name]["ours minus it"][measure] for name in RACED_BESIDE]
        ahead += all(value < -SURE * error for value, error in by_hand)
        value, error = rest[EVEN]["ours minus it"][measure]
        p_values.append(0.5 * math.erfc(value / error / math.sqrt(2.0)) if error > 0.0 else 1.0)
        ratios.append(ours / rest[EVEN][measure])
    return [str(good), str(ahead), str(rejected(p_values)), f"{np.median(ratios):.2f}"]


def rejected(p_values: Sequence[float], level: float = 0.05) -> int:
    """Number of hypotheses that are rejected after Holm's correction."""
    count = 0
    for i, p in enumerate(sorted(p_values)):
        if p * (len(p_values) - i) > level:
            break
        count += 1
    return count


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """Counts by measure, then the distances of every cell, with the difference between raced and even steps."""
    measured_cells = [
        (sampler, model, K, found[model][sampler][str(K)])
        for K, sampler, model in itertools.product(BUDGETS, SAMPLERS, found)
        if str(K) in found[model].get(sampler, {})
    ]
    if not measured_cells:
        return ["Nothing is measured yet."]
    first, total = measured_cells[0][3], len(zoo.names()) * len(SAMPLERS) * len(BUDGETS)
    n = len(measured_cells)
    head = [
        "measure, sampler (cells)",
        f"at most {AS_GOOD} × the best other schedule, or within two standard errors of it",
        "significantly closer than every hand-made schedule",
        "farther than even steps, after Holm's correction",
        "median ratio to even steps",
    ]
    rows = []
    for measure, words in MEASURES.items():
        for label in (None, *SAMPLERS):
            own = [cell["schedules"] for sampler, _, _, cell in measured_cells if label in (None, sampler)]
            if own:
                rows.append([f"{words}, {label or 'all'} ({len(own)})", *counts(own, measure)])
    names = [OURS, *RACED_BESIDE, DEFAULT_OBJECTIVE, TRAJECTORY, GITS]
    parts = [
        f"{'All ' if n == total else ''}{n} of {total} cells (model, sampler, steps) are measured, with "
        f"{first['samples']:,} samples of every schedule against {first['real']:,} test images. *Significantly* means by more "
        "than two standard errors of the paired difference. The race chose by the kernel distance of the same features, with "
        "other images and noise; pixel distances played no part in the choice.",
        table(head, rows),
    ]
    for measure, words in MEASURES.items():
        scale, rows = SCALE[measure], []
        for sampler, model, K, whole in measured_cells:
            cell = whole["schedules"]
            best = min(cell, key=lambda name: cell[name][measure])
            shown = [f"{scale * cell[name][measure]:.2f}" if name in cell else "" for name in names]
            shown = [f"**{each}**" if name == best else each for name, each in zip(names, shown, strict=True)]
            value, error = (scale * number for number in cell[EVEN]["ours minus it"][measure])
            rows.append([model, WORDS[sampler], K, *shown, f"{value:+.2f} ± {error:.2f}"])
        head = ["model", "sampler", "steps", *(SHOWN.get(name, name) for name in names), "raced − even"]
        parts += [f"**{words}**", table(head, rows)]
    rows = [
        [model, WORDS[sampler], K, each["winner"], each["variance"] or ""] for sampler, model, K, each in measured_cells
    ]
    return [*parts, "**What won**", table(["model", "sampler", "steps", "rule", "variance"], rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--budgets", type=lambda text: [int(K) for K in text.split(",")], default=list(BUDGETS))
    parser.add_argument("--samples", type=int, default=1024, help="samples of every path in the final measurement")
    parser.add_argument("--race-samples", type=int, default=256)
    parser.add_argument(
        "--real", type=int, default=2048, help="real images for the race and for the final measurement, each"
    )
    parser.add_argument("--compile", action="store_true", help="use torch.compile, a third faster on a CPU")
    parser.add_argument("--page-only", action="store_true")
    options = parser.parse_args()
    names, denoisers = options.models or zoo.names(), {}
    for K in () if options.page_only else options.budgets:
        for name in names:
            if name not in denoisers:
                denoiser = zoo.load(name)
                denoisers[name] = denoiser.faster(compile=True) if options.compile else denoiser
            memory = Remembered(denoisers[name]._run)
            for sampler in options.samplers.split(","):
                kept = results("race").get(name, {})
                if str(K) in kept.get(sampler, {}):
                    continue
                event = prepared(name, sampler, denoisers[name], options)
                denoisers[name]._run = memory  # only now: the checks of a network evaluate the same input twice
                with claimed(event.output):
                    cell = measured(event, K, {TRAJECTORY: trajectory_of(event), GITS: gits_of(event)})
                denoisers[name]._run = memory.network
                kept.setdefault(sampler, {})[str(K)] = cell
                save("race", name, kept)
                print(f"{name}, {sampler}, {K} steps: {cell['winner']} wins; so far {memory.passed:,} of {memory.asked:,} "
                      "evaluations needed the network", flush=True)  # fmt: skip
    write_page("race", page(results("race")))


if __name__ == "__main__":
    main()
