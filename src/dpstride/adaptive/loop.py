"""The loop: evaluate a few times, fill in the others, judge the paths chosen from them, evaluate where it matters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from .. import decoders
from ..objectives.elbo import check_options
from ..options import DEFAULT_DECODER, LEARNED_RANGE, CostOptions
from ..process import ForwardProcess
from ..runs.arguments import check_kinds, check_names, spelt_out
from ..runs.execution import Execution, WorkOnData
from ..runs.numbers import positive, whole_number
from ..statistics.artefact import Statistics
from ..statistics.coordinate import breaks, noise_coordinate
from ..statistics.interpolate import fill
from .regret import Belief, Judge
from .report import BITS, SHARE, AdaptiveReport, Regret, Stopped, samples_for

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from ..objectives.band import Band
    from ..options import Decoder, Variance
    from ..statistics.data import Samples

BUDGETS = (8, 16, 32, 64)
TOLERANCE = 0.01
FIRST = 12  # times of the first round, even in the noise coordinate: E e² bends a few times between noise and data
ADDED = 4  # times of every further round, or a quarter of those evaluated

RESOLUTION = 1e-4  # bits/dim: least regret stated if steps are filled in, the last digit that reports show
WIDEST = 6.0  # nats of log-SNR between two times of the first round, if the grid has any between them

Array = npt.NDArray[np.float64]
Evaluate = Callable[[Sequence[int]], Statistics]


@dataclass(frozen=True)
class Goal:
    """The purpose of an adaptive estimate.

    Attributes:
        options: cost options with which paths will be chosen.
        budgets: numbers of steps whose paths count.
        tolerance: allowed regret of these paths, in bits/dim; with a band, as a fraction of a path's cost.
        max_steps: the most grid indices to evaluate; no limit when None.
        band: noise levels that count if paths are chosen for samples; None for bits/dim.
    """

    options: CostOptions
    budgets: tuple[int, ...]
    tolerance: float = TOLERANCE
    max_steps: int | None = None
    band: Band | None = None

    def __post_init__(self) -> None:
        unit = "bits/dim" if self.band is None else "shares of a path's cost"
        positive(self.tolerance, f"tolerance must be a positive number of {unit}")

    def belief(self, statistics: Statistics, evaluated: npt.NDArray[np.bool_]) -> Belief:
        """Judge from rows ``evaluated`` the paths that would be chosen from them."""
        if self.band is None:
            return Judge(statistics, evaluated, self.options).belief(self.budgets)
        from .band import BandJudge

        return BandJudge(statistics, evaluated, self.band).belief(self.budgets)

    def limit(self, T: int) -> int:
        """The most grid indices to evaluate, of T."""
        rule = (
            "max_steps must be a whole number of at least 4 grid indices: the two ends, and two between them to judge "
            "interpolation"
        )
        return T if self.max_steps is None else min(whole_number(self.max_steps, rule, min(4, T)), T)


@spelt_out(WorkOnData, defaults=Execution)
def estimate_adaptively(
    denoiser: Denoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    *,
    data_range: object = "uint8",
    budgets: Sequence[int] | None = None,
    tolerance: float = TOLERANCE,
    variance: Variance | None = None,
    decoder: Decoder = DEFAULT_DECODER,
    max_steps: int | None = None,
    check: bool = True,
    band: Band | None = None,
    **work: Unpack[WorkOnData],
) -> tuple[Statistics, AdaptiveReport]:
    """Statistics from a few grid indices, enough for paths within ``tolerance`` bits/dim of the best; and a report.

    The network runs on all samples at a dozen grid indices, the others are filled in (see `statistics.interpolate`), and
    more are added in the gaps where the costs of the chosen paths are least certain, until the regret of every budget
    is below the tolerance with 95% confidence, or until more times would not help. See `adaptive.regret` for how regret is
    judged, and `estimate` for the other arguments.

    Args:
        budgets: numbers of steps whose paths must be within the tolerance; 8, 16, 32 and 64 (as far as the grid has them)
            when None.
        tolerance: bits/dim.
        variance: reverse variance with which paths will be chosen; the one that the model was trained with when None.
        decoder: variance of the last step with which paths will be chosen.
        max_steps: at most this many grid indices are evaluated; no limit when None.
        checkpoint: a file to which finished rows are written, and from which the work resumes.
        band: noise levels that count if paths will be chosen for samples; the tolerance and the reported regret are then
            fractions of a path's cost (0.01 is one percent).
    """
    from ..statistics.data import Samples

    check_kinds(estimate_adaptively, denoiser=denoiser)
    check_names(estimate_adaptively, work, WorkOnData)
    how = Execution(seed, **work)
    options = check_options(denoiser.process, denoiser.variance, variance, decoder)
    wanted = check_budgets(budgets, denoiser.process.T, decoder)
    gathered = Samples.read(data, samples, data_range, denoiser.given)
    if len(gathered) < 2:
        raise ValueError(
            "An adaptive estimate judges its paths by how samples differ, so it needs at least 2, but the data has 1. Give "
            "more, or estimate every step."
        )
    if check:
        from ..checking.notice import warn_about_description

        warn_about_description(denoiser, gathered, how)
    few = gathered.batch(0, 256, denoiser.device, denoiser.algebra_dtype)
    data_square = float(few.counted(few.x).flatten(1).square().sum(1).mean())
    evaluate, finish = in_rounds(denoiser, gathered, how)
    goal = Goal(options, wanted, tolerance, max_steps, band=band)
    learned = denoiser.variance == LEARNED_RANGE
    return refine(
        denoiser.process, evaluate, goal, data_square, predicts=denoiser.predicts, learned=learned, finish=finish
    )


def in_rounds(denoiser: Denoiser, data: Samples, how: Execution) -> tuple[Evaluate, Evaluate]:
    """Two functions that estimate rows at grid indices and reuse earlier ones: one for each round, and one to finish."""
    from ..statistics.estimate import estimate_samples

    known: Statistics | None = None

    def evaluate(indices: Sequence[int]) -> Statistics:
        nonlocal known
        known = estimate_samples(denoiser, data, how, indices, reuse=_renamed(known, denoiser), whole=False)
        return known

    def finish(indices: Sequence[int]) -> Statistics:
        return estimate_samples(denoiser, data, how, indices, reuse=_renamed(known, denoiser))

    return evaluate, finish


def _renamed(known: Statistics | None, denoiser: Denoiser) -> Statistics | None:
    """``known`` with the current description of the denoiser, which running it may have changed."""
    return None if known is None else replace(known, model=denoiser.describe())


def refine(
    process: ForwardProcess,
    evaluate: Evaluate,
    goal: Goal,
    data_square: float,
    *,
    predicts: str = "x0",
    learned: bool = False,
    finish: Evaluate | None = None,
) -> tuple[Statistics, AdaptiveReport]:
    """The loop itself. ``evaluate`` returns statistics whose rows at the given grid indices are estimated.

    Other rows are filled in once, at the end: by ``finish`` if given, which gets the indices once more.
    ``data_square`` is about E Σ x_0², which determines where noise hides the data; ``predicts`` is what the network
    predicts, and ``learned`` says whether it has learned a variance. Rows that were not requested (a resumed file may have
    some) are ignored, so that the result is the same whether the work was interrupted or not.
    """
    limit = goal.limit(process.T)
    u = noise_coordinate(process, data_square)  # resolves the levels where data are visible, for the first round
    along = noise_coordinate(process, data_square, predicts, learned)
    steps = opening_steps(process, u, along, limit)
    rounds = 0
    while True:
        rounds += 1
        statistics = evaluate(steps.tolist())
        mask = np.isin(np.arange(process.T + 1), steps)
        belief = goal.belief(statistics, mask)
        # The first round's judgement is tested once, by new times, before it is trusted.
        stopped = _verdict(belief, goal.tolerance, steps.size, limit) if rounds > 1 or steps.size >= limit else None
        if stopped is not None:
            break
        added = max(ADDED, steps.size // 4)
        steps = np.union1d(steps, next_steps(belief, u, along, min(added, limit - steps.size)))
    needed = None
    if stopped == "noise":
        needed = samples_for(statistics.samples, float(belief.upper.max()), goal.tolerance)
    regret = {
        int(K): Regret(float(mean), 0.0, max(float(high), RESOLUTION if steps.size < process.T else 0.0))
        for K, mean, high in zip(goal.budgets, belief.mean, belief.upper, strict=True)
    }
    report = AdaptiveReport(
        T=process.T,
        samples=statistics.samples,
        steps=tuple(steps.tolist()),
        rounds=rounds,
        tolerance=float(goal.tolerance),
        regret=regret,
        stopped=stopped,
        samples_needed=needed,
        unit=BITS if goal.band is None else SHARE,
    )
    if finish is not None:
        statistics = finish(steps.tolist())
        if (statistics.evaluated == mask).all():
            return statistics, report
    return fill(statistics, mask), report


def opening_steps(process: ForwardProcess, u: Array, along: Array, limit: int) -> npt.NDArray[np.int64]:
    """Grid indices of the first round: even in ``u``, and both sides of the process's jumps and kinks; ``limit`` at most.

    The widest gaps in ``along``, the coordinate of interpolation, are halved until none is wide enough to hide anything.
    """
    known = breaks(process)
    if process.T <= FIRST or limit - known.size < 4:
        return first_steps(u, min(FIRST, limit))
    steps = np.union1d(first_steps(u, min(FIRST, limit - known.size)), known)
    while steps.size < limit:
        open_gaps = np.diff(steps) > 1
        width = np.where(open_gaps, np.diff(along[steps]), 0.0)
        widest = int(width.argmax())
        if width[widest] <= WIDEST:
            break
        steps = np.union1d(steps, middle_of(along, int(steps[widest]), int(steps[widest + 1])))
    return steps


def middle_of(u: Array, low: int, high: int) -> int:
    """The grid index between two others that is nearest to their middle in ``u``."""
    inside = np.arange(low + 1, high)
    return int(inside[np.abs(u[inside] - 0.5 * (u[low] + u[high])).argmin()])


def first_steps(u: Array, count: int) -> npt.NDArray[np.int64]:
    """About ``count`` grid indices even in the noise coordinate ``u``, including 1 and T."""
    T = u.size - 1
    if count >= T:
        return np.arange(1, T + 1)
    for points in range(max(count, 2), 2 * T):  # on a coarse grid several points fall on one index
        steps = np.unique([1 + int(np.abs(u[1:] - at).argmin()) for at in np.linspace(u[1], u[-1], points)])
        if steps.size >= count:
            break
    return steps[np.linspace(0, steps.size - 1, max(count, 2)).round().astype(np.int64)]


def next_steps(belief: Belief, u: Array, along: Array, count: int) -> npt.NDArray[np.int64]:
    """The middles of the gaps that contribute most of the uncertain cost, and of the widest in ``u`` if too few do.

    The middle is that in ``along``, the coordinate of interpolation.
    """
    width = u[belief.gaps[:, 1]] - u[belief.gaps[:, 0]]
    order = np.lexsort([-width, -np.where(belief.worth, belief.weights, 0.0)])
    return np.array([middle_of(along, *gap) for gap in belief.gaps[order[:count]].tolist()], dtype=np.int64)


def check_budgets(budgets: object, T: int, decoder: str, max_budget: int | None = None) -> tuple[int, ...]:
    """The requested budgets, ascending, or a clear error; by default the paper's, up to T and ``max_budget``."""
    least = decoders.find(decoder).least_budget
    if budgets is None:
        largest = T if max_budget is None else min(T, max_budget)
        return tuple(budget for budget in BUDGETS if budget <= largest) or (largest,)
    rule = f"budgets must be a list of whole numbers of steps between {least} and T = {T}, at least one"
    if isinstance(budgets, str) or not isinstance(budgets, Iterable):
        raise ValueError(f"{rule}, not {budgets!r:.80}.")
    chosen = sorted({whole_number(K, rule, least, T) for K in budgets})
    if not chosen:
        raise ValueError(f"{rule}, not {budgets!r:.80}.")
    return tuple(chosen)


def _verdict(belief: Belief, tolerance: float, count: int, limit: int) -> Stopped | None:
    """The reason to stop; None to continue."""
    if (belief.upper <= tolerance).all():
        return "reached"
    # An error in the gaps changes the costs of the chosen path and of the best, so regret by at most twice as much.
    if 2.0 * belief.weights[belief.worth].sum() <= tolerance:
        return "noise"
    return "limit" if count >= limit else None
