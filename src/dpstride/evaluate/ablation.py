"""Stage 7. Monte Carlo ablation: what schedules found from few samples lose on held-out data, without a network pass.

Statistics keep what each sample (or block of samples) costs, so a smaller experiment is a weighted mean over some of
them. Its schedules are scored on the same held-out statistics as those of all samples, with the fitted numbers of the
smaller experiment where there are any.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from ..costs.decoder import decoder_nats_at, decoder_variance, respaced_row
from ..costs.elbo import elbo_costs
from ..costs.steps import LEARNED, fixed_step, step_row
from ..costs.units import learned_blocks, prior_nats_at, unit_terms
from ..fitted import Fitted
from ..objectives.step_costs import StepCosts
from ..runs.number_cache import NumberCache
from ..solver import solve
from ..statistics.artefact import Statistics
from ..statistics.decoder import gaussian_nats

Array = npt.NDArray[np.float64]
LN2 = math.log(2.0)
SMALLEST, GROWTH, REPEATS = 8, 4, 8


@dataclass(frozen=True)
class Ablation:
    """Held-out bits/dim of schedules found from few samples: ``bpd[size][repeat][budget]``.

    The last size is all samples, which is one experiment; of every other size there are several, drawn at random without
    replacement. ``unit`` is "sample", or "block" where only sums over blocks of ``unit_samples`` samples are kept.
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
    options: Mapping[str, Any],
    budgets: Sequence[int],
    repeats: int = REPEATS,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> Ablation:
    """Schedules from 8, 32, 128, … samples of ``statistics``, scored on ``heldout``.

    Args:
        statistics: those that chose the paths, with what each sample costs.
        heldout: statistics of other data on the same grid.
        options: variance, decoder and cdf, as `StepCosts.options` or `ScheduleSet.options` have them.
        budgets: numbers of steps to report.
        repeats: experiments of each size but the last.
        seed: of the draws.
        checkpoint: file that keeps what each experiment gave: at T = 4000 one takes seconds.
        progress: show a progress bar (only ever on a terminal).
    """
    heldout.check_process(statistics.process)
    parts = _Parts(statistics, options)
    rng = np.random.default_rng(seed)
    experiments = [(count, _draws(rng, parts.sizes, count, repeats)) for count in parts.unit_counts()]
    identity = [_told(each) for each in (statistics, heldout)] + [dict(options), list(budgets), repeats, seed]
    kept = NumberCache(checkpoint, identity)

    def scores(weights: Array) -> list[float]:
        table, fitted = parts.table(weights)
        solution = solve(table, max(budgets))
        return [_score(heldout, solution.path(budget), options, fitted) for budget in budgets]

    found = []
    total = sum(len(draws) for _, draws in experiments)
    with tqdm(total=total, desc="ablation", unit="experiment", disable=None if progress else True) as bar:
        for count, draws in experiments:
            repeated = []
            for repeat, weights in enumerate(draws):
                repeated.append(tuple(kept.numbers(f"{count} {repeat}", partial(scores, weights))))
                bar.update()
            found.append(tuple(repeated))
    return Ablation(
        sizes=tuple(round(count * statistics.samples / parts.units) for count, _ in experiments),
        budgets=tuple(int(budget) for budget in budgets),
        bpd=tuple(found),
        unit="sample" if parts.by_sample else "block",
        unit_samples=statistics.samples / parts.units,
        note=parts.note,
    )


def _told(statistics: Statistics) -> dict[str, Any]:
    """By which statistics are known again."""
    digest = hashlib.sha256(np.ascontiguousarray(statistics.squared_error).data).hexdigest()[:16]
    return {"model": statistics.model, "data": statistics.data, "seed": statistics.seed, "squared_error": digest}


def _draws(rng: np.random.Generator, sizes: Array, count: int, repeats: int) -> list[Array]:
    """Weights of the units in each experiment with ``count`` of them; units have ``sizes`` samples."""
    draws = []
    for _ in range(repeats if count < sizes.size else 1):
        weights = np.zeros(sizes.size)
        chosen = rng.choice(sizes.size, count, replace=False)
        weights[chosen] = sizes[chosen] / sizes[chosen].sum()
        draws.append(weights)
    return draws


