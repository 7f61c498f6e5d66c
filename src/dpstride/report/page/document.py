"""The page's data: one JSON document, a few hundred kilobytes even for the 4,000 paths of a grid of 4,000.

Paths are bit masks, each but the first as its difference from the one before, which is mostly 0. Instead of the whole
table of costs there are those of all steps on some path, and a subsampled table for the map. Numbers that a reader may
copy or compare are float64. The page itself applies the rules of the answer (`Comparison.enough`), for any tolerance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...evaluate.comparison import NEGLIGIBLE, STRIDES, VISIBLE
from ...evaluate.purpose import caveat
from ...integrations.export import sigmas
from ...objectives.step_costs import CostTable
from ...paths import finite
from ...process import ForwardProcess
from ...reading.text import printable
from ...schedule import Schedule
from ...study.plan import choosing_steps
from ...study.results import Distance, StudyResults
from ..front import Front
from ..tables import kernel_name
from ..text import NAMES
from .pack import pack, smallest_unsigned
from .pictures import sample_groups
from .saved import Saved

Path = npt.NDArray[np.int64]  # grid indices
FORMAT = "dpstride-page-1"
HEAT_POINTS = 208  # grid indices at which the table is shown
HEAT_FLOOR = 1e-5  # bits/dim, below which costs are shown as equal
MOST_BYTES = 2_200_000  # of the document without samples; the page must stay below 3 MB
EVERY_BUDGET = 256  # budgets up to here are always kept
TEXT = 400  # characters of foreign text


def page_document(saved: Saved, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Everything on the page, ready for JSON; if it is too long, budgets above 256 are thinned until it fits."""
    budgets = saved.schedules.budgets
    while True:
        document = _document(saved, budgets)
        if len(json.dumps(document)) <= most_bytes or budgets[-1] <= EVERY_BUDGET:
            break
        above = [K for K in budgets if K > EVERY_BUDGET]
        kept = above[1::2] if len(above) > 2 else above[-1:]
        if kept == above:
            break
        budgets = [K for K in budgets if K <= EVERY_BUDGET] + sorted({*kept, budgets[-1]})
    return {**document, "samples": sample_groups(saved.folder, saved.study)}


def _document(saved: Saved, budgets: Sequence[int]) -> dict[str, Any]:
    comparison, schedules, study = saved.comparison, saved.schedules, saved.study
    process = schedules.process
    paths = [np.array(schedules.entries[K][0], dtype=np.int64) for K in budgets]
    return {
        "format": FORMAT,
        "title": printable(comparison.model["name"], TEXT),
        "process": facts_of(process),
        "answer": None if saved.answer is None else printable(saved.answer, 2 * TEXT),
        "caveat": caveat(schedules.options),
        "dropped": len(schedules.budgets) - len(budgets),
        "negligible": NEGLIGIBLE,
        "visible": VISIBLE,
        "raw": comparison.raw,
        "names": NAMES,
        "budgets": pack(budgets, "u4"),
        "curves": {stride: columns(comparison.curves[stride], budgets) for stride in STRIDES},
        "chosen": columns(comparison.chosen, budgets) if comparison.chosen.keys() >= set(budgets) else None,
        "tableBudgets": [K for K in comparison.table_budgets if K in budgets],
        "grid": noise_grid(process),
        "paths": path_masks(paths, process.T),
        "steps": None if saved.costs is None else _steps(saved.costs, paths),
        "heat": None if saved.costs is None else _heat(saved.costs),
        "facts": _facts(saved),
        "warnings": [printable(text, 2 * TEXT) for text in (comparison.warnings if study is None else study.notes)],
        "study": None if study is None else _study(study),
        "front": None if saved.front is None else _front(saved.front),
        "provenance": _provenance(saved),
        "command": None if saved.run is None else printable(saved.run.command, 10 * TEXT),
    }


def columns(curve: Mapping[int, tuple[float, float]], budgets: Sequence[int]) -> dict[str, Any]:
    """A curve of scores and standard errors, at ``budgets``."""
    return {
        "bpd": pack([curve[K][0] for K in budgets], "f8"),
        "error": pack([curve[K][1] for K in budgets], "f4"),
    }


# --- grid and paths ---------------------------------------------------------------------------------------------------


def facts_of(process: ForwardProcess) -> dict[str, Any]:
    """Names and sizes of a process."""
    return {"name": printable(process.name, TEXT), "kind": process.kind, "T": process.T, "originT": process.origin_T}


