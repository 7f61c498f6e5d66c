"""Stage 7. Monte Carlo ablation: how much schedules found from few samples lose on held-out data, without a network pass.

Statistics store the costs of each sample (or block of samples), so a smaller experiment is a weighted mean over some of
them. Its schedules are scored on the same held-out statistics as those of all samples, with the numbers fitted in the
smaller experiment, if any.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..objectives.engine import ElboEngine, Units
from ..objectives.step_costs import StepCosts
from ..objectives.weighted import WeightedTables
from ..options import CostOptions
from ..runs.bars import progress_bar
from ..runs.number_cache import NumberCache
from ..solver import solve
from ..statistics.artefact import Statistics
from ..statistics.interpolate import smoothed

Array = npt.NDArray[np.float64]
LN2 = math.log(2.0)
SMALLEST, GROWTH, REPEATS = 8, 4, 8


@dataclass(frozen=True)
class Ablation:
    """Held-out bits/dim of schedules found from few samples: ``bpd[size][repeat][budget]``.

    The last size is all samples, which is one experiment; every other size has several, drawn at random without
    replacement. ``unit`` is "sample", or "block" if only sums over blocks of ``unit_samples`` samples are stored.
    """

    sizes: tuple[int, ...]
    budgets: tuple[int, ...]
    bpd: tuple[tuple[tuple[float, ...], ...], ...]
    unit: str
    unit_samples: float
    note: str = ""

    def excess(self, size: int, budget: int) -> list[float]:
        """Bits/dim above the schedule of all samples, for each repeat."""
        at, column = self.sizes.index(size), self.budgets.index(budget)
        reference = self.bpd[-1][0][column]
        return [repeat[column] - reference for repeat in self.bpd[at]]


def ablate(
    statistics: Statistics,
    heldout: Statistics,
    options: CostOptions,
    budgets: Sequence[int],
    *,
    repeats: int = REPEATS,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> Ablation:
    """Schedules from 8, 32, 128, … samples of ``statistics``, scored on ``heldout``.

    Args:
        statistics: those of the choosing data, with the costs of each sample.
        heldout: statistics of other data on the same grid.
        options: cost options with which paths are chosen and scored.
        budgets: numbers of steps to report.
        repeats: experiments of each size but the last.
        seed: random seed of the draws.
        checkpoint: file that stores the result of each experiment, which takes seconds at T = 4000.
        progress: show a progress bar (only ever on a terminal).
    """
    heldout.check_process(statistics.process)
    statistics = smoothed(statistics)  # as when all samples choose; smaller draws add noise of their own
    costs = weighted_tables(statistics, options)
    units = costs.units
    rng = np.random.default_rng(seed)
    experiments = [(count, _draws(rng, units.sizes, count, repeats)) for count in _unit_counts(units)]
    identity = [_facts_of(each) for each in (statistics, heldout)] + [options.to_dict(), list(budgets), repeats, seed]
    kept = NumberCache(checkpoint, identity)

    def scores(weights: Array) -> list[float]:
        L, pairs, fitted = costs.table(weights)
        solution = solve(
            StepCosts(process=statistics.process, dims=statistics.dims, table=L, pairs=pairs), max(budgets)
        )
        scored = ElboEngine(heldout, options, fitted)
        return [scored.path_nats(solution.path(budget)) / (heldout.dims * LN2) for budget in budgets]

    found = []
    total = sum(len(draws) for _, draws in experiments)
    with progress_bar(total, "ablation", "experiment", progress) as bar:
        for count, draws in experiments:
            repeated = []
            for repeat, weights in enumerate(draws):
                repeated.append(tuple(kept.numbers(f"{count} {repeat}", partial(scores, weights))))
                bar.update()
            found.append(tuple(repeated))
    return Ablation(
        sizes=tuple(round(count * statistics.samples / units.sizes.size) for count, _ in experiments),
        budgets=tuple(int(budget) for budget in budgets),
        bpd=tuple(found),
        unit="sample" if units.by_sample else "block",
        unit_samples=statistics.samples / units.sizes.size,
        note=_note(costs.engine),
    )


def _facts_of(statistics: Statistics) -> dict[str, Any]:
    """Facts by which statistics are recognised."""
    digest = hashlib.sha256(np.ascontiguousarray(statistics.squared_error).data).hexdigest()[:16]
    return {"model": statistics.model, "data": statistics.data, "seed": statistics.seed, "squared_error": digest}


def weighted_tables(statistics: Statistics, options: CostOptions) -> WeightedTables:
    """Costs of smaller experiments; the cost of a decoder of two steps is not subsampled, so it needs no blocks."""
    engine, process = ElboEngine(statistics, options), statistics.process
    upper = all(engine.decoder.is_upper(process, t) for t in range(1, process.T + 1))
    by_sample = not engine.variance.learned and (not engine.discretised or bool(engine.decoder.couples) or upper)
    return WeightedTables(engine, Units(statistics, by_sample))


def _note(engine: ElboEngine) -> str:
    """A note on the parts that do not come from the smaller experiment."""
    notes = []
    if engine.decoder.couples:
        notes.append("The decoder's cost is that of all samples; only the steps above it are subsampled.")
    for part in (engine.decoder, engine.variance):
        if part.fit is not None and part.fit.from_errors(np.zeros(0), engine.statistics.data_range) is None:
            notes.append(part.fit.note)
    return " ".join(notes)


def _unit_counts(units: Units) -> list[int]:
    """Numbers of units nearest to 8, 32, 128, … samples, and all."""
    samples, count = units.statistics.samples, units.sizes.size
    counts, wanted = [], float(SMALLEST)
    while wanted < samples:
        counts.append(max(1, round(wanted / (samples / count))))
        wanted *= GROWTH
    return [*sorted({each for each in counts if each < count}), count]


def _draws(rng: np.random.Generator, sizes: Array, count: int, repeats: int) -> list[Array]:
    """Weights of the units in each experiment with ``count`` of them; units have ``sizes`` samples."""
    draws = []
    for _ in range(repeats if count < sizes.size else 1):
        weights = np.zeros(sizes.size)
        chosen = rng.choice(sizes.size, count, replace=False)
        weights[chosen] = sizes[chosen] / sizes[chosen].sum()
        draws.append(weights)
    return draws
