"""Record the numbers that the package computes, and compare them with those of another commit, bit for bit.

A change that only moves code must not change its numbers. Record them before the move, in a worktree of the old commit, and
compare after it (about eight minutes each on one core):

    git worktree add --detach ../before COMMIT
    PYTHONPATH=../before/src python tools/same_numbers.py record numbers.npz
    PYTHONPATH=src           python tools/same_numbers.py compare numbers.npz
    PYTHONPATH=src           python tools/same_numbers.py compare numbers.npz --only tables --only samples

``list`` prints the sections. The script uses only public names and the command line, and spells out names of variants, so that
it runs on both sides of a move. Where a sum was reordered on purpose, the place is listed in `LOOSE`, with a tolerance of
1e-12; times, versions and places in a folder of `find` are ignored (`UNSAID`). Exit code 0: the same; 1: different, with each
place printed; 2: bad usage.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # sums over threads depend on their number

import numpy as np
import torch

import dpstride
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

Found = Iterator[tuple[str, Any]]
FIXED = ("posterior", "upper", "optimal")
LEARNED = ("learned_range", "learned_optimal")
DECODERS = ("upper", "first_pair", "respaced", "optimal")
MODELS = ("fashion-simple", "fashion-hybrid", "fashion-vlb", "fashion-continuous", "fashion-flow")
SAMPLES, GRID = 16, 32
# Prefixes of names where a sum was reordered on purpose, and why. Everything else is compared bit for bit.
LOOSE: dict[str, str] = {
    "adaptive: mixture300 optimal first_pair/report": "replicates come from the one engine of costs",
    "adaptive: fashion-hybrid learned_optimal first_pair/report": "the same",
    "adaptive: fashion-hybrid optimal respaced/report": "the same",
}
UNSAID = {"version", "versions", "seconds", "time", "when", "date", "command", "folder", "behaviour", "package"}
SECTIONS: dict[str, Callable[[], Found]] = {}


def section(function: Callable[[], Found]) -> Callable[[], Found]:
    """List a section by the name of its function."""
    SECTIONS[function.__name__] = function
    return function


def home_of(name: str, *modules: str) -> Any:
    """A private name, from the first of ``modules`` that has it."""
    for module in modules:
        try:
            return getattr(importlib.import_module(f"dpstride.{module}"), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"{name} is in none of {', '.join(modules)}: add its new module to tools/same_numbers.py")


def plain(options: Any) -> dict[str, Any]:
    """Options as a dict, from a dict or a value with `to_dict`."""
    return dict(options.to_dict() if hasattr(options, "to_dict") else options)


# --- models and statistics ---------------------------------------------------------------------------------------------


class Models:
    """Denoisers on thinned grids, and their statistics, estimated once."""

    def __init__(self) -> None:
        self.denoisers: dict[str, Any] = {}
        self.estimated: dict[tuple[Any, ...], Any] = {}

    def denoiser(self, name: str) -> Any:
        """A model of the zoo on GRID of its steps, evenly spaced; "mixtureN" is the mixture with N steps."""
        if name not in self.denoisers:
            if name.startswith("mixture"):
                self.denoisers[name] = mixture_denoiser(int(name.removeprefix("mixture")))
            else:
                model = home_of("load", "zoo.models")(name)
                steps = np.unique(np.append(1, np.linspace(0, model.process.T, GRID + 1).round().astype(int)))
                self.denoisers[name] = model.on_grid(model.process.subset(steps.tolist()))
        return self.denoisers[name]

    def data(self, name: str, heldout: bool = False) -> Any:
        """SAMPLES images for a model, uint8."""
        if name.startswith("mixture"):
            return mixture_data(SAMPLES, seed=5 + heldout)
        load = home_of("load_data", "zoo.data")
        return load("fashion-test" if heldout else "fashion-train")[:SAMPLES]

    def statistics(self, name: str, heldout: bool = False, data_range: str = "uint8") -> Any:
        """Statistics of a model on the whole of its thinned grid."""
        key = (name, heldout, data_range)
        if key not in self.estimated:
            data = self.data(name, heldout)
            if data_range == "continuous":
                data = data.double() / 127.5 - 1.0
            self.estimated[key] = dpstride.estimate(
                self.denoiser(name),
                data,
                seed=3 + heldout,
                batch_size=SAMPLES,
                data_range=data_range,
                progress=False,
            )
        return self.estimated[key]

    def options(self, name: str) -> list[tuple[str, str]]:
        """Every variance × decoder that this model allows."""
        denoiser = self.denoiser(name)
        learned = denoiser.variance == "learned_range"
        decoders = [each for each in DECODERS if each != "first_pair" or denoiser.process.kind == "discrete"]
        return [(variance, decoder) for variance in FIXED + (LEARNED if learned else ()) for decoder in decoders]


MODEL = Models()
ALL = (*((name, "uint8") for name in MODELS), ("mixture40", "uint8"), ("mixture40", "continuous"),
       ("fashion-hybrid", "continuous"))  # fmt: skip


# --- sections ----------------------------------------------------------------------------------------------------------


@section
def statistics() -> Found:
    """Everything that `Statistics.save` writes."""
    from safetensors import safe_open

    for name, data_range in ALL:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "statistics.safetensors"
            MODEL.statistics(name, data_range=data_range).save(path)
            with safe_open(path, "np") as file:
                for key in sorted(file.keys()):
                    yield f"{name} {data_range}/{key}", file.get_tensor(key)
                for key, text in sorted((file.metadata() or {}).items()):
                    yield f"{name} {data_range}/metadata {key}", text


@section
def tables() -> Found:
    """L, pairs, prior, fitted numbers, schedules of all budgets and their errors for every variance × decoder."""
    for name, data_range in ALL:
        known = MODEL.statistics(name, data_range=data_range)
        for variance, decoder in MODEL.options(name):
            for cdf in ("exact", "tanh") if decoder == "upper" and data_range == "uint8" else ("exact",):
                table = dpstride.elbo_costs(known, variance=variance, decoder=decoder, cdf=cdf)
                at = f"{name} {data_range} {variance} {decoder} {cdf}"
                solution = dpstride.solve(table)
                budgets = [int(K) for K in np.flatnonzero(np.isfinite(solution.costs))]
                paths = [solution.path(K) for K in budgets]
                yield f"{at}/L", np.where(np.isfinite(table.L), table.L, np.inf)
                if table.pairs is not None:
                    yield f"{at}/pairs", table.pairs
                yield f"{at}/prior", table.prior_nats
                yield f"{at}/options", plain(table.options)
                yield f"{at}/fitted", table.fitted.to_json()
                yield f"{at}/costs", solution.costs
                yield f"{at}/paths", [list(map(int, path)) for path in paths]
                yield f"{at}/bpd", [solution.bpd(K) for K in budgets]
                yield f"{at}/standard errors", table.standard_errors(paths)
                yield f"{at}/steps", [table.step_nats(path).tolist() for path in paths[:: max(len(paths) // 4, 1)]]


@section
def files() -> Found:
    """Schedule files as written."""
    for name, data_range in ALL:
        known = MODEL.statistics(name, data_range=data_range)
        for variance, decoder in MODEL.options(name)[:: 1 if name == "fashion-hybrid" else 3]:
            schedules = dpstride.schedules_from(known, variance=variance, decoder=decoder)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "schedules.json"
                schedules.save(path)
                yield f"{name} {data_range} {variance} {decoder}", json.loads(path.read_text(encoding="utf-8"))


@section
def scores() -> Found:
    """Held-out bits/dim from statistics and by direct evaluation, comparisons, hand-made strides."""
    for name in ("fashion-simple", "fashion-hybrid", "fashion-flow", "mixture40"):
        known, heldout = MODEL.statistics(name), MODEL.statistics(name, heldout=True)
        denoiser, unseen = MODEL.denoiser(name), MODEL.data(name, heldout=True)
        for variance, decoder in MODEL.options(name):
            schedules = dpstride.schedules_from(known, variance=variance, decoder=decoder)
            at = f"{name} {variance} {decoder}"
            scored = dpstride.score(heldout, [schedules[K] for K in (2, 5, 17, denoiser.process.T)])
            yield f"{at}/score", [likelihood(each) for each in scored]
            compared = dpstride.compare(schedules, heldout)
            yield f"{at}/compare", {"curves": as_json(compared.curves), "warnings": list(compared.warnings)}
            yield f"{at}/sentence", compared.sentence()
            direct = dpstride.bits_per_dim(denoiser, unseen, schedules[3], samples=6, batch_size=6)
            yield f"{at}/direct", likelihood(direct)


def likelihood(each: Any) -> dict[str, Any]:
    """A Likelihood as JSON."""
    return {
        "bpd": each.bpd,
        "standard_error": each.standard_error,
        "terms": as_json(each.terms),
        "options": plain(each.options),
        "steps": list(each.steps),
    }


@section
def strides() -> Found:
    """Every hand-made stride on several grids."""
    where = ("strides", "evaluate.ode_strides")
    rules = {
        name: home_of(f"{name}_stride", *where)
        for name in ("even", "quadratic", "quadratic_ddim", "karras", "log_snr", "ays")
    }
    laws = (
        dpstride.ForwardProcess.linear(1000),
        dpstride.ForwardProcess.cosine(200),
        dpstride.ForwardProcess.rectified_flow(100),
        MODEL.denoiser("fashion-hybrid").process,
    )
    for process in laws:
        for name, rule in rules.items():
            for K in (1, 2, 7, 25):
                try:
                    yield f"{process.name} {process.T} {name} {K}", list(rule(process, K).steps)
                except ValueError as error:
                    yield f"{process.name} {process.T} {name} {K}", str(error)


@section
def samples() -> Found:
    """Samples of every sampler, ancestral with every variance."""
    for name in ("fashion-simple", "fashion-hybrid", "fashion-continuous", "fashion-flow", "mixture40"):
        known, denoiser = MODEL.statistics(name), MODEL.denoiser(name)
        for variance in dict(MODEL.options(name)):
            schedule = dpstride.schedules_from(known, variance=variance, decoder="optimal")[6]
            yield f"{name} ancestral {variance}", dpstride.sample(denoiser, schedule, n=3, seed=2).numpy()
        for sampler, eta in (("ddim", 0.0), ("ddim", 0.4), ("ddim", 1.0), ("dpmpp_2m", 0.0)):
            drawn = dpstride.sample(denoiser, schedule, n=3, seed=2, sampler=sampler, eta=eta, batch_size=2)
            yield f"{name} {sampler} {eta}", drawn.numpy()


@section
def scheduler() -> Found:
    """Steps of `DPStrideScheduler` from made-up network outputs, and the files that it saves."""
    for name in ("fashion-simple", "fashion-hybrid"):
        config = json.loads((home_of("folder_of", "zoo.models")(name) / "scheduler/scheduler_config.json").read_text())
        known = MODEL.statistics(name)
        for variance in dict(MODEL.options(name)):
            for sampler, eta in (("ancestral", 0.0), ("ddim", 0.0), ("ddim", 0.7), ("dpmpp_2m", 0.0)):
                schedules = dpstride.schedules_from(known, variance=variance)
                made = dpstride.DPStrideScheduler.from_config(
                    config, schedules=schedules, sampler=sampler, eta=eta, variance=variance
                )
                made.set_timesteps(5)
                generator = torch.Generator().manual_seed(4)
                channels = 1 + (known.model["variance"] == "learned_range")
                x = torch.randn(2, 1, 5, 5, generator=generator)
                states = [x.numpy()]
                for t in made.timesteps:
                    output = torch.randn(2, channels, 5, 5, generator=generator).tanh()
                    x = made.step(output, t, x, generator=generator).prev_sample
                    states.append(x.numpy())
                yield f"{name} {variance} {sampler} {eta}", np.stack(states)


@section
def trajectories() -> Found:
    """Trajectory tables and schedules of both samplers, mixed schedules, the front, and refined times."""
    for name in ("fashion-simple", "fashion-flow", "mixture40"):
        denoiser, known = MODEL.denoiser(name), MODEL.statistics(name)
        found = dpstride.estimate_trajectory(
            denoiser, samples=4, seed=6, batch_size=4, kept=denoiser.process.T, paired=12, probes=2, progress=False
        )
        for part in ("deviation", "second", "coarse", "levels", "amplification", "end_variance"):
            yield f"{name}/{part}", np.asarray(getattr(found, part))
        for sampler in ("ddim", "dpmpp_2m"):
            table = dpstride.trajectory_costs(found, sampler)
            yield f"{name} {sampler}/L", table.L
            yield f"{name} {sampler}/schedules", saved(dpstride.trajectory_schedules(found, sampler))
        elbo = dpstride.elbo_costs(known)
        for weight in (0.0, 3.0):
            for decoder in ("upper", "respaced"):
                mixed = dpstride.mixed_schedules(known, found, weight, decoder=decoder)
                yield f"{name} mixed {weight} {decoder}", saved(mixed)
        front = dpstride.trade_off(elbo, dpstride.trajectory_costs(found), [3, 8])
        yield (
            f"{name} front",
            {str(K): [[each.bpd, each.trajectory_cost, *each.steps] for each in points] for K, points in front.items()},
        )
        if denoiser.process.kind == "continuous":
            for variance in FIXED:
                refined = dpstride.refine_schedule(known, 5, variance=variance)
                yield (
                    f"{name} refined {variance}",
                    [refined.cost_nats, refined.grid_cost_nats, *map(float, refined.schedule.times)],
                )


def saved(schedules: Any) -> Any:
    """A ScheduleSet as its file has it."""
    with tempfile.TemporaryDirectory() as folder:
        schedules.save(Path(folder) / "schedules.json")
        return json.loads((Path(folder) / "schedules.json").read_text(encoding="utf-8"))


@section
def adaptive() -> Found:
    """Adaptive estimates: which indices, what is believed, and the filled statistics' schedules."""
    asked = [("mixture300", variance, decoder) for variance in FIXED for decoder in DECODERS]
    asked += [("fashion-simple", "posterior", "upper"), ("fashion-flow", "upper", "optimal")]
    asked += [("fashion-hybrid", variance, decoder) for variance in LEARNED for decoder in DECODERS]
    asked += [("fashion-hybrid", "optimal", "respaced")]
    for name, variance, decoder in asked:
        known, report = dpstride.estimate_adaptively(
            MODEL.denoiser(name), MODEL.data(name), seed=7, batch_size=SAMPLES, budgets=(4, 9), tolerance=0.05,
            variance=variance, decoder=decoder, max_steps=24, progress=False,
        )  # fmt: skip
        at = f"{name} {variance} {decoder}"
        yield f"{at}/report", report.to_dict()
        yield f"{at}/sentence", report.sentence()
        yield f"{at}/squared error", known.squared_error
        table = dpstride.elbo_costs(known, variance=variance, decoder=decoder)
        solution = dpstride.solve(table, 12)
        yield f"{at}/costs", solution.costs
        yield f"{at}/standard errors", table.standard_errors([solution.path(K) for K in (2, 7, 12)])


