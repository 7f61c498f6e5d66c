"""Stage 6. From the best path on a grid to the best path in continuous time, for processes whose f and g are functions.

Costs between any two times come from interpolated statistics: ln E Σ e² and the decoder's cost are monotone cubics in the
coordinate of `statistics.coordinate`, and everything else in a step's cost depends on f and g alone. A few more times are
placed around every time of the path, the exact solver chooses among all of them, and when the path no longer changes the
spacing is halved. The path so far is always among the candidates, so no round makes it worse, and each round finds the exact
optimum of its own grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import decoders, variances
from ..fitted import Fitted
from ..options import BEST, DEFAULT_DECODER, Decoder, Variance
from ..process import ForwardProcess
from ..runs.arguments import check_kinds
from ..schedule import Schedule
from ..solver import solve
from ..statistics.artefact import Statistics
from ..statistics.coordinate import FLAT_BELOW
from ..statistics.place import predicts_of
from ..variances import Errors, Steps
from .elbo import elbo_costs
from .step_costs import StepCosts

Array = npt.NDArray[np.float64]
AROUND = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
FINEST = 2.0**-12  # of a grid step


@dataclass(frozen=True, eq=False)
class ContinuousCosts:
    """Costs of steps between any two times in the range of a grid; make it with `continuous_costs`."""

    grid: StepCosts
    log_squared_error: Any = field(repr=False)  # u → ln E Σ e²
    decoder_nats: Any = field(repr=False)  # u → L(t, 0)
    log_decoder_variance: Any = field(repr=False)  # u → ln σ_0², None unless it is fitted
    data_square: float  # E Σ x_0²; infinite for an eps network, whose x̂_0 does not converge at the far noise end

    def process(self, times: Array) -> ForwardProcess:
        """The same f and g at these times, ascending from 0."""
        source = self.grid.process
        assert source.f_function is not None
        assert source.g_function is not None
        return ForwardProcess.from_functions(source.f_function, source.g_function, times, source.name)

    def fitted(self, process: ForwardProcess) -> Fitted:
        """Interpolated numbers of `optimal` options."""
        u = _coordinate(process, self.data_square)
        m = self.grid.fitted.mean_squared_error
        return Fitted(
            None if m is None else np.append(np.nan, np.exp(self.log_squared_error(u)) / self.grid.dims),
            None if self.log_decoder_variance is None else np.append(np.nan, np.exp(self.log_decoder_variance(u))),
        )

    def on(self, process: ForwardProcess) -> StepCosts:
        """The costs of steps between the times of ``process``."""
        u = _coordinate(process, self.data_square)
        squared_error = np.append(0.0, np.exp(self.log_squared_error(u)))
        fitted, variance, n = self.fitted(process), variances.find(self.grid.options["variance"]), process.T
        L = np.full((n + 1, n + 1), np.inf)
        for t in range(2, n + 1):
            s = np.arange(1, t)
            L[t, 1:t] = variance.nats(Steps(process, self.grid.dims, t, s), Errors(squared_error[t]), fitted)
        L[1:, 0] = self.decoder_nats(u)
        return StepCosts(
            process=process,
            dims=self.grid.dims,
            table=L,
            unit=self.grid.unit,
            options=self.grid.options,
            fitted=fitted,
            provenance=self.grid.provenance,
            prior=lambda t: self.grid.prior_nats,  # every path starts where paths on the grid do
        )


@dataclass(frozen=True, eq=False)
class Refined:
    """A path in continuous time, with its cost and that of the grid's path by the same interpolated statistics."""

    schedule: Schedule
    cost_nats: float
    grid_cost_nats: float
    rounds: int


def continuous_costs(
    statistics: Statistics, variance: Variance | None = None, decoder: Decoder = DEFAULT_DECODER
) -> ContinuousCosts:
    """Costs in continuous time from ``statistics`` on a grid; options as in `elbo_costs`."""
    from scipy.interpolate import PchipInterpolator

    process = statistics.process
    if process.f_function is None or process.g_function is None or (process.input_scale != 1.0).any():
        raise ValueError(
            f"Times between those of the grid need f and g as functions, and the process {process.name!r} is known at its grid "
            "points only (or rescales its input). Continuous refinement is for processes made with from_functions, and "
            "statistics estimated in this session: files do not hold functions."
        )
    grid = elbo_costs(statistics, variance, decoder)
    if variances.find(grid.options["variance"]).learned or decoders.find(decoder).couples:
        raise ValueError(
            "Continuous refinement supports the variances 'posterior', 'upper' and 'optimal' and the decoders 'upper' and "
            f"'optimal', not {grid.options['variance']!r} with {decoder!r}."
        )
    data_square = math.inf if predicts_of(statistics) == "eps" else float(statistics.data_square.mean())
    u = _coordinate(process, data_square)
    fitted = grid.fitted.decoder_variance
    return ContinuousCosts(
        grid,
        PchipInterpolator(u, np.log(statistics.squared_error[1:].mean(axis=1))),
        PchipInterpolator(u, grid.L[1:, 0]),
        None if fitted is None else PchipInterpolator(u, np.log(fitted[1:])),
        data_square=data_square,
    )


def refine_path(costs: ContinuousCosts, path: Sequence[int]) -> Refined:
    """The best times near those of the grid's ``path``, the same number of them, from T to 0."""
    grid_times, K = costs.grid.process.times, len(path) - 1
    at = np.array(path[::-1], dtype=np.float64)  # fractional grid indices, ascending
    T = float(costs.grid.process.T)

    def on(indices: Array) -> StepCosts:
        return costs.on(costs.process(np.interp(indices, np.arange(T + 1.0), grid_times)))

    spacing, rounds, first = 0.5, 0, _whole(on(at))
    while spacing >= FINEST and K > 1:
        around = (at[1:-1, None] + spacing * AROUND).ravel()
        candidates = np.unique(np.concatenate([at, around[(around >= 1.0) & (around < T)]]))
        chosen = candidates[solve(on(candidates), K).path(K)[::-1]]
        rounds += 1
        if np.array_equal(chosen, at):
            spacing /= 2.0
        at = chosen
    refined = on(at)
    schedule = refined.schedule(range(K, -1, -1), _whole(refined), stride=BEST)
    provenance = {**schedule.provenance, "refined_from": [int(index) for index in path]}
    return Refined(replace(schedule, provenance=provenance), _whole(refined), first, rounds)


def refine_schedule(
    statistics: Statistics, budget: int, variance: Variance | None = None, decoder: Decoder = DEFAULT_DECODER
) -> Refined:
    """The best times of ``budget`` steps in continuous time, from the best path on the grid of ``statistics``.

    Its schedule has a process of its own; move the model there with ``denoiser.on_grid(refined.schedule.process)``.
    """
    check_kinds(refine_schedule, statistics=statistics)
    costs = continuous_costs(statistics, variance, decoder)
    return refine_path(costs, solve(costs.grid, budget).path(budget))


def _whole(costs: StepCosts) -> float:
    """The cost of the path through every point of the grid."""
    return float(np.diagonal(costs.L, -1).sum())


def _coordinate(process: ForwardProcess, data_square: float) -> Array:
    """u = −ln(snr + c) from index 1, without the grid-dependent term of `coordinate.noise_coordinate`."""
    return np.asarray(-np.log((process.f[1:] / process.g[1:]) ** 2 + FLAT_BELOW / max(data_square, 1e-12)))
