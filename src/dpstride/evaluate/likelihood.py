"""Stage 7. Held-out bits/dim of a path: directly, with K network passes, or of every path from held-out statistics.

The direct evaluator is independent on purpose: it computes the divergence of two Gaussians from their means and variances,
element by element, and shares no formula with the cost table. Tests check that the two agree.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import decoders, variances
from ..denoiser import Denoiser, Prediction
from ..fitted import Fit, Fitted
from ..objectives.elbo import check_options, fitted_numbers, heldout_costs
from ..objectives.step_costs import CostTable, standard_error
from ..options import DEFAULT_CDF, DEFAULT_DECODER, Cdf, CostChoice, CostOptions, Decoder, Variance
from ..process import ForwardProcess
from ..runs.arguments import check_kinds, check_names, spelt_out
from ..runs.bars import progress_bar
from ..runs.execution import Execution
from ..runs.storage import Arrays
from ..runs.workers import in_threads
from ..schedule import Schedule
from ..statistics.artefact import DataRange, Statistics
from ..statistics.data import Batch, Samples
from ..statistics.decoder import decoder_nats, signed_residual
from ..statistics.noise import standard_normal
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


@spelt_out(CostChoice)
def bits_per_dim(
    denoiser: Denoiser,
    heldout: Any,
    schedule: Schedule,
    seed: int = 1,
    *,
    samples: int | None = None,
    batch_size: int = 64,
    data_range: object = "uint8",
    progress: bool = False,
    **chosen: Unpack[CostChoice],
) -> Likelihood:
    """Bits/dim of ``schedule`` on ``heldout`` data by direct evaluation: K network passes per batch.

    The probes are run first, 33 evaluations: a network that is random or mixes the samples of a batch is refused.

    ``variance``, ``decoder`` and ``cdf`` default to the schedule's own; a hand-made stride has none, and then the model's
    variance and the `upper` decoder are used. Fitted numbers come from the schedule, never from the data scored here.
    """
    check_kinds(bits_per_dim, denoiser=denoiser, schedule=schedule)
    check_names(bits_per_dim, chosen, CostChoice)
    how = Execution(seed, batch_size, progress)
    process = denoiser.process
    schedule.check_shape(denoiser.shape)
    steps, fitted = steps_on(process, schedule), fitted_on(process, schedule)
    options = resolve_options(process, denoiser.variance, schedule, **chosen)
    check_fitted(fitted, variance=options.variance, decoder=options.decoder)
    warn_about_other_clipping(denoiser, schedule)
    data = Samples.read(heldout, samples, data_range, denoiser.given)
    schedule.check_shape(data.shape)
    chain = _ReverseChain(process, steps, options, fitted=fitted, data_range=data.data_range)
    Passes(denoiser, data, how).probe()  # otherwise a random network would get a score
    batches, stopped, lock = range(0, len(data), batch_size), Event(), Lock()

    def evaluate(first: int) -> Arrays:
        last = min(first + batch_size, len(data))
        batch = data.batch(first, last, denoiser.device, denoiser.algebra_dtype)

        def noisy(t: int) -> Tensor:
            count, origin = last - first, int(process.origin[t])
            noise = standard_normal(seed, "forward", origin, first, count=count, shape=data.shape)
            return float(process.f[t]) * batch.x + float(process.g[t]) * noise.to(batch.x)

        terms, x_t = [], noisy(steps[0])
        for column, (t, s) in enumerate(itertools.pairwise(steps)):
            if stopped.is_set():
                raise CancelledError
            pending = denoiser.begin(x_t, t, batch.conditioning)
            if s > 0:
                x_t = noisy(s)  # while the network runs, if on another device
            terms.append(batch.counted(chain.term(column, batch, pending())).flatten(1).sum(1))
            with lock:
                bar.update()
        terms.append(batch.counted(chain.prior_nats(batch.x)).flatten(1).sum(1))
        return {"terms": torch.stack(terms, dim=1).cpu().double().numpy()}  # one transfer for all

    with progress_bar(len(batches) * (len(steps) - 1), "evaluate", " steps", progress) as bar:
        found = dict(in_threads(evaluate, batches, denoiser.at_once, stopped.set, hands_over=denoiser.waits))
    terms = np.concatenate([found[first]["terms"] for first in batches])
    ratio = 1.0 if data.predicted is None else data.predicted / data.dims
    return _likelihood(terms / (data.dims * LN2), options, steps, ratio=ratio)


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
    check_kinds(score, heldout=heldout)
    if isinstance(schedules, Schedule):
        raise ValueError("score takes several schedules, and was given one. Give [schedule].")
    tables: dict[tuple[CostOptions, int | None], CostTable] = {}
    results = []
    for schedule in schedules:
        schedule.check_shape(heldout.data.get("shape"))
        heldout.check_process(schedule.process)
        trained = heldout.model["variance"]
        options = resolve_options(heldout.process, trained, schedule, variance, decoder=decoder, cdf=cdf)
        key = (options, id(schedule.fitted) if fitted_numbers(options) else None)
        if key not in tables:
            tables[key] = heldout_costs(heldout, options, schedule.fitted)
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
        f"The schedule was made for the process {schedule.process.name!r} (T = {schedule.process.T}), which is not a subset of "
        f"this model's process {process.name!r} (T = {process.T}). Optimise on this model{elsewhere}."
    )


def warn_about_other_clipping(denoiser: Denoiser, schedule: Schedule) -> None:
    """Warn if x̂_0 is clipped differently than when the path was chosen: the two are different models."""
    model = schedule.provenance.get("model")
    if not isinstance(model, Mapping) or "clip" not in model:
        return
    clip = model["clip"]
    if (None if clip is None else tuple(clip)) != denoiser.clip:
        words = [
            "without clipping" if each is None else f"with x0_hat clipped to {tuple(each)}"
            for each in (clip, denoiser.clip)
        ]
        warnings.warn(
            f"This path was chosen {words[0]}, but the model now runs {words[1]}: they are different models, and the path is "
            "not the best for this one. Give Denoiser the original clip=, or optimise again.",
            stacklevel=3,
        )


def fitted_on(process: ForwardProcess, schedule: Schedule) -> Fitted:
    """The schedule's fitted numbers by index of ``process``; NaN at indices that are not on the schedule's own grid."""
    if schedule.process.fingerprint == process.fingerprint:
        return schedule.fitted
    return schedule.fitted.spread(np.searchsorted(process.origin, schedule.process.origin), process.T)


def resolve_options(
    process: ForwardProcess,
    model_variance: Variance,
    schedule: Schedule,
    variance: Variance | None = None,
    decoder: Decoder | None = None,
    cdf: Cdf | None = None,
) -> CostOptions:
    """The options to use: the caller's, else the schedule's own, else the model's variance and the default decoder."""
    own = schedule.options.get
    return check_options(
        process,
        model_variance,
        variance or own("variance"),
        decoder=decoder or own("decoder") or DEFAULT_DECODER,
        cdf=cdf or own("cdf") or DEFAULT_CDF,
    )


