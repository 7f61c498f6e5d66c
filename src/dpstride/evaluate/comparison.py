"""Stage 7. The paper's comparison: DP, even and quadratic strides on held-out data, at every budget.

It uses held-out statistics on the whole grid and takes no further network pass. All strides are scored with the options and
fitted numbers of the DP schedules; paths were chosen on other data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..objectives.elbo import fitted_numbers, heldout_costs
from ..objectives.step_costs import CostTable
from ..options import BEST, COMPARED_STRIDES, CostOptions
from ..reading.documents import document_of
from ..reading.types import check_types
from ..runs.arguments import check_kinds
from ..runs.writing import without_nan, write_json
from ..schedule import ScheduleSet
from ..statistics.artefact import Statistics
from ..strides import find
from .cautions import decoder_note, outside_note
from .disagreement import disagreement, disagreement_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE_BUDGETS = (8, 16, 32, 64, 128, 256)
STRIDES = (*COMPARED_STRIDES, BEST)
FORMAT = "dpstride-comparison-1"
VISIBLE = 0.1  # bits/dim by which more steps must be worse for a warning: as much as an answer's tolerance
NEGLIGIBLE = 0.02  # bits/dim: a smaller gain is noise, or not worth its steps


@dataclass(frozen=True)
class Comparison:
    """Held-out bits/dim with standard errors, ``curves[stride][budget] = (bpd, standard_error)``."""

    T: int
    curves: dict[str, dict[int, tuple[float, float]]]
    chosen: dict[int, tuple[float, float]]  # prediction of the choosing data for the DP stride
    model: Mapping[str, Any]
    options: Mapping[str, Any]
    samples: dict[str, int]  # "chosen" and "heldout"
    seeds: dict[str, int]
    warnings: tuple[str, ...] = field(default=())
    raw: float | None = None  # bits/dim of storing the data's levels as they are, without any model
    run: str | None = None  # name of the run, which all files of one run carry
    # The part of each standard error due to interpolation, if held-out data were not evaluated at every step.
    interpolation: dict[str, dict[int, float]] = field(default_factory=dict)
    # Bits/dim of Gaussians fitted to continuous data, "per dimension" and with "full covariance" if there is enough data.
    gaussian: dict[str, float] = field(default_factory=dict)

    @property
    def budgets(self) -> list[int]:
        """Budgets of the DP stride, ascending."""
        return sorted(self.curves[BEST])

    @property
    def table_budgets(self) -> list[int]:
        """The paper's columns that this grid has, and all steps."""
        largest = self.budgets[-1]
        return [budget for budget in usual_budgets(largest) if budget in self.curves[BEST]] + [largest]

    @property
    def best_budget(self) -> int:
        """The DP steps with the least held-out bits/dim."""
        return _best_budget(self.curves[BEST])

    @property
    def useless(self) -> bool:
        """Return whether even the best budget takes more bits than storing the data's values as they are."""
        return self.raw is not None and self.curves[BEST][self.best_budget][0] > self.raw

    def enough(self, tolerance: float = 0.1) -> int:
        """The fewest DP steps within ``tolerance`` bits/dim of the least that any budget reaches on held-out data."""
        reference = self.curves[BEST][self.best_budget][0]
        return next(budget for budget in self.budgets if self.curves[BEST][budget][0] <= reference + tolerance)

    def sentence(self, tolerance: float = 0.1) -> str:
        """The answer, in one sentence."""
        largest, best, enough = self.budgets[-1], self.best_budget, self.enough(tolerance)
        few, most, least = (self.curves[BEST][budget] for budget in (enough, largest, best))
        if self.useless:
            return (
                "This model describes held-out data worse than no model at all, so no number of steps is enough "
                f"({least[0]:.3f} ± {least[1]:.3f} bits/dim at best; storing the values as they are takes {self.raw:g})."
            )
        reference, name, where = (most, f"all {largest:,}" if largest == self.T else in_steps(largest), "")
        if least[0] < most[0] - NEGLIGIBLE:
            reference, name, where = least, "the least of any budget", f" at {in_steps(best)}"
        return (
            f"{in_steps(enough)} {'is' if enough == 1 else 'are'} within {tolerance:g} bits/dim of {name} on held-out data "
            f"({few[0]:.3f} ± {few[1]:.3f} against {reference[0]:.3f} ± {reference[1]:.3f}{where})."
        )

    def plot(self) -> Figure:
        """Held-out bits/dim of the strides against budget, as a matplotlib figure."""
        from ..report.notebook import plot_comparison

        return plot_comparison(self)

    def _repr_html_(self) -> str:
        from ..report.notebook import comparison_html

        return comparison_html(self)

    def save(self, path: str | Path) -> None:
        """Write as JSON."""
        write_json(path, without_nan({"format": FORMAT, **asdict(self)}))

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read what `save` wrote; anything else raises `UnreadableFileError`."""
        with document_of(path, FORMAT, "a comparison that dpstride wrote") as document:
            curves = {stride: _curve(curve, math.inf) for stride, curve in document["curves"].items()}
            comparison = cls(
                **{
                    **document,
                    "curves": curves,
                    "chosen": _curve(document["chosen"], math.nan),
                    "warnings": tuple(document["warnings"]),
                    "interpolation": {
                        stride: {int(budget): float(error) for budget, error in errors.items()}
                        for stride, errors in document.get("interpolation", {}).items()
                    },
                }
            )
            check_types(comparison)
            comparison.check()
        return comparison

    def check(self) -> None:
        """Raise unless it has everything that tables, figures and pages rely on; only a damaged file does not."""
        if set(self.curves) != set(STRIDES):
            raise ValueError(f"the strides must be {', '.join(STRIDES)}, not {', '.join(self.curves):.80}")
        if not self.curves[BEST] or any(curve.keys() != self.curves[BEST].keys() for curve in self.curves.values()):
            raise ValueError("the strides must have the same budgets, at least one")
        if not all(1 <= budget <= self.T for budget in self.curves[BEST]):
            raise ValueError(f"budgets must lie in 1 … {self.T}")
        if self.interpolation and (
            set(self.interpolation) != set(STRIDES)
            or any(errors.keys() != self.curves[BEST].keys() for errors in self.interpolation.values())
            or not all(0.0 <= error < math.inf for errors in self.interpolation.values() for error in errors.values())
        ):
            raise ValueError("interpolation must have an error for every stride and budget, or none at all")
        if not isinstance(self.model.get("name"), str) or not isinstance(self.options.get("variance"), str):
            raise ValueError("the model must have a name, and the options a variance")


def usual_budgets(T: int, wanted: Sequence[int] = TABLE_BUDGETS) -> list[int]:
    """The ``wanted`` budgets below T; a quarter and a half of T on a grid too short for any."""
    return [budget for budget in wanted if budget < T] or sorted({budget for budget in (T // 4, T // 2) if budget})


def compare(schedules: ScheduleSet, heldout: Statistics, *, clipping: str = "") -> Comparison:
    """Score the DP schedules and the hand-made strides of the same budgets on held-out statistics.

    ``clipping`` is a sentence for warnings, if x̂_0 is clipped to less than the range of the data.
    """
    check_kinds(compare, schedules=schedules, heldout=heldout)
    schedules.check_shape(heldout.data.get("shape"))
    heldout.check_process(schedules.process)
    check_provenance(schedules)
    options = CostOptions.from_dict(schedules.options)
    costs = heldout_costs(heldout, options, schedules.fitted)
    budgets = schedules.budgets
    paths: dict[str, list[tuple[int, ...]]] = {
        name: [find(name).make(schedules.process, K).steps for K in budgets] for name in COMPARED_STRIDES
    }
    paths[BEST] = [schedules.entries[budget][0] for budget in budgets]
    interpolated = _interpolation(heldout, options, schedules, paths)
    curves = {
        stride: {
            budget: (bpd, math.hypot(error, interpolated.get(stride, {}).get(budget, 0.0)))
            for budget, (bpd, error) in zip(budgets, _scores(costs, paths[stride]), strict=True)
        }
        for stride in STRIDES
    }
    chosen = {
        budget: (bpd if bpd is not None else math.nan, error if error is not None else math.nan)
        for budget, (_, bpd, error) in schedules.entries.items()
    }
    shown = [budget for budget in (*usual_budgets(budgets[-1]), budgets[-1]) if budget in curves[BEST]]
    best = _best_budget(curves[BEST])
    cautions = outside_note(heldout, [curves[stride][K][0] for stride in STRIDES for K in shown], curves[BEST][best][0])
    if heldout.data_range.levels is None:
        cautions += decoder_note(costs, schedules.entries[best][0])
    chosen_samples = int(schedules.provenance["data"]["samples"])
    return Comparison(
        T=schedules.process.T,
        curves=curves,
        chosen=chosen,
        model=dict(heldout.model),
        options=dict(schedules.options),
        samples={"chosen": chosen_samples, "heldout": heldout.samples},
        seeds={"chosen": int(schedules.provenance["seed"]), "heldout": heldout.seed},
        warnings=(*_warnings(curves, chosen, schedules, heldout, clipping=clipping), *cautions),
        raw=None if heldout.data_range.levels is None else math.log2(heldout.data_range.levels),
        interpolation=interpolated,
    )


def shown_paths(schedules: ScheduleSet, budgets: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """Paths of the DP and hand-made strides whose scores tables show: of the usual budgets, and of ``budgets``."""
    most = schedules.budgets[-1]
    shown = [K for K in sorted({*usual_budgets(most), *budgets, most}) if K in schedules.entries]
    made = [find(stride).make(schedules.process, K).steps for stride in COMPARED_STRIDES for K in shown]
    return [schedules.entries[K][0] for K in shown] + made


def check_provenance(schedules: ScheduleSet) -> None:
    """Raise unless the schedules record how and on what data they were chosen: hand-made ones cannot be compared."""
    for name in ("variance", "decoder", "cdf"):
        if not isinstance(schedules.options.get(name), str):
            raise ValueError(
                f"These schedules do not record their {name}, so they cannot be compared with other strides. Use schedules "
                "made by `optimise` or `dpstride solve`."
            )
    data, seed = schedules.provenance.get("data"), schedules.provenance.get("seed")
    known = isinstance(data, Mapping) and isinstance(data.get("samples"), int) and "fingerprint" in data
    if not known or not isinstance(seed, int):
        raise ValueError(
            "These schedules do not record on what data they were chosen (samples, fingerprint, seed). Use schedules made "
            "by `optimise` or `dpstride solve`."
        )


def _scores(costs: CostTable, paths: Sequence[Sequence[int]]) -> list[tuple[float, float]]:
    """Bits/dim and standard error of each path."""
    arrays = [np.asarray(path) for path in paths]
    errors = costs.standard_errors(arrays)
    return [
        (costs.bpd(float(costs.step_nats(path).sum()), int(path[0])), math.nan if error is None else error)
        for path, error in zip(arrays, errors, strict=True)
    ]


def _interpolation(
    heldout: Statistics, options: CostOptions, schedules: ScheduleSet, paths: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, dict[int, float]]:
    """The part of each score's standard error due to interpolation; empty if every step was evaluated."""
    if heldout.evaluated[1:].all() or heldout.samples < 2:
        return {}
    from ..adaptive.scores import ScoreJudge

    judge = ScoreJudge(heldout, heldout.evaluated, options, schedules.fitted if fitted_numbers(options) else None)
    return {
        stride: dict(zip(schedules.budgets, judge.interpolation(paths[stride]).tolist(), strict=True))
        for stride in STRIDES
    }