def noise_grid(process: ForwardProcess) -> dict[str, Any]:
    """Per index 0 … T: time, log-SNR, the training step of a discrete process, and sigma as in `export.sigmas`."""
    noise = np.full(process.T + 1, np.inf)  # where f = 0
    noise[0] = 0.0
    flow = process.name == "rectified_flow"
    last = process.T if flow else int(np.flatnonzero(process.f > 0.0)[-1])
    if last > 0:
        noise[1 : last + 1] = sigmas(Schedule(process, tuple(range(last, -1, -1))))[::-1]
    return {
        "times": pack(process.times, "f8"),
        "logSnr": pack(process.log_snr, "f4"),
        "sigmas": pack(noise, "f8"),
        "origin": pack(process.origin, "u4") if process.kind == "discrete" else None,
        "flow": flow,
    }


def path_masks(paths: Sequence[Path], T: int) -> dict[str, Any]:
    """Paths as masks: bit i is set if the path visits grid index i; each mask is stored as its XOR with the one before."""
    visited = np.zeros((len(paths), T + 1), dtype=np.uint8)
    for row, path in zip(visited, paths, strict=True):
        row[path] = 1
    masks = np.packbits(visited, axis=1, bitorder="little")
    masks[1:] ^= masks[:-1].copy()
    return {"bytes": masks.shape[1], "masks": pack(masks, "u1")}


# --- costs ------------------------------------------------------------------------------------------------------------


def _steps(costs: CostTable, paths: Sequence[Path]) -> dict[str, Any]:
    """Bits/dim of every step t → s > 0 on some path, sorted by t and then t − s, and of each path's last step."""
    unit = costs.dims * math.log(2.0)
    taken = np.zeros((costs.T + 1, costs.T + 1), dtype=bool)
    last, prior = [], []
    for path in paths:
        taken[path[:-2], path[1:-1]] = True
        last.append(float(costs.step_nats(path[-3:] if len(path) > 2 else path)[-1]) / unit)
        prior.append(costs.bpd(0.0, int(path[0])))
    t, s = np.nonzero(taken)
    order = np.lexsort((t - s, t))
    t, s = t[order], s[order]
    return {
        "counts": pack(np.bincount(t, minlength=costs.T + 1), smallest_unsigned(costs.T)),
        "gaps": pack(t - s, smallest_unsigned(costs.T)),
        "bpd": pack(costs.L[t, s] / unit, "f4"),
        "last": pack(last, "f8"),
        "prior": pack(prior, "f8"),
    }


def _heat(costs: CostTable) -> dict[str, Any]:
    """The table at a few hundred indices, even in index and in log-SNR: log10 bits/dim in 16 bits, 0 if unknown.

    Rows are t = indices[i], and columns s = indices[j] for j < i; indices[0] is 0.
    """
    indices = [0, *choosing_steps(costs.process, min(HEAT_POINTS, costs.T))]
    cells = [(indices[i], indices[j]) for i in range(1, len(indices)) for j in range(i)]
    t, s = np.array(cells).T
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.log10(costs.L[t, s] / (costs.dims * math.log(2.0)))
    known = np.isfinite(values)
    low, high = _span(values[known])
    levels = np.zeros(len(cells), dtype=np.int64)
    levels[known] = 1 + np.rint((np.clip(values[known], low, high) - low) / (high - low) * 65534)
    return {
        "indices": pack(indices, "u4"),
        "levels": pack(levels, "u2"),
        "low": low,
        "high": high,
    }


