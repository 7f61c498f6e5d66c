"""The best inference schedule of any pre-trained diffusion model, for every number of steps at once, without retraining.

The public names, in pipeline order. They are imported when first used, so that ``import dpstride`` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    name: module
    for module, names in {
        "reading.limits": "UnreadableFileError",
        "process": "ForwardProcess",
        "denoiser": "Denoiser Prediction NonFiniteError",
        "statistics.estimate": "estimate",
        "finding.inputs": "read_data",
        "checking.run": "check",
        "checking.outcome": "Check",
        "statistics.artefact": "Statistics StatisticsFileError",
        "schedule": "Schedule ScheduleSet",
        "paths": "ScheduleFileError",
        "strides": "even_stride quadratic_stride quadratic_ddim_stride",
        "objectives.step_costs": "StepCosts CostTable TrajectoryTable",
        "objectives.elbo": "elbo_costs",
        "objectives.band": "Band band_costs",
        "solver": "Solution solve Lines solve_lines",
        "adaptive.loop": "estimate_adaptively",
        "adaptive.report": "AdaptiveReport",
        "pipeline": "optimise find schedules_from",
        "finding.job": "Found",
        "statistics.trajectory_artefact": "Trajectory",
        "statistics.trajectory": "estimate_trajectory",
        "objectives.trajectory": "trajectory_costs trajectory_schedules",
        "objectives.mixed": "mixed_schedules trade_off",
        "objectives.continuous": "refine_schedule",
        "evaluate.likelihood": "Likelihood bits_per_dim score",
        "evaluate.comparison": "compare Comparison",
        "report.compare": "compare_runs RunComparison",
        "evaluate.sampling": "sample",
        "evaluate.frechet": "Moments frechet_distance",
        "evaluate.kernel_distance": "KernelDistance kernel_distance",
        "evaluate.energy_distance": "energy_distance",
        "racing.run": "tune",
        "racing.outcome": "Race",
        "masked.process": "MaskedProcess",
        "masked.denoiser": "MaskedDenoiser",
        "masked.tokens": "Tokens",
        "masked.estimate": "estimate_masked",
        "masked.adaptive": "estimate_masked_adaptively",
        "masked.statistics": "MaskedStatistics",
        "masked.schedule": "MaskedSchedule BinomialSchedule MaskedScheduleSet",
        "masked.strides": "even_unmasking cosine_unmasking geometric_unmasking entropy_unmasking linear_times",
        "masked.costs": "MaskedCosts masked_costs binomial_costs masked_schedules score_masked",
        "masked.pipeline": "optimise_masked",
        "masked.evaluate": "TokenLikelihood bits_per_token",
        "masked.comparison": "compare_masked MaskedComparison",
        "masked.sampling": "sample_masked",
        "masked.ngrams": "NgramModel ngram_divergence",
        "integrations.masked_lm": "load_masked_lm",
        "integrations.loading": "load_model",
        "racing.diffusers_sampler": "diffusers_sampler",
        "integrations.published": "PublishedSchedules",
        "integrations.diffusers_scheduler": "DPStrideScheduler",
    }.items()
    for name in names.split()
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from .adaptive.loop import estimate_adaptively as estimate_adaptively
    from .adaptive.report import AdaptiveReport as AdaptiveReport
    from .checking.outcome import Check as Check
    from .checking.run import check as check
    from .denoiser import Denoiser as Denoiser, NonFiniteError as NonFiniteError, Prediction as Prediction
    from .evaluate.comparison import Comparison as Comparison, compare as compare
    from .evaluate.energy_distance import energy_distance as energy_distance
    from .evaluate.frechet import Moments as Moments, frechet_distance as frechet_distance
    from .evaluate.kernel_distance import KernelDistance as KernelDistance, kernel_distance as kernel_distance
    from .evaluate.likelihood import Likelihood as Likelihood, bits_per_dim as bits_per_dim, score as score
    from .evaluate.sampling import sample as sample
    from .finding.inputs import read_data as read_data
    from .finding.job import Found as Found
    from .integrations.diffusers_scheduler import DPStrideScheduler as DPStrideScheduler
    from .integrations.loading import load_model as load_model
    from .integrations.masked_lm import load_masked_lm as load_masked_lm
    from .integrations.published import PublishedSchedules as PublishedSchedules
    from .masked.adaptive import estimate_masked_adaptively as estimate_masked_adaptively
    from .masked.comparison import MaskedComparison as MaskedComparison, compare_masked as compare_masked
    from .masked.costs import (
        MaskedCosts as MaskedCosts,
        binomial_costs as binomial_costs,
        masked_costs as masked_costs,
        masked_schedules as masked_schedules,
        score_masked as score_masked,
    )
    from .masked.denoiser import MaskedDenoiser as MaskedDenoiser
    from .masked.estimate import estimate_masked as estimate_masked
    from .masked.evaluate import TokenLikelihood as TokenLikelihood, bits_per_token as bits_per_token
    from .masked.ngrams import NgramModel as NgramModel, ngram_divergence as ngram_divergence
    from .masked.pipeline import optimise_masked as optimise_masked
    from .masked.process import MaskedProcess as MaskedProcess
    from .masked.sampling import sample_masked as sample_masked
    from .masked.schedule import (
        BinomialSchedule as BinomialSchedule,
        MaskedSchedule as MaskedSchedule,
        MaskedScheduleSet as MaskedScheduleSet,
    )
    from .masked.statistics import MaskedStatistics as MaskedStatistics
    from .masked.strides import (
        cosine_unmasking as cosine_unmasking,
        entropy_unmasking as entropy_unmasking,
        even_unmasking as even_unmasking,
        geometric_unmasking as geometric_unmasking,
        linear_times as linear_times,
    )
    from .masked.tokens import Tokens as Tokens
    from .objectives.band import Band as Band, band_costs as band_costs
    from .objectives.continuous import refine_schedule as refine_schedule
    from .objectives.elbo import elbo_costs as elbo_costs
    from .objectives.mixed import mixed_schedules as mixed_schedules, trade_off as trade_off
    from .objectives.step_costs import (
        CostTable as CostTable,
        StepCosts as StepCosts,
        TrajectoryTable as TrajectoryTable,
    )
    from .objectives.trajectory import (
        trajectory_costs as trajectory_costs,
        trajectory_schedules as trajectory_schedules,
    )
    from .paths import ScheduleFileError as ScheduleFileError
    from .pipeline import find as find, optimise as optimise, schedules_from as schedules_from
    from .process import ForwardProcess as ForwardProcess
    from .racing.diffusers_sampler import diffusers_sampler as diffusers_sampler
    from .racing.outcome import Race as Race
    from .racing.run import tune as tune
    from .reading.limits import UnreadableFileError as UnreadableFileError
    from .report.compare import RunComparison as RunComparison, compare_runs as compare_runs
    from .schedule import Schedule as Schedule, ScheduleSet as ScheduleSet
    from .solver import Lines as Lines, Solution as Solution, solve as solve, solve_lines as solve_lines
    from .statistics.artefact import Statistics as Statistics, StatisticsFileError as StatisticsFileError
    from .statistics.estimate import estimate as estimate
    from .statistics.trajectory import estimate_trajectory as estimate_trajectory
    from .statistics.trajectory_artefact import Trajectory as Trajectory
    from .strides import (
        even_stride as even_stride,
        quadratic_ddim_stride as quadratic_ddim_stride,
        quadratic_stride as quadratic_stride,
    )


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpstride' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