def _warnings(
    curves: dict[str, dict[int, tuple[float, float]]],
    chosen: dict[int, tuple[float, float]],
    schedules: ScheduleSet,
    heldout: Statistics,
    clipping: str = "",
) -> list[str]:
    """Warnings about anything that would mislead a reader of the table alone."""
    found = []
    budgets = schedules.budgets
    best = _best_budget(curves[BEST])
    levels = heldout.data_range.levels
    least, last = curves[BEST][best][0], curves[BEST][budgets[-1]]
    elbo = "objective" not in schedules.options  # others need not have fewer bits/dim, as their answer says
    if levels is not None and least > math.log2(levels):
        clip, known = heldout.model.get("clip"), heldout.data_range
        cause = "Either this model has not learnt these data, or it is misconfigured: check predicts, time_input, the process "
        cause += "and the data range."
        if clip is not None and (known.low < clip[0] - 1e-6 or known.high > clip[1] + 1e-6):
            cause = f"The likely cause: x0_hat is clipped to {tuple(clip)}, and the data span {known.low:g} to {known.high:g}. "
            cause += "Pass clip=None, or the data's own range, to Denoiser."
        found.append(
            f"The best budget has {least:.3f} bits/dim; storing the {levels} levels as they are takes "
            f"{math.log2(levels):g}. {cause}"
        )
    elif elbo and least < last[0] - max(VISIBLE, 2.0 * last[1]):
        fewest = min(K for K, (bpd, _) in curves[BEST].items() if bpd <= least + NEGLIGIBLE)
        within = f"; {fewest:,} are within {NEGLIGIBLE} of that" if fewest < best else ""
        found.append(
            f"More steps hurt here: {in_steps(budgets[-1])} have {last[0]:.3f} bits/dim, fewer have less ({least:.3f} at "
            f"{best:,}{within}). {_reason(CostOptions.from_dict(schedules.options), clipping)}"
        )
    samples = (int(schedules.provenance["data"]["samples"]), heldout.samples)
    shown = [budget for budget in (*usual_budgets(budgets[-1]), budgets[-1]) if budget in curves[BEST]]
    if (apart := disagreement(chosen, curves[BEST], samples, shown)) is not None:
        found.append(disagreement_note(apart, chosen, curves[BEST], "adaptive" in schedules.provenance))
    if schedules.provenance["data"]["fingerprint"] == heldout.data["fingerprint"]:
        found.append("The path was scored on the data that chose it, so its score is optimistic. Give other data.")
    if not heldout.evaluated[1:].all():
        found.append(
            f"The network ran on held-out data at {int(heldout.evaluated[1:].sum())} of {schedules.process.T:,} steps; the "
            "others are interpolated, and standard errors include the uncertainty of that. `dpstride find --every-step` scores "
            "all of them."
        )
    for stride in COMPARED_STRIDES if elbo else ():
        worse = [
            budget
            for budget in budgets
            if curves[BEST][budget][0] > curves[stride][budget][0] + max(2.0 * curves[BEST][budget][1], 1e-9)
        ]
        if worse:
            found.append(
                f"On held-out data the DP stride is worse than the {stride} stride at {len(worse)} budgets (first K = "
                f"{worse[0]}). The choosing data are too few or too different: use more samples."
            )
    return found