def _span(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    if not values.size:
        return 0.0, 1.0
    high = float(values.max())
    low = min(max(float(values.min()), math.log10(HEAT_FLOOR)), high - 1.0)
    return low, high


# --- words ------------------------------------------------------------------------------------------------------------


def told(rows: Iterable[Sequence[Any]]) -> list[list[str]]:
    """Pairs of name and value, as text safe to show; those without a value are left out."""
    return [[name, printable(value, 2 * TEXT)] for name, value in rows if value is not None]


def _facts(saved: Saved) -> list[list[str]]:
    """The most important facts: model, data, samples used, uncertainty."""
    comparison, process, run = saved.comparison, saved.schedules.process, saved.run
    model, options, samples = comparison.model, comparison.options, comparison.samples
    predicts = f", predicts {model['predicts']}" if "predicts" in model else ""
    data, heldout = (f" of {run.data}", f": {run.heldout}") if run else ("", "")
    facts = [
        ["Model", f"{model['name']}: {process.name}, T = {process.T:,}{predicts}"],
        ["Costs", f"{options['variance']} variance, {options.get('decoder', '?')} decoder"],
        ["Paths chosen on", f"{samples['chosen']:,} samples{data}"],
        ["Scored on", f"{samples['heldout']:,} other samples{heldout}; ± is one standard error over them"],
    ]
    if saved.adaptive is not None:
        facts.append(["Network evaluations and regret", saved.adaptive.sentence()])
    return told(facts)


def _provenance(saved: Saved) -> list[list[str]]:
    comparison, schedules, run = saved.comparison, saved.schedules, saved.run
    chosen, version = schedules.provenance.get("data"), schedules.provenance.get("version")
    rows: list[tuple[str, Any]] = [
        ("Model", comparison.model.get("name")),
        ("Model as named", None if run is None else run.model),
        ("Model fingerprint", comparison.model.get("fingerprint")),
        ("Process fingerprint", schedules.process.fingerprint),
        ("Choosing data", None if run is None else run.data),
        ("Choosing data fingerprint", chosen.get("fingerprint") if isinstance(chosen, Mapping) else None),
        ("Held-out data", None if run is None else run.heldout),
        ("Held-out data fingerprint", saved.heldout.get("fingerprint")),
        ("Seeds", f"{comparison.seeds.get('chosen')} (choosing), {comparison.seeds.get('heldout')} (held-out)"),
        ("Options", ", ".join(f"{name} {value}" for name, value in comparison.options.items())),
        ("Clipping of x̂₀", comparison.model.get("clip") or "none"),
        ("Versions", None if run is None else ", ".join(f"{name} {version}" for name, version in run.versions.items())),
        ("Statistics written by", None if version is None else f"dpstride {version}"),
    ]
    return told(rows)


# --- what only the mixed objective has ---------------------------------------------------------------------------------


def _front(front: Front) -> dict[str, Any]:
    """Per budget, the corners of its trade-off by ascending bits/dim; ``taken`` is the one that minimises for the chosen λ."""
    return {
        "weight": front.weight,
        "budgets": [
            {
                "budget": K,
                "points": [[point.heldout_bpd, point.trajectory_cost, point.low, point.high] for point in points],
                "taken": next((i for i, point in enumerate(points) if point.takes(front.weight)), None),
            }
            for K, points in front.budgets.items()
        ],
    }


# --- what only a study has --------------------------------------------------------------------------------------------


def _study(study: StudyResults) -> dict[str, Any]:
    ablation = study.ablation
    several = ablation is not None and len(ablation.sizes) > 1
    return {
        "ablation": _ablation(study) if several else None,
        "distances": _distances(study) if study.distances else None,
        "sentence": None if study.sentence is None else printable(study.sentence, 2 * TEXT),
    }


def _ablation(study: StudyResults) -> dict[str, Any]:
    ablation = study.ablation
    assert ablation is not None
    return {
        "sizes": list(ablation.sizes[:-1]),
        "budgets": list(ablation.budgets),
        "all": ablation.sizes[-1],
        "draws": len(ablation.bpd[0]),
        # [budget][size]: mean, least and most bits/dim above the schedule of all samples
        "excess": [
            [_spread(ablation.excess(size, budget)) for size in ablation.sizes[:-1]] for budget in ablation.budgets
        ],
    }


def _spread(values: Sequence[float]) -> list[float | None]:
    return [finite(number) for number in (sum(values) / len(values), min(values), max(values))]


def _distances(study: StudyResults) -> dict[str, Any]:
    reference = study.data["reference"]
    return {
        "frechet": printable(study.distance_name, TEXT),
        "kernel": printable(kernel_name(study), TEXT),
        "real": int(reference["images"]),
        "sampler": printable(study.settings["sampler"], TEXT),
        "points": [_point(each) for each in study.distances],
        "floor": None if study.floor is None else _point(study.floor),
    }


def _point(distance: Distance) -> dict[str, Any]:
    return {
        "stride": printable(distance.stride, TEXT),
        "budget": distance.budget,
        "samples": distance.samples,
        "frechet": finite(distance.frechet),
        "kernel": finite(distance.kernel),
        "kernelError": finite(distance.kernel_standard_error),
        "bpd": finite(distance.bpd),
    }
