"""Stage 7. Held-out bits/dim of a path: directly, with K network passes, or of every path from held-out statistics.

The direct evaluator takes the other road on purpose: it computes the divergence of two Gaussians from their means and
variances, element by element, and shares no formula with the cost table. That the two agree is what the tests check.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from ..costs.decoder import decoder_variance
from ..costs.elbo import check_options, elbo_costs
from ..costs.steps import LEARNED, snr_difference
from ..costs.table import CostTable, standard_error
from ..denoiser import Denoiser, Prediction
from ..fitted import Fitted, fields_of
from ..options import Cdf, Decoder, Variance
from ..process import ForwardProcess
from ..schedule import Schedule
from ..statistics.artefact import Statistics
from ..statistics.data import Batch, Samples
from ..statistics.decoder import decoder_nats, signed_residual
from ..statistics.noise import check_seed, standard_normal
from ..statistics.passes import Passes

Array = npt.NDArray[np.float64]
LN2 = math.log(2.0)


@dataclass(frozen=True)
class Likelihood:
    """Bits/dim of a path: an upper bound on −log2 p(x)/dims, its standard error, and where the bits go.

    ``terms["steps"]`` are the bits/dim of each step above the decoder, from the noise end down; with
    ``terms["decoder"]`` and ``terms["prior"]`` they add up to ``bpd``.
    """

    bpd: float
    standard_error: float
    terms: dict[str, Any]
    samples: int
    options: dict[str, Any]
    steps: tuple[int, ...]


def bits_per_dim(
    denoiser: Denoiser,
    heldout: Any,
    schedule: Schedule,
    seed: int = 1,
    variance: Variance | None = None,
    decoder: Decoder | None = None,
    samples: int | None = None,
    batch_size: int = 64,
    data_range: object = "uint8",
    cdf: Cdf | None = None,
    progress: bool = False,
) -> Likelihood:
    """Bits/dim of ``schedule`` on ``heldout`` data by direct evaluation: K network passes per batch.

    Before that the probes are passed, 29 evaluations: a network that is random or mixes its batches is refused.

    ``variance``, ``decoder`` and ``cdf`` default to the schedule's own; a hand-made stride has none, and then the model's
    variance and the `upper` decoder are used. Fitted numbers come from the schedule, never from the data scored here.
    """
    check_seed(seed)
    check_batch_size(batch_size)
    process = denoiser.process
    steps, fitted = steps_on(process, schedule), fitted_on(process, schedule)
    options = resolve_options(denoiser, schedule, variance, decoder, cdf)
    check_fitted(options, fitted)
    if options["decoder"] == "respaced":
        decoder_variance(process, steps[-2], "respaced", fitted, steps[-3] if len(steps) > 2 else None)
    data = Samples.read(heldout, samples, data_range)
    Passes(
        denoiser, data, seed, batch_size, skip_nonfinite=False
    ).probe()  # else a random network would score something
    terms = np.zeros((len(data), len(steps)))
    batches = range(0, len(data), batch_size)
    with tqdm(
        total=len(batches) * (len(steps) - 1), desc="evaluate", unit=" steps", disable=None if progress else True
    ) as bar:
        for first in batches:
            last = min(first + batch_size, len(data))
            batch = data.batch(first, last, denoiser.device, denoiser.algebra_dtype)
            for column, t in enumerate(steps[:-1]):
                noise = standard_normal(seed, "forward", int(process.origin[t]), first, last - first, data.shape)
                x_t = process.f[t] * batch.x + process.g[t] * noise.to(batch.x)
                prediction = denoiser(x_t, t, batch.conditioning)
                s = steps[column + 1]
                if s > 0:
                    nats = _step_nats(process, t, s, batch.x, prediction, options["variance"], fitted)
                else:
                    nats = _decoder_nats(process, steps, batch, prediction, data, options, fitted)
                terms[first:last, column] = nats.flatten(1).sum(1).double().cpu().numpy()
                bar.update()
            terms[first:last, -1] = _prior_nats(process, steps[0], batch.x).double().cpu().numpy()
    return _likelihood(terms, np.ones(len(data)), math.prod(data.shape), len(data), options, steps)


def score(
    heldout: Statistics,
    schedules: Iterable[Schedule],
    variance: Variance | None = None,
    decoder: Decoder | None = None,
    cdf: Cdf | None = None,
) -> list[Likelihood]:
    """Bits/dim of every schedule from held-out statistics on the whole grid: no network pass.

    ``variance``, ``decoder`` and ``cdf`` default to each schedule's own; a hand-made stride has none, and then the model's
    variance and the `upper` decoder are used; `ScheduleSet.adopt` gives it those of a set. Fitted numbers come from the
    schedule, never from the data scored here.
    """
    tables: dict[tuple[Any, ...], CostTable] = {}
    results = []
    for schedule in schedules:
        heldout.check_process(schedule.process)
        options = _resolve(heldout.process, heldout.model["variance"], schedule, variance, decoder, cdf)
        fitted = schedule.fitted if fields_of(options) else None
        key = (*options.values(), id(fitted))
        if key not in tables:
            tables[key] = elbo_costs(heldout, options["variance"], options["decoder"], fitted, options["cdf"])
        results += score_paths(tables[key], [schedule.steps], heldout.samples)
    return results


def score_paths(costs: CostTable, paths: Sequence[Sequence[int]], samples: int) -> list[Likelihood]:
    """Bits/dim of each path from a cost table of held-out statistics."""
    unit = 1.0 / (costs.dims * LN2)
    results = []
    for steps, error in zip(paths, costs.standard_errors(paths), strict=True):
        nats = costs.step_nats(steps)
        prior = costs.bpd(0.0, steps[0])
        results.append(
            Likelihood(
                bpd=float(nats.sum()) * unit + prior,
                standard_error=math.nan if error is None else error,
                terms={"steps": tuple((nats[:-1] * unit).tolist()), "decoder": float(nats[-1]) * unit, "prior": prior},
                samples=samples,
                options=dict(costs.options),
                steps=tuple(steps),
            )
        )
    return results


def steps_on(process: ForwardProcess, schedule: Schedule) -> tuple[int, ...]:
    """The schedule's steps as indices of ``process``: its own grid, or the grid of which its own is a subset."""
    if schedule.process.fingerprint == process.fingerprint:
        return schedule.steps
    if schedule.process.is_grid_of(process):
        where = np.searchsorted(process.origin, schedule.process.origin[list(schedule.steps)])
        return tuple(int(i) for i in where)
    elsewhere = ""
    if process.kind == "continuous":
        elsewhere = ", or put the model on the schedule's grid with denoiser.on_grid(schedule.process)"
    raise ValueError(
        f"The schedule was made for the process {schedule.process.name!r} (T = {schedule.process.T}), and this model has "
        f"{process.name!r} (T = {process.T}), of which that is not a subset. Optimise on this model{elsewhere}."
    )


