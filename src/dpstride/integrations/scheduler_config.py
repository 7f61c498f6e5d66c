"""Facts about the model in a diffusers scheduler's config: its process, what it predicts, its variance, its clipping.

diffusers keeps these facts in the sampler, not in the network. They are read here, both for the loader and for our own
scheduler, and the process is rebuilt in float64 from the betas (diffusers keeps float32 products, which are off by 1e-5 at
the noise end). A setting that cannot be followed is refused here, or handled by the rule that its note states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import options
from ..denoiser import Predicts
from ..options import ModelVariance
from ..process import MAX_BETA, ForwardProcess
from .loaded import UnsupportedModelError

Array = npt.NDArray[np.float64]
PREDICTS: dict[str, Predicts] = {"epsilon": "eps", "sample": "x0", "v_prediction": "v"}
MOST_STEPS = 1_000_000  # more than any model is trained on
# Samplers of distilled networks, whose output is not an estimate of clean data by the algebra of its prediction type.
DISTILLED = ("LCMScheduler", "TCDScheduler")


@dataclass(frozen=True)
class SchedulerFacts:
    """The facts read; ``variance`` is None if the config names none."""

    process: ForwardProcess
    predicts: Predicts
    variance: ModelVariance | None
    clip: tuple[float, float] | None
    notes: tuple[str, ...]


def read_scheduler(
    config: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    class_name: str | None = None,
) -> SchedulerFacts:
    """Read the facts of a DDPM-type config; ``overrides`` replace its entries, and the notes list them."""
    name = str(class_name or config.get("_class_name", "scheduler"))
    notes = [f"read from the config of {name}"]
    if overrides:
        if unknown := sorted(set(overrides) - set(config)):
            raise UnsupportedModelError(
                f"overrides names {unknown[0]!r}, which the config of {name} does not have. It has "
                f"{', '.join(sorted(key for key in config if not key.startswith('_')))}."
            )
        notes += [f"overridden by you: {key} = {value!r} (was {config[key]!r})" for key, value in overrides.items()]
        config = {**config, **overrides}
    _refuse(name, config)
    predicts = _predicts(config)
    process, process_notes = _process(config, predicts)
    variance, variance_note = _variance(config)
    clip = None
    if config.get("clip_sample", False):
        reach = _number(config, "clip_sample_range", 1.0)
        if not reach > 0.0:
            raise UnsupportedModelError(f"clip_sample_range must be above 0, not {reach}.")
        clip = (-reach, reach)
    notes += process_notes
    notes.append(f"prediction type {config.get('prediction_type', 'epsilon')}")
    notes.append(variance_note)
    notes.append(f"x0_hat clipped to [-{clip[1]:g}, {clip[1]:g}] (clip_sample)" if clip else "x0_hat is not clipped")
    if config.get("set_alpha_to_one") is False:
        notes.append("set_alpha_to_one=False is not used: here every path ends at clean data")
    return SchedulerFacts(process=process, predicts=predicts, variance=variance, clip=clip, notes=tuple(notes))


def betas_of(config: Mapping[str, Any]) -> Array:
    """Return the betas in float64, before any rescaling to zero terminal SNR."""
    if config.get("trained_betas") is not None:
        return _trained(config["trained_betas"])
    T = steps_of(config)
    start, end = _number(config, "beta_start", 1e-4), _number(config, "beta_end", 0.02)
    if not (0.0 < start < 1.0 and 0.0 < end < 1.0):
        raise UnsupportedModelError(
            f"beta_start and beta_end must lie between 0 and 1, but they are {start} and {end}."
        )
    match config.get("beta_schedule"):
        case "linear":
            return np.linspace(start, end, T)
        case "scaled_linear":
            return np.linspace(math.sqrt(start), math.sqrt(end), T) ** 2
        case "sigmoid":
            return (end - start) / (1.0 + np.exp(-np.linspace(-6.0, 6.0, T))) + start
        case "squaredcos_cap_v2":
            alpha_bar = np.cos((np.arange(T + 1) / T + 0.008) / 1.008 * (np.pi / 2)) ** 2
        case "laplace":
            alpha_bar = _laplace(np.arange(T + 1) / T)
        case other:
            raise UnsupportedModelError(
                f"beta_schedule {other!r:.80} is not known; 'linear', 'scaled_linear', 'squaredcos_cap_v2', 'sigmoid', "
                "'laplace' and trained_betas are. Build the Denoiser yourself with ForwardProcess.from_betas."
            )
    return np.asarray(np.minimum(1.0 - alpha_bar[1:] / alpha_bar[:-1], MAX_BETA))


def steps_of(config: Mapping[str, Any]) -> int:
    """Return num_train_timesteps, a whole number of plausible size."""
    steps = config["num_train_timesteps"]
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        raise UnsupportedModelError(
            f"num_train_timesteps must be a whole number from 1 to {MOST_STEPS:,}, not {steps!r:.80}."
        )
    return steps


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UnsupportedModelError(f"{name} must be a finite number, not {value!r:.80}.")
    return float(value)


def _trained(betas: Any) -> Array:
    try:
        array = np.asarray(betas)
        if array.dtype.kind not in "if" or array.ndim != 1:
            raise ValueError(f"an array of {array.dtype} with shape {array.shape}")
    except ValueError as error:
        raise UnsupportedModelError(f"trained_betas must be a list of numbers ({error!s:.300}).") from error
    return array.astype(np.float64)


def zero_terminal_snr(process: ForwardProcess) -> ForwardProcess:
    """Apply Lin et al. (2024), Algorithm 1: shift sqrt(alpha_bar) to end at 0, and scale it to start where it did."""
    first, last = process.f[1], process.f[-1]
    f = np.concatenate([[1.0], (process.f[1:] - last) * (first / (first - last))])
    f[-1] = 0.0
    g = np.sqrt((1.0 - f) * (1.0 + f))
    g[1] = process.g[1]  # the first point does not move
    pair = float(g[1] ** 2 * (1.0 - (f[2] * g[1] / (f[1] * g[2])) ** 2)) if process.T > 1 else None
    return ForwardProcess(
        f=f,
        g=g,
        times=process.times,
        kind="discrete",
        name=f"{process.name}, zero terminal SNR",
        origin=process.origin,
        origin_T=process.origin_T,
        input_scale=process.input_scale,
        first_pair_variance=pair,
    )


def _refuse(name: str, config: Mapping[str, Any]) -> None:
    if name in DISTILLED:
        raise UnsupportedModelError(
            f"{name} belongs to a distilled network, whose output is not an estimate of clean data at every step, so it "
            "has no ELBO. Load the model it was distilled from."
        )
    if "FlowMatch" in name:
        raise UnsupportedModelError(
            f"{name} belongs to a flow-matching model, but this pipeline is none. Put the scheduler of its training into it."
        )
    if config.get("use_flow_sigmas"):
        raise UnsupportedModelError(
            f"{name} has use_flow_sigmas=True, a flow-matching model with a DDPM-type sampler. Replace the scheduler "
            "with a FlowMatchEulerDiscreteScheduler with shift = flow_shift, which is read exactly."
        )
    if "num_train_timesteps" not in config or ("beta_schedule" not in config and config.get("trained_betas") is None):
        raise UnsupportedModelError(
            f"The config of {name} has no betas (num_train_timesteps and beta_schedule), so it is not a DDPM-type "
            "scheduler. Sigma-conditioned models (EDM) are read by dpstride.integrations.k_diffusion, score networks by "
            "dpstride.integrations.score_sde, and any other by dpstride.Denoiser."
        )
    if config.get("thresholding"):
        raise UnsupportedModelError(
            "The scheduler has thresholding=True: dynamic thresholding rescales each image by its own percentile, which "
            "is not part of any reverse process here. Score the model without it, with overrides={'thresholding': False}; "
            "clip_sample then applies."
        )
    if config.get("timestep_type", "discrete") != "discrete":
        raise UnsupportedModelError(
            f"timestep_type {config['timestep_type']!r} feeds the network log-sigmas, not training steps. Use "
            "dpstride.integrations.k_diffusion with a callable denoised(x, sigma)."
        )


def _predicts(config: Mapping[str, Any]) -> Predicts:
    prediction = config.get("prediction_type", "epsilon")
    if not isinstance(prediction, str) or prediction not in PREDICTS:
        raise UnsupportedModelError(
            f"prediction_type must be 'epsilon', 'sample' or 'v_prediction', not {prediction!r:.80}. If the config is "
            "wrong, correct it with overrides={'prediction_type': …}."
        )
    return PREDICTS[prediction]


def _process(config: Mapping[str, Any], predicts: Predicts) -> tuple[ForwardProcess, list[str]]:
    betas = betas_of(config)
    schedule = "trained_betas" if config.get("trained_betas") is not None else str(config["beta_schedule"])
    process = ForwardProcess.from_betas(betas, name=_PROCESS_NAMES.get(schedule, schedule))
    notes = [f"noise schedule {schedule} with {process.T} steps, alpha_bar recomputed in float64"]
    if config.get("rescale_betas_zero_snr"):
        if predicts == "eps":
            raise UnsupportedModelError(
                "rescale_betas_zero_snr=True ends in pure noise (alpha_bar = 0), where a network that predicts epsilon "
                "says nothing about clean data: x0_hat divides by zero. Such a model is trained with v_prediction or "
                "sample; if the config is wrong, correct it with overrides={'prediction_type': 'v_prediction'} or "
                "overrides={'rescale_betas_zero_snr': False}."
            )
        process = zero_terminal_snr(process)
        notes.append("zero terminal SNR (rescale_betas_zero_snr): the last step has alpha_bar = 0 exactly")
    return process, notes


_PROCESS_NAMES = {"squaredcos_cap_v2": "cosine"}
# Names of a model's variances in diffusers; the learned one has the same name here.
VARIANCE_TYPES: dict[ModelVariance, str] = {
    options.POSTERIOR: "fixed_small",
    options.UPPER: "fixed_large",
    options.LEARNED_RANGE: options.LEARNED_RANGE,
}


def _variance(config: Mapping[str, Any]) -> tuple[ModelVariance | None, str]:
    match config.get("variance_type"):
        case None:
            return None, "the config names no variance type"
        case "fixed_small":
            return options.POSTERIOR, "variance fixed_small = posterior"
        case "fixed_small_log":
            return (
                options.POSTERIOR,
                "variance fixed_small_log = posterior (the same variance, stored as its logarithm)",
            )
        case "fixed_large":
            return options.UPPER, "variance fixed_large = upper"
        case "fixed_large_log":
            return (
                options.UPPER,
                "variance fixed_large_log = upper, its intended meaning; diffusers itself returns NaN for it",
            )
        case options.LEARNED_RANGE:
            return options.LEARNED_RANGE, "variance learned_range"
        case "learned":
            raise UnsupportedModelError(
                "variance_type 'learned' means a variance in diffusers and a log-variance in OpenAI's code, and the config "
                "does not say which was trained. Choose variance='posterior' or 'upper' (the learned half is then dropped), "
                "or overrides={'variance_type': 'learned_range'} if the model was trained with it."
            )
        case other:
            raise UnsupportedModelError(
                f"variance_type {other!r:.80} is not known; fixed_small(_log), fixed_large(_log) and learned_range are. "
                "Choose variance='posterior', 'upper' or 'learned_range'."
            )


def _laplace(t: Array) -> Array:
    """Return alpha_bar of the "laplace" schedule: sqrt(snr/(1 + snr)), ln snr = −½ sign(½ − t) ln(1 − 2|½ − t| + 1e-6)."""
    log_snr = -0.5 * np.copysign(1.0, 0.5 - t) * np.log(1.0 - 2.0 * np.abs(0.5 - t) + 1e-6)
    return np.asarray(np.sqrt(1.0 / (1.0 + np.exp(-log_snr))))
