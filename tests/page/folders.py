"""Results folders for the page: a real run of the demo, and statistics by formula where a run would take too long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstride import ForwardProcess, ScheduleSet, Statistics, schedules_from
from dpstride.cli import _run
from dpstride.evaluate.comparison import Comparison, compare
from dpstride.objectives.elbo import elbo_costs
from dpstride.report.page.saved import Saved
from dpstride.statistics.artefact import DataRange

T = 60
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


def run_demo(folder: Path) -> Path:
    """What `dpstride demo mixture` leaves, on a shorter process so that it takes a second."""
    from dpstride.zoo import mixture

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "mixture_denoiser", lambda steps=T, make=mixture.mixture_denoiser: make(steps))
        assert _run(["demo", "mixture", "-o", str(folder), "-q"]) == 0
    return folder


def formula_statistics(process: ForwardProcess, seed: int, samples: int = 4, dims: int = 48) -> Statistics:
    """Errors of a denoiser that knows data of variance 0.25, with noise on top; continuous data."""
    rng = np.random.default_rng(seed)
    snr = np.where(np.isfinite(process.snr), process.snr, 0.0)
    ideal = dims * 0.25 / (1.0 + 0.25 * snr)
    return Statistics(
        process=process,
        dims=dims,
        data_range=DataRange(None),
        seed=seed,
        model={"name": "by formula", "fingerprint": "0" * 16, "variance": "posterior", "predicts": "x0"},
        data={"fingerprint": f"{seed:016x}", "samples": samples},
        squared_error=ideal[:, None] * np.exp(0.05 * rng.normal(size=(process.T + 1, samples))),
        data_square=np.full(samples, 0.25 * dims),
    )


def save_formula(folder: Path, process: ForwardProcess, decoder: Any = "optimal") -> Path:
    """A folder as `find` leaves it, from statistics by formula."""
    folder.mkdir()
    schedules = schedules_from(formula_statistics(process, 0), decoder=decoder)
    heldout = formula_statistics(process, 1)
    schedules.save(folder / "schedules.json")
    heldout.save(folder / "heldout.safetensors")
    compare(schedules, heldout).save(folder / "comparison.json")
    return folder


def long_grid(folder: Path, steps: int = 4000) -> Saved:
    """A grid of 4,000 steps with a path for every budget (placed by a power law, for solving takes long) and real costs."""
    folder.mkdir()
    process = ForwardProcess.cosine(steps)
    costs = elbo_costs(formula_statistics(process, 1, samples=2), decoder="optimal")
    entries: dict[int, Any] = {}
    for K in range(1, steps + 1):
        wanted = np.rint(steps * (np.arange(K + 1) / K) ** 1.5).astype(int) - np.arange(K + 1)
        path = np.maximum.accumulate(wanted)[::-1] + np.arange(K + 1)[::-1]
        entries[K] = (tuple(path.tolist()), None, None)
    bpd = {K: costs.bpd(float(costs.step_nats(np.array(path)).sum())) for K, (path, _, _) in entries.items()}
    rng = np.random.default_rng(0)
    curves = {
        stride: {K: (value + shift, float(rng.uniform(0.01, 0.02))) for K, value in bpd.items()}
        for stride, shift in (("even", 0.5), ("quadratic", 0.25), ("dp", 0.0))
    }
    comparison = Comparison(
        T=steps,
        curves=curves,
        chosen=curves["dp"],
        model={"name": "by formula"},
        options=dict(costs.options),
        samples={"chosen": 2, "heldout": 2},
        seeds={"chosen": 0, "heldout": 1},
    )
    schedules = ScheduleSet(process, entries, options=costs.options, fitted=costs.fitted)
    saved = Saved(folder, schedules, comparison, costs, {}, None, None, None)
    saved.check()
    return saved


def rewrite(path: Path, **changes: Any) -> None:
    """Change entries of a JSON file; a dict is merged into the one that is there."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for name, value in changes.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) and name in document else value
    path.write_text(json.dumps(document), encoding="utf-8")
