"""The best inference schedule of any pre-trained diffusion model, for every number of steps at once, without retraining.

The public names, in pipeline order. They are imported when first used, so that ``import dpstride`` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    "UnreadableFileError": "reading.limits",
    "ForwardProcess": "process",
    "Denoiser": "denoiser",
    "Prediction": "denoiser",
    "NonFiniteError": "denoiser",
    "estimate": "statistics.estimate",
    "read_data": "finding.inputs",
    "check": "checking.run",
    "Check": "checking.outcome",
    "Statistics": "statistics.artefact",
    "StatisticsFileError": "statistics.artefact",
    "Schedule": "schedule",
    "ScheduleSet": "schedule",
    "ScheduleFileError": "paths",
    "even_stride": "strides",
    "quadratic_stride": "strides",
    "quadratic_ddim_stride": "strides",
    "StepCosts": "objectives.step_costs",
    "CostTable": "objectives.step_costs",
    "elbo_costs": "objectives.elbo",
    "Band": "objectives.band",
    "band_costs": "objectives.band",
    "Solution": "solver",
    "solve": "solver",
    "Lines": "solver",
    "solve_lines": "solver",
    "estimate_adaptively": "adaptive.loop",
    "AdaptiveReport": "adaptive.report",
    "optimise": "pipeline",
    "find": "pipeline",
    "Found": "finding.job",
    "schedules_from": "pipeline",
    "Trajectory": "statistics.trajectory_artefact",
    "estimate_trajectory": "statistics.trajectory",
    "TrajectoryTable": "objectives.step_costs",
    "trajectory_costs": "objectives.trajectory",
    "trajectory_schedules": "objectives.trajectory",
    "mixed_schedules": "objectives.mixed",
    "trade_off": "objectives.mixed",
    "refine_schedule": "objectives.continuous",
    "Likelihood": "evaluate.likelihood",
    "bits_per_dim": "evaluate.likelihood",
    "score": "evaluate.likelihood",
    "compare": "evaluate.comparison",
    "Comparison": "evaluate.comparison",
    "compare_runs": "report.compare",
    "RunComparison": "report.compare",
    "sample": "evaluate.sampling",
    "Moments": "evaluate.frechet",
    "frechet_distance": "evaluate.frechet",
    "KernelDistance": "evaluate.kernel_distance",
    "kernel_distance": "evaluate.kernel_distance",
    "energy_distance": "evaluate.energy_distance",
    "tune": "racing.run",
    "Race": "racing.outcome",
    "MaskedProcess": "masked.process",
    "MaskedDenoiser": "masked.denoiser",
    "Tokens": "masked.tokens",
    "estimate_masked": "masked.estimate",
    "estimate_masked_adaptively": "masked.adaptive",
    "MaskedStatistics": "masked.statistics",
    "MaskedSchedule": "masked.schedule",
    "BinomialSchedule": "masked.schedule",
    "MaskedScheduleSet": "masked.schedule",
    "even_unmasking": "masked.strides",
    "cosine_unmasking": "masked.strides",
    "geometric_unmasking": "masked.strides",
    "entropy_unmasking": "masked.strides",
    "linear_times": "masked.strides",
    "MaskedCosts": "masked.costs",
    "masked_costs": "masked.costs",
    "binomial_costs": "masked.costs",
    "masked_schedules": "masked.costs",
    "score_masked": "masked.costs",
    "optimise_masked": "masked.pipeline",
    "TokenLikelihood": "masked.evaluate",
    "bits_per_token": "masked.evaluate",
    "compare_masked": "masked.comparison",
    "MaskedComparison": "masked.comparison",
    "sample_masked": "masked.sampling",
    "NgramModel": "masked.ngrams",
    "ngram_divergence": "masked.ngrams",
    "load_masked_lm": "integrations.masked_lm",
    "load_model": "integrations.loading",
    "diffusers_sampler": "racing.diffusers_sampler",
    "PublishedSchedules": "integrations.published",
    "DPStrideScheduler": "integrations.diffusers_scheduler",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from .adaptive.loop import estimate_adaptively as estimate_adaptively
    from .adaptive.report import AdaptiveReport as AdaptiveReport
    from .checking.outcome import Check as Check
    from .checking.run import check as check
    from .denoiser import Denoiser as Denoiser
    from .denoiser import NonFiniteError as NonFiniteError
    from .denoiser import Prediction as Prediction
    from .evaluate.comparison import Comparison as Comparison
    from .evaluate.comparison import compare as compare
    from .evaluate.energy_distance import energy_distance as energy_distance
    from .evaluate.frechet import Moments as Moments
    from .evaluate.frechet import frechet_distance as frechet_distance
    from .evaluate.kernel_distance import KernelDistance as KernelDistance
    from .evaluate.kernel_distance import kernel_distance as kernel_distance
    from .evaluate.likelihood import Likelihood as Likelihood
    from .evaluate.likelihood import bits_per_dim as bits_per_dim
    from .evaluate.likelihood import score as score
    from .evaluate.sampling import sample as sample
    from .finding.inputs import read_data as read_data
    from .finding.job import Found as Found
    from .integrations.diffusers_scheduler import DPStrideScheduler as DPStrideScheduler
    from .integrations.loading import load_model as load_model
    from .integrations.masked_lm import load_masked_lm as load_masked_lm
    from .integrations.published import PublishedSchedules as PublishedSchedules
    from .masked.adaptive import estimate_masked_adaptively as estimate_masked_adaptively
    from .masked.comparison import MaskedComparison as MaskedComparison
    from .masked.comparison import compare_masked as compare_masked
    from .masked.costs import MaskedCosts as MaskedCosts
    from .masked.costs import binomial_costs as binomial_costs
    from .masked.costs import masked_costs as masked_costs
    from .masked.costs import masked_schedules as masked_schedules
    from .masked.costs import score_masked as score_masked
    from .masked.denoiser import MaskedDenoiser as MaskedDenoiser
    from .masked.estimate import estimate_masked as estimate_masked
    from .masked.evaluate import TokenLikelihood as TokenLikelihood
    from .masked.evaluate import bits_per_token as bits_per_token
    from .masked.ngrams import NgramModel as NgramModel
    from .masked.ngrams import ngram_divergence as ngram_divergence
    from .masked.pipeline import optimise_masked as optimise_masked
    from .masked.process import MaskedProcess as MaskedProcess
    from .masked.sampling import sample_masked as sample_masked
    from .masked.schedule import BinomialSchedule as BinomialSchedule
    from .masked.schedule import MaskedSchedule as MaskedSchedule
    from .masked.schedule import MaskedScheduleSet as MaskedScheduleSet
    from .masked.statistics import MaskedStatistics as MaskedStatistics
    from .masked.strides import cosine_unmasking as cosine_unmasking
    from .masked.strides import entropy_unmasking as entropy_unmasking
    from .masked.strides import even_unmasking as even_unmasking
    from .masked.strides import geometric_unmasking as geometric_unmasking
    from .masked.strides import linear_times as linear_times
    from .masked.tokens import Tokens as Tokens
    from .objectives.band import Band as Band
    from .objectives.band import band_costs as band_costs
    from .objectives.continuous import refine_schedule as refine_schedule
    from .objectives.elbo import elbo_costs as elbo_costs
    from .objectives.mixed import mixed_schedules as mixed_schedules
    from .objectives.mixed import trade_off as trade_off
    from .objectives.step_costs import CostTable as CostTable
    from .objectives.step_costs import StepCosts as StepCosts
    from .objectives.step_costs import TrajectoryTable as TrajectoryTable
    from .objectives.trajectory import trajectory_costs as trajectory_costs
    from .objectives.trajectory import trajectory_schedules as trajectory_schedules
    from .paths import ScheduleFileError as ScheduleFileError
    from .pipeline import find as find
    from .pipeline import optimise as optimise
    from .pipeline import schedules_from as schedules_from
    from .process import ForwardProcess as ForwardProcess
    from .racing.diffusers_sampler import diffusers_sampler as diffusers_sampler
    from .racing.outcome import Race as Race
    from .racing.run import tune as tune
    from .reading.limits import UnreadableFileError as UnreadableFileError
    from .report.compare import RunComparison as RunComparison
    from .report.compare import compare_runs as compare_runs
    from .schedule import Schedule as Schedule
    from .schedule import ScheduleSet as ScheduleSet
    from .solver import Lines as Lines
    from .solver import Solution as Solution
    from .solver import solve as solve
    from .solver import solve_lines as solve_lines
    from .statistics.artefact import Statistics as Statistics
    from .statistics.artefact import StatisticsFileError as StatisticsFileError
    from .statistics.estimate import estimate as estimate
    from .statistics.trajectory import estimate_trajectory as estimate_trajectory
    from .statistics.trajectory_artefact import Trajectory as Trajectory
    from .strides import even_stride as even_stride
    from .strides import quadratic_ddim_stride as quadratic_ddim_stride
    from .strides import quadratic_stride as quadratic_stride


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpstride' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
