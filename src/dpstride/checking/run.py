"""Stage 3. `check`: the declared description of a model against the usual others, with a few hundred evaluations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..denoiser import Denoiser
from ..fingerprint import parts_of
from ..runs.arguments import check_kinds
from ..runs.bars import progress_bar
from ..runs.numbers import check_batch_size, check_seed
from ..statistics.data import Samples
from .compare import SIGMAS, Difference, area, paired
from .description import Array, Facts, Inputs, Reading
from .kinds import CHANGES, readings_for
from .measure import NEAR, Meter
from .outcome import Check, Cost, Level
from .search import Arm, Found, Search

LEVELS = 10
LEAST_LOG_SNR = -5.0  # for data with variance 1; below it, costs are negligible
# Draws at first and at most, for samples of at least SMALL dimensions; smaller samples are less informative and need more.
SMALL, DRAWS, MOST_DRAWS, MOST_TIMES = 512, 8, 32, 8
FACTS_FROM = 1024  # samples for the data's means and variances
WORSE_THAN_NONE = 1.2  # error of the implied noise; without a network it is 1
WORSE_THAN_GAUSSIAN = 0.01  # relative to the Gaussian's area; 0 for an exact denoiser of Gaussian data


def check(
    denoiser: Denoiser,
    data: Any,
    seed: int = 0,
    batch_size: int = 64,
    data_range: object = "uint8",
    progress: bool = True,
) -> Check:
    """Other descriptions of the model that would explain its network better, if there are any.

    The network's outputs are scored under every ``predicts`` and sign, other time inputs, processes, data scales, channel
    orders and modes, at ten noise levels of the same samples with the same noise; see docs/check.md. A description counts as
    better only if it is so by 3 standard errors of the paired difference and by 0.005 bits/dim.

    Args:
        denoiser: the model as declared. Its network is not changed.
        data: data as for `estimate`; up to 32 samples are passed through the network, a few hundred evaluations in total.
        seed: random seed for the noise and the choice of samples.
        batch_size: samples per network pass.
        data_range: values that the data take, as for `estimate`.
        progress: show a progress bar (only ever on a terminal).
    """
    check_kinds(check, denoiser=denoiser)
    seed, batch_size = check_seed(seed), check_batch_size(batch_size)
    gathered = Samples.read(data, None, data_range, denoiser.given)
    order = np.random.default_rng(seed).permutation(len(gathered))
    facts, moments = _facts(denoiser, gathered.take(order[:FACTS_FROM].tolist()))
    inputs, readings = declared_inputs(denoiser), readings_for(denoiser.variance == "learned_range")
    times = float(np.clip(SMALL / math.prod(gathered.shape), 1.0, MOST_TIMES))
    draws = round(times * MOST_DRAWS)
    chosen = gathered.take(order[:draws].tolist())
    reading, first_draws = _declared_reading(readings, denoiser), round(min(times, 2.0) * DRAWS)

    def searched(targets: Array, square: float | None) -> tuple[Search, Found, _Baselines]:
        meter = Meter(denoiser, chosen, readings, targets, seed=seed, batch_size=batch_size, draws=draws, square=square)
        with progress_bar(None, "check", " descriptions", progress, leave=False) as bar:
            search = Search(meter, facts, CHANGES, first_draws, update=bar.update)
            found = search.run(inputs, reading)
        return search, found, _baselines(search, found, moments)

    targets = _targets(inputs, moments[1])
    search, found, baselines = searched(targets, None)
    evaluations = search.meter.evaluations
    lacks_noise = targets[-1] > _least_log_snr(moments[1]) + NEAR
    if lacks_noise and (baselines.knows_nothing or _is_worse_than_none(found.declared)):
        square = float((moments[0] ** 2 + moments[1]).mean())
        search, found, baselines = searched(_all_targets(targets, moments[1]), square)
        evaluations += search.meter.evaluations
    return _outcome(denoiser, search, found, baselines, evaluations)


@dataclass(frozen=True)
class _Baselines:
    """Bits/dim of the best description and of a Gaussian, and whether the network is no better than a Gaussian or nothing."""

    area: float
    gaussian: float
    knows_nothing: bool


def declared_inputs(denoiser: Denoiser) -> Inputs:
    """Inputs of the network as declared."""
    process = denoiser.process
    times = denoiser.times_fed
    return Inputs(
        f=process.f,
        g=process.g,
        input_scale=process.input_scale,
        time=times.double().cpu().numpy(),
        whole=not times.is_floating_point(),
        scale=np.ones(1),
        shift=np.zeros(1),
    )


def _declared_reading(readings: tuple[Reading, ...], denoiser: Denoiser) -> int:
    return next(i for i, each in enumerate(readings) if each.is_plain and each.predicts == denoiser.predicts)


def _targets(inputs: Inputs, variances: Array) -> Array:
    """Log-SNR of the noise levels, evenly spaced, from the least noise on."""
    log_snr = inputs.log_snr[1:]
    least = _least_log_snr(variances)
    lowest = max(float(log_snr[-1]), least)
    if lowest >= log_snr[0]:
        raise ValueError(
            f"The noise of this process must begin at a log-SNR above {least:.1f} for descriptions to differ, but it begins at "
            f"{log_snr[0]:.1f}. Check the process: betas and alpha_bar are easily exchanged."
        )
    wanted = np.linspace(float(log_snr[0]), lowest, LEVELS)
    index = np.unique([int(np.abs(log_snr - each).argmin()) for each in wanted])
    return np.asarray(log_snr[index])


def _least_log_snr(variances: Array) -> float:
    return LEAST_LOG_SNR - math.log(max(float(variances.mean()), 1e-300))


def _all_targets(own: Array, variances: Array) -> Array:
    """Noise levels until the data are lost in noise, even beyond the end of the process, as densely spaced as usual."""
    lowest = _least_log_snr(variances)
    return np.linspace(own[0], lowest, math.ceil(LEVELS * (own[0] - lowest) / max(own[0] - own[-1], 1.0)))


def _facts(denoiser: Denoiser, data: Samples) -> tuple[Facts, tuple[Array, Array]]:
    """Facts for changes, and mean and variance of every dimension."""
    x = data.batch(0, len(data), torch.device("cpu"), torch.float64).x
    known = data.data_range
    channels = x.shape[1] if x.ndim > 2 else 1
    by_channel = x.transpose(0, 1).reshape(channels, -1) if x.ndim > 2 else x.reshape(1, -1)
    process = denoiser.process
    facts = Facts(
        shape=data.shape,
        levels=known.levels,
        low=known.low if known.levels is not None else float(x.min()),
        high=known.high if known.levels is not None else float(x.max()),
        mean=by_channel.mean(1).numpy(),
        std=by_channel.std(1, correction=0).numpy(),
        T=process.origin_T,
        origin=process.origin,
        times=process.times,
        continuous=process.kind == "continuous",
        has_modules=any(isinstance(part, torch.nn.Module) for part in parts_of(denoiser.network)),
    )
    return facts, (x.mean(0).numpy(), x.var(0, correction=0).numpy())


def _baselines(search: Search, found: Found, moments: tuple[Array, Array]) -> _Baselines:
    """Compare the best description with the Gaussian, with more draws if these do not decide, and with no network."""
    best, draws = found.best, found.draws
    changed = best is not found.declared
    worse, areas, gaussian = _against_gaussian(search, best, draws, moments)
    if worse is not None and worse.at_least(SIGMAS) <= _allowed(gaussian, changed) < worse.at_most(SIGMAS):
        draws = search.meter.draws
        best.measured.ensure(search.levels, draws)
        worse, areas, gaussian = _against_gaussian(search, best, draws, moments)
    known = worse is None or not _knows_nothing(worse, gaussian, changed)
    return _Baselines(areas, gaussian, not known or _is_worse_than_none(best))


def _is_worse_than_none(arm: Arm) -> bool:
    """Return whether the network is worse than none at every noise level."""
    errors = arm.measured.errors[arm.reading][:, : arm.measured.draws]
    return bool((errors.mean(1) > WORSE_THAN_NONE).all())


def _outcome(denoiser: Denoiser, search: Search, found: Found, baselines: _Baselines, evaluations: int) -> Check:
    best = found.best
    better, untrained = best is not found.declared, baselines.knows_nothing
    reading = search.meter.readings[best.reading]
    changes = [change.label for change in best.changes]
    remedies = [change.remedy for change in best.changes]
    if best.reading != search.declared_reading:
        changes.insert(0, reading.label)
        remedies.insert(0, reading.remedy)
    tried = [Cost(label, cost.mean, cost.standard_error) for label, cost in found.costs.items()]
    return Check(
        verdict="untrained" if untrained else "better" if better else "fits",
        model=denoiser.name,
        declared=repr(denoiser).rpartition(": ")[2].rstrip(">"),
        changes=() if untrained else tuple(changes),
        remedies=() if untrained else tuple(remedies),
        gain=0.0 if untrained else found.gain.mean,
        gain_error=0.0 if untrained else found.gain.standard_error,
        level=_level(search, found) if better and not untrained else None,
        tied=() if untrained else tuple(search.label(arm, best) for arm in found.tied),
        tried=tuple(sorted(tried, key=lambda cost: cost.bits_per_dim)),
        refused=found.refused,
        area=baselines.area,
        gaussian=baselines.gaussian,
        evaluations=evaluations,
        notes=_notes(search, found),
        draws=found.draws,
        assumed=denoiser.predicts if denoiser.predicts_assumed else None,
    )


def _notes(search: Search, found: Found) -> tuple[str, ...]:
    """A note if the declared description is worse than no network at the least noise levels."""
    declared = found.declared
    errors = declared.measured.errors[declared.reading][:, : declared.measured.draws].mean(1)
    worse = int(np.argmin(errors > WORSE_THAN_NONE)) if (errors <= WORSE_THAN_NONE).any() else len(errors)
    if worse == 0:
        return ()
    return (
        f"Up to t = {declared.measured.index[worse - 1]} the network is worse than no network (the error of the implied noise "
        f"is up to {errors[:worse].max():.2g}): it may not be trained on so little noise. Check the process, or begin the grid "
        "later.",
    )


def _against_gaussian(
    search: Search, arm: Arm, draws: int, moments: tuple[Array, Array]
) -> tuple[Difference | None, float, float]:
    """Extra cost over the best linear denoiser that knows means and variances, and both costs, bits/dim."""
    at, errors = arm.measured.of(arm.reading, search.levels, draws)
    order = np.argsort(arm.measured.log_snr, kind="stable")
    linear = arm.measured.linear_errors(order, draws, *moments)
    areas, gaussian = area(at, errors, at), area(at, linear, at)
    worse = paired(gaussian, areas, np.arange(draws) % len(search.meter.data))
    return worse, float(areas.mean()), float(gaussian.mean())


def _knows_nothing(worse: Difference, gaussian: float, changed: bool) -> bool:
    """Return whether the best description is worse than the Gaussian, or no better although it was searched for."""
    return (worse.at_most if changed else worse.at_least)(SIGMAS) > _allowed(gaussian, changed)


def _allowed(gaussian: float, changed: bool) -> float:
    """Extra cost over the Gaussian from which a network knows nothing: a description that was searched for must be better."""
    return (-1.0 if changed else 1.0) * WORSE_THAN_GAUSSIAN * gaussian


def _level(search: Search, found: Found) -> Level | None:
    """The noise level at which the better description differs most from the declared one."""
    declared, best = found.declared, found.best
    at, errors = (
        each.mean(1) if each.ndim > 1 else each for each in best.measured.of(best.reading, search.levels, found.draws)
    )
    at_declared, errors_declared = declared.measured.of(declared.reading, search.levels, found.draws)
    inside = (at_declared >= at[0]) & (at_declared <= at[-1])
    if not inside.any():
        return None
    fitted = np.interp(at_declared, at, errors)
    gap = np.where(inside, errors_declared.mean(1) - fitted, -np.inf)
    k = int(gap.argmax())
    t = int(np.abs(declared.measured.inputs.log_snr[1:] - at_declared[k]).argmin()) + 1
    return Level(t, float(errors_declared.mean(1)[k]), float(fitted[k]))