@section
def ablation() -> Found:
    """Schedules from few samples, for every variance × decoder."""
    ablate = home_of("ablate", "evaluate.ablation")
    for name, data_range in (("fashion-hybrid", "uint8"), ("mixture40", "uint8"), ("mixture40", "continuous")):
        known = MODEL.statistics(name, data_range=data_range)
        heldout = MODEL.statistics(name, heldout=True, data_range=data_range)
        for variance, decoder in MODEL.options(name):
            options: Any = plain(dpstride.elbo_costs(known, variance=variance, decoder=decoder).options)
            with contextlib.suppress(ImportError):  # in 0.1.0 they were a dict
                options = home_of("CostOptions", "options").from_dict(options)
            found = ablate(known, heldout, options, (3, 8), repeats=2, seed=1)
            yield (
                f"{name} {data_range} {variance} {decoder}",
                as_json([found.sizes, found.bpd, found.unit, found.unit_samples, found.note]),
            )


@section
def solver() -> Found:
    """Random tables, a table of posterior costs, and the same costs as lines."""
    rng = np.random.default_rng(11)
    for T in (1, 2, 9, 70):
        L = np.where(np.tri(T + 1, k=-1, dtype=bool), rng.random((T + 1, T + 1)), np.inf)
        solution = dpstride.solve(L)
        yield f"random {T}/costs", solution.costs
        yield f"random {T}/paths", [list(map(int, solution.path(K))) for K in range(1, T + 1)]
    process = dpstride.ForwardProcess.cosine(600)
    error = np.append(0.0, np.cumsum(rng.random(600)))
    decoder = 5.0 + 40.0 * rng.random(601)
    snr = process.snr
    with np.errstate(invalid="ignore"):
        L = 0.5 * (snr[None, :] - snr[:, None]) * error[:, None]
    L = np.where(np.tri(601, k=-1, dtype=bool), L, np.inf)
    L[1:, 0] = decoder[1:]
    for budget in (5, 64, 600):
        solution = dpstride.solve(L, budget)
        yield f"posterior {budget}/costs", solution.costs
        yield f"posterior {budget}/path", list(map(int, solution.path(budget)))
    lines = dpstride.solve_lines(np.append(0.0, snr[1:]), error, decoder, 64)
    yield "lines/costs", lines.costs
    yield "lines/path", list(map(int, lines.path(64)))