def fitted_on(process: ForwardProcess, schedule: Schedule) -> Fitted:
    """The schedule's fitted numbers by index of ``process``; NaN at indices that are not on the schedule's own grid."""
    if schedule.process.fingerprint == process.fingerprint:
        return schedule.fitted
    return schedule.fitted.spread(np.searchsorted(process.origin, schedule.process.origin), process.T)


def resolve_options(
    denoiser: Denoiser, schedule: Schedule, variance: Any = None, decoder: Any = None, cdf: Any = None
) -> dict[str, Any]:
    """The options to use: the caller's, else the schedule's own, else the model's variance and `upper` decoder."""
    return _resolve(denoiser.process, denoiser.variance, schedule, variance, decoder, cdf)


def _resolve(
    process: ForwardProcess, model_variance: str, schedule: Schedule, variance: Any, decoder: Any, cdf: Any
) -> dict[str, Any]:
    own = schedule.options
    return check_options(
        process,
        model_variance,
        variance or own.get("variance"),
        decoder or own.get("decoder") or "upper",
        cdf or own.get("cdf") or "exact",
    )


def check_batch_size(batch_size: int) -> None:
    """Raise when ``batch_size`` is not a whole number of samples."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, not {batch_size!r}.")


def check_fitted(options: dict[str, Any], fitted: Fitted, *, decoder: bool = True) -> None:
    """Raise when an option that is fitted has no numbers."""
    for name, numbers in fields_of(options).items():
        if getattr(fitted, numbers) is None and (decoder or name != "decoder"):
            raise ValueError(
                f"{name}={options[name]!r} needs numbers fitted on the data that chose the path, and this schedule has "
                f"none. Take it from optimise(..., {name}={options[name]!r}), or give a stride those numbers with "
                "schedules.adopt."
            )


# --- one term, by the textbook ---------------------------------------------------------------------------------------------


def reverse_variance(
    process: ForwardProcess, t: int, s: int, prediction: Prediction, variance: Variance, fitted: Fitted
) -> Tensor | float:
    """Variance of p(x_s given x_t), s > 0: a number, or one per element where it is learned."""
    posterior, upper = float(process.posterior_variance(t, s)), float(process.g2_ts(t, s))
    match variance:
        case "posterior":
            return posterior
        case "upper":
            return upper
        case "learned_range" | "learned_optimal":
            assert prediction.fraction is not None
            fraction = prediction.fraction
            learned = (fraction * math.log(upper) + (1.0 - fraction) * math.log(posterior)).exp()
            if variance == "learned_range":
                return learned
            delta, Delta = math.log(upper / posterior), snr_difference(process, t, s)
            return learned * float(fitted.factor(t, np.asarray(delta), Delta))
        case "optimal":
            assert fitted.mean_squared_error is not None
            _, b = process.posterior_mean(t, s)
            return posterior + float(b) ** 2 * float(fitted.mean_squared_error[t])


def _step_nats(
    process: ForwardProcess, t: int, s: int, x: Tensor, prediction: Prediction, variance: Variance, fitted: Fitted
) -> Tensor:
    """KL(q(x_s given x_t, x_0) ‖ p(x_s given x_t)) per element: two Gaussians, from their means and variances."""
    q_variance = float(process.posterior_variance(t, s))
    p_variance = torch.as_tensor(
        reverse_variance(process, t, s, prediction, variance, fitted), dtype=x.dtype, device=x.device
    )
    _, b = process.posterior_mean(t, s)  # the terms in x_t are the same in both means
    gap = float(b) * (x - prediction.x0_hat)
    return 0.5 * ((p_variance / q_variance).log() + (q_variance + gap.square()) / p_variance - 1.0)


def _decoder_nats(
    process: ForwardProcess,
    steps: tuple[int, ...],
    batch: Batch,
    prediction: Prediction,
    data: Samples,
    options: dict[str, Any],
    fitted: Fitted,
) -> Tensor:
    """−ln p(x_0 given x_t) per element."""
    t1 = steps[-2]
    t2 = steps[-3] if len(steps) > 2 else None
    e = batch.x - prediction.x0_hat
    scalar = decoder_variance(process, t1, options["decoder"], fitted, t2)
    if options["decoder"] == "respaced" and options["variance"] in LEARNED:
        assert prediction.fraction is not None
        log_upper = 2.0 * math.log(process.g[t1])
        sigma2 = (prediction.fraction * log_upper + (1.0 - prediction.fraction) * math.log(scalar)).exp()
    else:
        sigma2 = torch.tensor(scalar, dtype=e.dtype, device=e.device)
    if batch.edge is None or batch.low_edge is None:
        return 0.5 * ((2.0 * math.pi * sigma2).log() + e.square() / sigma2)
    q = signed_residual(e, batch.low_edge, batch.edge)
    nats: Tensor = decoder_nats(q, batch.edge, data.data_range.half_bin, sigma2.sqrt(), options["cdf"])
    return nats


def _prior_nats(process: ForwardProcess, t: int, x: Tensor) -> Tensor:
    """KL(q(x_t given x_0) ‖ N(0, I)) of each sample."""
    variance = float(process.g[t] ** 2)
    return 0.5 * ((float(process.f[t]) * x).square() + (variance - 1.0 - math.log(variance))).flatten(1).sum(1)


def _likelihood(
    terms: Array, sizes: Array, dims: int, samples: int, options: dict[str, Any], steps: tuple[int, ...]
) -> Likelihood:
    scaled = terms / (dims * LN2)
    means = scaled.mean(axis=0)
    return Likelihood(
        bpd=float(means.sum()),
        standard_error=standard_error(scaled.sum(axis=1), sizes),
        terms={"steps": tuple(means[:-2].tolist()), "decoder": float(means[-2]), "prior": float(means[-1])},
        samples=samples,
        options=options,
        steps=steps,
    )