class _Parts:
    """Costs by unit, and the table of any weighted mean of units."""

    def __init__(self, statistics: Statistics, options: Mapping[str, Any]) -> None:
        self.statistics, self.options = statistics, options
        self.learned = options["variance"] in LEARNED
        discretised = statistics.data_range.levels is not None
        self.by_sample = not self.learned and (not discretised or options["decoder"] in ("upper", "respaced"))
        blocks = np.arange(statistics.samples) if self.by_sample else statistics.block_of_sample
        self.first = np.searchsorted(blocks, np.arange(blocks[-1] + 1))
        self.sizes = np.bincount(blocks).astype(np.float64)
        self.units, self.shares = self.sizes.size, self.sizes / statistics.samples
        notes = []
        if options["decoder"] == "respaced":
            notes.append("The decoder's cost is that of all samples; only the steps above it are subsampled.")
        elif options["decoder"] == "optimal" and discretised:
            notes.append("The decoder's variance is that fitted on all samples.")
        if options["variance"] == "learned_optimal":
            notes.append("The factors of the learned variance are those fitted on all samples.")
        self.note = " ".join(notes)

    def unit_counts(self) -> list[int]:
        """Numbers of units nearest to 8, 32, 128, … samples, and all."""
        per_unit = self.statistics.samples / self.units
        counts, wanted = [], float(SMALLEST)
        while wanted < self.statistics.samples:
            counts.append(max(1, round(wanted / per_unit)))
            wanted *= GROWTH
        return [*sorted({count for count in counts if count < self.units}), self.units]

    def table(self, weights: Array) -> tuple[StepCosts, Fitted]:
        """Costs of every step where units have these weights, and what is fitted there."""
        process, T, variance = self.statistics.process, self.statistics.process.T, self.options["variance"]
        squared_error = self.squared_error @ weights
        fitted = Fitted(
            squared_error / self.statistics.dims if variance == "optimal" else None,
            self._decoder_variance(squared_error),
            self.full.fitted.learned_factor if self.learned else None,
        )
        L = np.full((T + 1, T + 1), np.inf)
        for t in range(2, T + 1):
            s = np.arange(1, t)
            if self.learned:
                L[t, 1:t] = self.full.L[t, 1:t] + self._deviations(t, s) @ weights
            else:
                L[t, 1:t] = fixed_step(process, t, s, self.statistics.dims, squared_error[t], variance, fitted)
        if self.options["decoder"] == "respaced":
            pairs = np.full_like(L, np.inf)
            for t1 in range(1, T):
                pairs[t1 + 1 :, t1] = L[t1 + 1 :, t1] + self._respaced[t1]
            return self._costs(L, pairs), fitted
        L[1:, 0] = self._decoder_costs(weights, squared_error, fitted)
        return self._costs(L), fitted

    def _costs(self, L: Array, pairs: Array | None = None) -> StepCosts:
        return StepCosts(process=self.statistics.process, dims=self.statistics.dims, table=L, pairs=pairs)

    @cached_property
    def squared_error(self) -> Array:
        """Σ e² of each unit, [T + 1, units]."""
        return self._by_unit(self.statistics.squared_error)

    def _by_unit(self, values: Array) -> Array:
        return np.asarray(np.add.reduceat(values, self.first, -1) / self.sizes)

    @cached_property
    def full(self) -> StepCosts:
        """The table of all samples."""
        return elbo_costs(self.statistics, self.options["variance"], self.options["decoder"], cdf=self.options["cdf"])

    def _deviations(self, t: int, s: npt.NDArray[np.int64]) -> Array:
        """Learned variance: cost of each step for each block less their mean, [steps, blocks].

        Blocks are kept to three digits, which is plenty for differences between them and too little for a table; hence
        deviations from the table of all samples.
        """
        costs = learned_blocks(self.statistics, t, s, self.options["variance"], self.full.fitted)
        return np.asarray((costs - self.shares @ costs).T)

    # --- the decoder ----------------------------------------------------------------------------------------------------

    def _decoder_variance(self, squared_error: Array) -> Array | None:
        if self.options["decoder"] != "optimal":
            return None
        if self.statistics.data_range.levels is None:
            return np.asarray(squared_error / self.statistics.dims)
        return self.full.fitted.decoder_variance

    def _decoder_costs(self, weights: Array, squared_error: Array, fitted: Fitted) -> Array:
        """L(t, 0) for t = 1 … T."""
        process, T = self.statistics.process, self.statistics.process.T
        if self.statistics.data_range.levels is None:
            variances = np.array(
                [decoder_variance(process, t, self.options["decoder"], fitted) for t in range(1, T + 1)]
            )
            return np.asarray(gaussian_nats(self.statistics.dims, squared_error[1:], variances))
        if self.options["decoder"] == "upper":
            assert self.statistics.decoder_upper is not None
            return np.asarray(self._by_unit(self.statistics.decoder_upper[1:]) @ weights)
        return np.asarray(self.full.L[1:, 0] + self._decoder_deviations @ weights)

    @cached_property
    def _decoder_deviations(self) -> Array:
        """Cost of the last step for each block less their mean, [T, blocks]."""
        rows = []
        for t in range(1, self.statistics.process.T + 1):
            terms, _ = unit_terms(self.statistics, [t, 0], self.options, self.full.fitted)
            costs = terms[:, -2] if len(terms) == self.units else self._by_unit(terms[:, -2])
            rows.append(costs - self.shares @ costs)
        return np.array(rows)

    @cached_property
    def _respaced(self) -> dict[int, Array]:
        return {t1: respaced_row(self.statistics, t1, self.options) for t1 in range(1, self.statistics.process.T)}


def _score(heldout: Statistics, path: Sequence[int], options: Mapping[str, Any], fitted: Fitted) -> float:
    """Bits/dim of a path on held-out statistics with numbers that were fitted elsewhere."""
    nats = prior_nats_at(heldout, int(path[0]))
    for t, s in itertools.pairwise(path[:-1]):
        nats += float(step_row(heldout, t, np.array([s]), options["variance"], fitted)[0])
    t1 = int(path[-2])
    if options["decoder"] == "respaced":
        nats += float(respaced_row(heldout, t1, options)[path[-3] - t1 - 1])
    else:
        nats += decoder_nats_at(heldout, t1, options, fitted)
    return nats / (heldout.dims * LN2)