@section
def distances() -> Found:
    """Fréchet and kernel distances of made-up features."""
    rng = np.random.default_rng(12)
    a, b = rng.standard_normal((300, 24)), 1.1 * rng.standard_normal((280, 24)) + 0.1
    yield "frechet", dpstride.frechet_distance(a, b)
    for size in (None, 50):
        kernel = dpstride.kernel_distance(a, b, subset_size=size)
        yield f"kernel {size}", repr(kernel)


@section
def training() -> Found:
    """Losses of every training objective, and their gradients, with a network of one layer."""
    losses_of = home_of("sample_losses", "training.objectives", "training.losses")
    generator = torch.Generator().manual_seed(13)
    x0 = (torch.randint(0, 256, (6, 2, 3, 3), generator=generator).double() / 127.5 - 1.0).float()
    eps = torch.randn(6, 2, 3, 3, generator=generator)
    weight = torch.randn(4, 2, generator=generator)
    cosine, flow = dpstride.ForwardProcess.cosine(50), dpstride.ForwardProcess.rectified_flow(50)
    for objective in ("simple", "hybrid", "vlb", "continuous", "flow"):
        continuous, learned = objective in ("continuous", "flow"), objective in ("hybrid", "vlb")
        process = flow if continuous else cosine
        t = torch.tensor([0.02, 0.2, 0.4, 0.7, 0.9, 0.97]) if continuous else torch.tensor([1, 1, 2, 20, 44, 50])
        used = (weight if learned else weight[:2]).clone().requires_grad_()

        def network(x: torch.Tensor, time: torch.Tensor, used: torch.Tensor = used) -> torch.Tensor:
            return torch.einsum("oc,bchw->bohw", used, x) * (1.0 + 1e-3 * time.reshape(-1, 1, 1, 1))

        losses = losses_of(network, process, objective, x0, t, eps)
        losses.sum().backward()
        assert used.grad is not None
        yield f"{objective}/losses", losses.detach().numpy()
        yield f"{objective}/gradient", used.grad.numpy()