def check_fitted(fitted: Fitted, *, variance: Variance, decoder: Decoder | None = None) -> None:
    """Raise if an option that needs fitted numbers has none."""
    needed: list[tuple[str, str, Fit | None]] = [("variance", variance, variances.find(variance).fit)]
    if decoder is not None:
        needed.append(("decoder", decoder, decoders.find(decoder).fit))
    for option, name, fit in needed:
        if fit is not None and getattr(fitted, fit.numbers) is None:
            raise ValueError(
                f"{option}={name!r} needs numbers fitted on the data that chose the path, and this schedule has none. Take it "
                f"from optimise(..., {option}={name!r}), or give a stride those numbers with schedules.adopt."
            )


# --- one term, by the textbook ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ReverseChain:
    """A path and its reverse process, by the definitions: no formula of the cost tables is used."""

    process: ForwardProcess
    steps: tuple[int, ...]
    options: CostOptions
    fitted: Fitted
    data_range: DataRange

    def __post_init__(self) -> None:
        self._decoder_variance()  # raises if the path is too short for the decoder

    def term(self, column: int, batch: Batch, prediction: Prediction) -> Tensor:
        """Cost of the step number ``column`` per element, the last of which is the decoder."""
        t, s = self.steps[column], self.steps[column + 1]
        return self._step_nats(t, s, batch.x, prediction) if s > 0 else self._decoder_nats(batch, prediction)

    def prior_nats(self, x: Tensor) -> Tensor:
        """KL(q(x_t given x_0) ‖ N(0, I)) per element, at the first t."""
        t = self.steps[0]
        variance = float(self.process.g[t] ** 2)
        nats = (float(self.process.f[t]) * x).square() + (variance - 1.0 - math.log(variance))
        return 0.5 * nats

    def _step_nats(self, t: int, s: int, x: Tensor, prediction: Prediction) -> Tensor:
        """KL(q(x_s given x_t, x_0) ‖ p(x_s given x_t)) per element: two Gaussians, from their means and variances."""
        q_variance = float(self.process.posterior_variance(t, s))
        kind = variances.find(self.options.variance)
        value = kind.value(self.process, t, s, fraction=prediction.fraction, fitted=self.fitted)
        p_variance = torch.as_tensor(value, dtype=x.dtype, device=x.device)
        _, b = self.process.posterior_mean(t, s)  # the terms in x_t are the same in both means
        gap = float(b) * (x - prediction.x0_hat)
        return 0.5 * ((p_variance / q_variance).log() + (q_variance + gap.square()) / p_variance - 1.0)

    def _decoder_nats(self, batch: Batch, prediction: Prediction) -> Tensor:
        """−ln p(x_0 given x_t) per element."""
        e = batch.x - prediction.x0_hat
        sigma2 = torch.tensor(self._decoder_variance(), dtype=e.dtype, device=e.device)
        learned = decoders.find(self.options.decoder).with_learned(variances.find(self.options.variance).learned)
        if learned is not None:
            sigma2 = learned.value(self.process, self.steps[-2], self._decoder_variance(), prediction.fraction)
        if batch.edge is None or batch.low_edge is None:
            return 0.5 * ((2.0 * math.pi * sigma2).log() + e.square() / sigma2)
        q = signed_residual(e, batch.low_edge, batch.edge)
        nats: Tensor = decoder_nats(q, batch.edge, self.data_range.half_bin, sigma2.sqrt(), cdf=self.options.cdf)
        return nats

    def _decoder_variance(self) -> float:
        t2 = self.steps[-3] if len(self.steps) > 2 else None
        return decoders.find(self.options.decoder).value(self.process, self.steps[-2], t2, self.fitted)


def _likelihood(terms: Array, options: CostOptions, steps: tuple[int, ...], ratio: Any) -> Likelihood:
    """The result from bits of each sample over mean dims, [N, K + 1], and each sample's dims over the mean."""
    means = terms.mean(axis=0)
    totals = terms.sum(axis=1) - float(means.sum()) * (ratio - 1.0)  # as in `ElboEngine.unit_totals`
    return Likelihood(
        bpd=float(means.sum()),
        standard_error=standard_error(totals, np.ones(len(terms))),
        terms={"steps": tuple(means[:-2].tolist()), "decoder": float(means[-2]), "prior": float(means[-1])},
        samples=len(terms),
        options=options.to_dict(),
        steps=steps,
    )