def _best_budget(curve: Mapping[int, tuple[float, float]]) -> int:
    """The fewest steps with the least bits/dim to six digits, the precision of result files."""
    return min(curve, key=lambda budget: (float(f"{curve[budget][0]:.6g}"), budget))


def _reason(options: CostOptions, clipping: str) -> str:
    if clipping:
        return f"The likely cause: {clipping}"
    if len(fitted_numbers(options)) == 2:
        return "The network is poor at low noise."
    return (
        f"Either the network is poor at low noise, or the {options.variance!r} variance is wrong for the coarse steps "
        "next to clean data (try variance 'optimal' with decoder 'optimal')."
    )


def in_steps(count: int) -> str:
    """A number of steps in words."""
    return "1 step" if count == 1 else f"{count:,} steps"


def _curve(values: Any, missing: float) -> dict[int, tuple[float, float]]:
    """Numbers by budget; JSON has no infinity, so a missing bits/dim is ``missing`` and a missing error NaN."""
    curve: dict[int, tuple[float, float]] = {}
    for budget, pair in values.items():
        bpd, error = pair
        if not all(n is None or (isinstance(n, (int, float)) and not isinstance(n, bool)) for n in pair):
            raise ValueError(f"budget {budget!r:.40} has {pair!r:.80}, not two numbers")
        curve[int(budget)] = (missing if bpd is None else float(bpd), math.nan if error is None else float(error))
    return curve