@section
def find() -> Found:
    """Files and page data of a small `find` and `study`, run from the command line."""
    small = ["--seed", "3", "-q", "--samples", "12", "--heldout-samples", "10"]
    runs = {
        "elbo": ["find", "fashion-hybrid", "fashion-test", "--budgets", "4,9", "--tolerance", "0.1", *small],
        "mixture": ["find", f"{__name__ if __name__ != '__main__' else 'same_numbers'}:small_mixture", "mixture.npy",
                    "--every-step", "--variance", "optimal", "--decoder", "respaced", *small],
        "trajectory": ["find", "same_numbers:small_mixture", "mixture.npy", "--objective", "trajectory",
                       "--sampler", "dpmpp_2m", "--trajectories", "4", "--max-budget", "12", *small],
        "mixed": ["find", "same_numbers:small_mixture", "mixture.npy", "--objective", "mixed", "--lambda", "2",
                  "--trajectories", "4", *small],
        "study": ["study", "same_numbers:small_mixture", "mixture.npy", "--features", "none", "-k", "4", "-q",
                  "--samples", "4", "--choosing-samples", "16", "--heldout-samples", "12", "--seed", "3"],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "mixture.npy", mixture_data(64, seed=2).numpy())
        here = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
        for name, arguments in runs.items():
            command = [sys.executable, "-m", "dpstride", *arguments, "-o", name]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            yield f"{name}/exit code", done.returncode
            yield f"{name}/printed", done.stdout if done.returncode == 0 else done.stdout + done.stderr
            for path in sorted((Path(folder) / name).rglob("*")):
                at = f"{name}/{path.relative_to(Path(folder) / name)}"
                if path.suffix == ".json":
                    yield at, said(json.loads(path.read_text(encoding="utf-8")))
                elif path.suffix == ".txt" and path.stem != "command":
                    yield at, path.read_text(encoding="utf-8")
                elif path.suffix == ".html":
                    yield at, page_data(path.read_text(encoding="utf-8"))
                elif path.is_file():
                    yield f"{at} exists", True


def small_mixture() -> Any:
    """The exact denoiser on a short grid, for the command line."""
    return mixture_denoiser(40)


def said(document: Any) -> Any:
    """A JSON document without times, places and versions."""
    if isinstance(document, dict):
        return {key: said(value) for key, value in document.items() if key not in UNSAID}
    return [said(value) for value in document] if isinstance(document, list) else document


def page_data(html: str) -> Any:
    """The data in a page, with packed arrays unpacked."""
    import base64
    import re
    import zlib

    parts = []
    for text in re.findall(r'<script[^>]*type="application/[^"]*"[^>]*>(.*?)</script>', html, re.DOTALL):
        try:
            parts.append(said(json.loads(text)))
        except ValueError:
            raw = base64.b64decode(text)
            for bits in (-15, 15, 31):
                try:
                    parts.append(said(json.loads(zlib.decompress(raw, bits))))
                    break
                except (zlib.error, ValueError):
                    continue
            else:
                parts.append(text)
    return parts


# --- recording and comparing -------------------------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """Tuples as lists and keys as strings, as in JSON."""
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def record(names: list[str]) -> dict[str, Any]:
    """All results of these sections, by name; a section that fails is recorded under its own name."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for key, value in SECTIONS[name]():
                    assert f"{name}: {key}" not in found, key
                    found[f"{name}: {key}"] = value if isinstance(value, np.ndarray) else as_json(value)
        except Exception:
            found[f"{name}: failed"] = traceback.format_exc()
            print(traceback.format_exc(), file=sys.stderr)
    return found


def write(path: Path, found: dict[str, Any]) -> None:
    """Write one compressed file: arrays unchanged, everything else as JSON."""
    arrays = {f"{index:05d}": value for index, value in enumerate(found.values()) if isinstance(value, np.ndarray)}
    rest = [
        [
            key,
            f"{index:05d}" if isinstance(value, np.ndarray) else None,
            None if isinstance(value, np.ndarray) else value,
        ]
        for index, (key, value) in enumerate(found.items())
    ]
    with path.open("wb") as file:
        np.savez_compressed(file, index=np.frombuffer(json.dumps(rest).encode(), dtype=np.uint8), **arrays)


def read(path: Path) -> dict[str, Any]:
    """Read a file written by `write`."""
    with np.load(path) as file:
        index = json.loads(file["index"].tobytes())
        return {key: value if array is None else file[array] for key, array, value in index}


def differences(before: Any, after: Any, at: str, loose: float) -> Iterator[str]:
    """Each place where two values differ, in words."""
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        if before.shape != after.shape or before.dtype != after.dtype:
            yield f"{at}: {before.dtype}{before.shape} became {after.dtype}{after.shape}"
        elif before.tobytes() != after.tobytes():
            numeric = before.dtype.kind == "f"
            if not np.array_equal(before, after, equal_nan=numeric):
                apart = before != after
                if numeric:
                    apart &= ~(np.isnan(before) & np.isnan(after))
                    with np.errstate(all="ignore"):
                        relative = np.abs(after - before) / np.maximum(np.abs(before), 1e-300)
                    worst = float(np.nanmax(np.where(apart, relative, 0.0)))
                    if worst <= loose:
                        return
                    yield f"{at}: {int(apart.sum())} of {before.size} numbers differ, by {worst:.3g} relative at most"
                else:
                    yield f"{at}: {int(apart.sum())} of {before.size} numbers differ"
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            if key not in after:
                yield f"{at}.{key}: is gone"
            elif key not in before:
                yield f"{at}.{key}: is new"
            else:
                yield from differences(before[key], after[key], f"{at}.{key}", loose)
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{at}: {len(before)} entries became {len(after)}"
        else:
            for index, (one, other) in enumerate(zip(before, after, strict=True)):
                yield from differences(one, other, f"{at}[{index}]", loose)
    elif isinstance(before, float) and isinstance(after, float):
        same = before == after or (math.isnan(before) and math.isnan(after))
        if not same and not abs(after - before) <= loose * abs(before):
            yield f"{at}: {before!r} became {after!r}"
    elif type(before) is not type(after) or before != after:
        yield f"{at}: {before!r:.300} became {after!r:.300}"


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """All differences, in words."""
    found: list[str] = []
    for key in {**before, **after}:
        loose = 1e-12 if any(key.startswith(prefix) for prefix in LOOSE) else 0.0
        if key not in after:
            found.append(f"{key}: is gone")
        elif key not in before:
            found.append(f"{key}: is new")
        else:
            found += list(differences(before[key], after[key], key, loose))[:20]
    return found


def main() -> int:
    """Parse arguments, record, and compare if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare", "list"))
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--only", action="append", choices=tuple(SECTIONS), help="a section; may be repeated")
    asked = parser.parse_args()
    if asked.what == "list" or asked.file is None:
        for name, function in SECTIONS.items():
            print(f"{name:14}{function.__doc__}")
        return 0 if asked.what == "list" else 2
    print(f"numbers of {dpstride.__file__}", file=sys.stderr)
    names = asked.only or list(SECTIONS)
    found = record(names)
    if asked.what == "record":
        write(asked.file, found)
        failed = [key for key in found if key.endswith(": failed")]
        print(f"{len(found):,} entries in {asked.file}" + "".join(f"\n{key}" for key in failed))
        return 1 if failed else 0
    before = {key: value for key, value in read(asked.file).items() if key.split(":")[0] in names}
    after = json_round_trip(found)
    places = compare(before, after)
    print("\n".join(places) or f"The same: {len(found):,} entries.")
    return 1 if places else 0


def json_round_trip(found: dict[str, Any]) -> dict[str, Any]:
    """The values as `read` would return them."""
    return {
        key: value if isinstance(value, np.ndarray) else json.loads(json.dumps(value)) for key, value in found.items()
    }


if __name__ == "__main__":
    sys.modules["same_numbers"] = sys.modules["__main__"]
    sys.exit(main())
