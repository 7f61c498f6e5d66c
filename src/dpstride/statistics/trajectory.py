"""Stage 3. A teacher's trajectories, and how far one step of a deterministic sampler would leave them.

The teacher is DDIM without noise along every step of the grid: T network evaluations per sample. Any jump t → s is linear
in its states x_t and outputs x̂_0(x_t, t), so no jump takes another evaluation:

    deviation[t, s]  = E |x_s − a x_t − b x̂_0(t)|²                              one step of DDIM
    second[r, t, s]  = E |x_s − a x_t − b x̂_0(t) − c (x̂_0(t) − x̂_0(r))|²        one step of DPM-Solver++ 2M that came from r

Squares of sums of vectors are sums of inner products, and one matrix product per batch gives these for all pairs. Memory:
2 (M + 1) · batch · dims numbers of 8 bytes for the states of one batch, and 8 (M + 1)² + 8 (m + 1)³ bytes for the tables, on
M kept grid points and m for the triples.

The effect of an error at s on the end of the path is measured on a few of the samples, the probes: at each of ten noise
levels a jump from the level above is made and followed to the end by the teacher's own steps, about 5 T evaluations per
probe. The ratio of the two mean squares is `amplification`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..denoiser import Denoiser
from ..given import refuse_given
from ..process import ForwardProcess
from ..runs.arguments import check_kinds, spelt_out
from ..runs.bars import progress_bar
from ..runs.behaviour import Behaviour
from ..runs.identity import check_identity
from ..runs.numbers import check_batch_size, check_seed, whole_number
from ..runs.progress import Progress, progress_folder
from ..runs.storage import Arrays, read_whole
from ..samplers import ddim, dpmpp_2m
from .artefact import DataRange
from .data import Samples, check_conditioning, slice_conditioning, tensors_in_conditioning
from .noise import standard_normal
from .probes import probe_on_noise
from .trajectory_artefact import Trajectory

Array = npt.NDArray[np.float64]
KEPT = 1000  # grid points between which jumps are tabulated
STATE_BYTES = 1 << 30  # of one batch's states, unless one sample has more
PROBES = 8  # samples on which amplification is measured
LEVELS = 10  # noise levels at which it is measured
PAIRED = 128  # grid points between which steps with memory are tabulated: their table has three dimensions


@dataclass(frozen=True)
class TableSizes:
    """Sizes of the tables of a teacher's path.

    Attributes:
        kept: number of grid points to tabulate jumps between (at most; even in the grid index), or their indices.
        paired: number of these points for DPM-Solver++ 2M (at most; spaced half by angle, half by log-SNR); 0 for none.
        probes: number of samples, from the first, on which amplification is measured, with some 5 T evaluations more; 0
            for none.
    """

    kept: int | npt.ArrayLike = KEPT
    paired: int = PAIRED
    probes: int = PROBES

    def __post_init__(self) -> None:
        for name in ("paired", "probes"):
            whole_number(getattr(self, name), f"{name} must be a whole number of at least 0", 0)


@spelt_out(TableSizes)
def estimate_trajectory(
    denoiser: Denoiser,
    samples: int = 64,
    seed: int = 0,
    *,
    batch_size: int = 16,
    conditioning: Any = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    **sizes: Any,
) -> Trajectory:
    """Follow a teacher from ``samples`` noise samples to clean data, T network evaluations each, and tabulate jumps.

    The probes are run first (`dpstride.statistics.probes`, 33 evaluations). For a cheaper teacher on fewer steps, pass
    ``denoiser.on_grid(denoiser.process.subset(steps))``.

    Sizes of the tables, ``kept``, ``paired`` and ``probes``, are those of `TableSizes`.

    Args:
        denoiser: the model; it must know its sample shape. No data is needed.
        samples: number of trajectories. `sample` starts from the same noise with the same seed.
        seed: random seed of the noise.
        batch_size: samples per network pass, whose states are all in memory; fewer if these would take over 1 GB.
        conditioning: one entry per sample, as with data.
        progress: show a progress bar (only ever on a terminal).
        checkpoint: the file for the result; finished batches are kept next to it until it is complete.
    """
    check_kinds(estimate_trajectory, denoiser=denoiser)
    refuse_given(denoiser.given, "A trajectory")
    whole_number(samples, "samples must be a whole number of at least 1")
    check_batch_size(batch_size)
    if denoiser.shape is None:
        raise ValueError("The sample shape is not known: pass shape= to Denoiser, for example shape=(3, 32, 32).")
    check_conditioning(conditioning, samples)
    conditioning = tensors_in_conditioning(conditioning)
    plan = _plan(denoiser.process, TableSizes(**sizes), int(samples), check_seed(seed))
    batch_size = max(1, min(int(batch_size), STATE_BYTES // (16 * plan.grid.size * math.prod(denoiser.shape))))
    behaviour = probe_on_noise(denoiser, conditioning, plan.samples, batch_size).behaviour
    identity = {
        "kind": "trajectory",
        "model": denoiser.describe(),
        "teacher": denoiser.process.fingerprint,
        "grid": denoiser.process.subset(plan.grid).fingerprint,
        **_facts(plan),
        "conditioning": _fingerprint(conditioning),
        "behaviour": behaviour.to_dict(),
    }
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and (found := read_whole(path, Trajectory.load)) is not None:
        check_identity(path, _identity_of(found), json.loads(json.dumps(identity)))
        return found
    sums: Arrays = {}
    with contextlib.nullcontext() if path is None else Progress(progress_folder(path), identity) as store:
        done = {} if store is None else dict(store.read())
        for arrays in done.values():
            _add(sums, arrays)
        for key, arrays in _batches(
            denoiser, plan, _missing(done, plan.samples, batch_size), conditioning, bar=progress
        ):
            _add(sums, arrays)
            if store is not None:
                store.write(key, arrays)
        trajectory = _trajectory(denoiser, plan, sums, identity if store is None else store.identity)
        if path is not None and store is not None:
            trajectory.save(path)
            store.remove()
    return trajectory


@dataclass(frozen=True, eq=False)
class _Plan:
    """The parts of a teacher's path that are kept: grid indices of its process, positions among these, and samples."""

    grid: npt.NDArray[np.int64]
    coarse: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]
    probes: int
    samples: int
    seed: int


def _plan(process: ForwardProcess, sizes: TableSizes, samples: int, seed: int) -> _Plan:
    grid = _kept(process, sizes.kept)
    coarse = _coarse(process.subset(grid), sizes.paired)
    levels = _levels(grid, _coarse(process.subset(grid), min(LEVELS + 1, grid.size // 2) if sizes.probes else 0))
    return _Plan(grid, coarse, levels, min(int(sizes.probes), samples), samples=samples, seed=seed)


def _facts(of: _Plan | Trajectory) -> dict[str, Any]:
    """The part of an identity that plan and result share."""
    return {
        "coarse": of.coarse.tolist(),
        "levels": of.levels.tolist(),
        "probes": of.probes,
        "samples": of.samples,
        "seed": of.seed,
    }


def _batches(
    denoiser: Denoiser, plan: _Plan, missing: list[tuple[int, int]], conditioning: Any, *, bar: bool
) -> Iterator[tuple[str, Arrays]]:
    """Sums over the samples of each missing batch (first, count)."""
    T, kept = denoiser.process.T, denoiser.process.subset(plan.grid)
    known = plan.samples - sum(count for _, count in missing)
    with progress_bar(plan.samples * T, "teacher", " steps", bar, initial=known * T) as shown:
        for first, count in missing:
            condition = slice_conditioning(conditioning, slice(first, first + count))
            states, outputs, probed = _follow(denoiser, plan, (first, count), condition, update=shown.update)
            yield f"{first} {count}", {**_sums(kept, plan.coarse, states, outputs), **probed}


def _missing(done: Iterable[str], samples: int, batch_size: int) -> list[tuple[int, int]]:
    """Ranges of samples, at most ``batch_size`` long, that no finished batch covers."""
    covered = sorted(tuple(map(int, key.split())) for key in done)
    units, at = [], 0
    for first, count in [*covered, (samples, 0)]:
        units += [(i, min(batch_size, first - i)) for i in range(at, first, batch_size)]
        at = first + count
    return units


def _follow(
    denoiser: Denoiser, plan: _Plan, batch: tuple[int, int], conditioning: Any, *, update: Callable[[int], object]
) -> tuple[Array, Array, Arrays]:
    """States x_t and outputs x̂_0(x_t, t) of the teacher at the kept grid points, [M+1, count · dims] each.

    Also, for the first samples, the squared errors of jumps to the levels, at the level and at the end.
    """
    process, shape, (first, count) = denoiser.process, denoiser.shape, batch
    assert shape is not None
    place = {int(t): i for i, t in enumerate(plan.grid)}
    levels = [int(t) for t in plan.grid[plan.levels]]
    probes = min(max(plan.probes - first, 0), count)
    states, outputs = (np.zeros((plan.grid.size, count * math.prod(shape))) for _ in range(2))
    missed = np.zeros((2, len(levels)))
    x = standard_normal(plan.seed, "prior", 0, first, count=count, shape=shape)
    x = x.to(denoiser.device, denoiser.algebra_dtype)
    probed = x[:0]  # copies of the first samples, each after one jump, from the highest level down
    above = (process.T, x, x)  # where the next jump starts
    for t in range(process.T, 0, -1):
        if probes and t in levels:
            a, b = ddim.coefficients(process, above[0], t)
            jumped = float(a) * above[1] + float(b) * above[2]
            missed[0, levels.index(t)] = float((jumped - x[:probes]).square().sum())
            probed = torch.cat([probed, jumped])
        copies = len(probed) // probes if probes else 0
        who = [*range(count), *(i for _ in range(copies) for i in range(probes))]
        both = torch.cat([x, probed])
        x0_hat = denoiser(both, t, slice_conditioning(conditioning, who)).x0_hat
        if t == process.T or t in levels:
            above = (t, x[:probes], x0_hat[:probes])
        if t in place:
            states[place[t]], outputs[place[t]] = (y.double().cpu().numpy().reshape(-1) for y in (x, x0_hat[:count]))
        a, b = ddim.coefficients(process, t, t - 1)
        both = float(a) * both + float(b) * x0_hat
        x, probed = both[:count], both[count:]
        update(count)
    states[0] = x.double().cpu().numpy().reshape(-1)  # the last step's a is 0 and its b 1
    for i in range(len(levels) if probes else 0):
        end = probed[i * probes : (i + 1) * probes]
        missed[1, len(levels) - 1 - i] = float((end - x[:probes]).square().sum())
    return states, outputs, {"missed": missed}


def _sums(process: ForwardProcess, coarse: npt.NDArray[np.int64], states: Array, outputs: Array) -> Arrays:
    """The tables, summed over some trajectories."""
    size = process.T + 1
    t, s = np.meshgrid(np.arange(1, size), np.arange(size), indexing="ij")
    a, b = ddim.coefficients(process, t, s)
    x, y = states, outputs[1:]
    xx, xy = x @ x.T, y @ x.T  # xy[t − 1, s] = x̂_0(t) · x_s
    norm, output_norm = np.diag(xx), np.einsum("ij,ij->i", y, y)
    inner = xy[np.arange(size - 1), np.arange(1, size)]
    deviation = norm[None, :] + a**2 * norm[1:, None] + b**2 * output_norm[:, None]
    deviation += 2.0 * (a * b * inner[:, None] - a * xx[1:] - b * xy)
    table = np.zeros((size, size))
    table[1:] = np.where(s < t, np.maximum(deviation, 0.0), 0.0)
    return {
        "deviation": table,
        "second": _second_sums(process.subset(coarse), states[coarse], outputs[coarse]),
        "end": x[0],
    }


def _second_sums(process: ForwardProcess, states: Array, outputs: Array) -> Array:
    """Σ |x_s − 2M(r, t, s)|² for r > t > s > 0 on the coarse grid."""
    size = process.T + 1
    table = np.zeros((size, size, size))
    for t in range(2, size - 1):
        s, r = np.arange(1, t), np.arange(t + 1, size)
        a, b, c = dpmpp_2m.coefficients(process, r[:, None], t, s[None, :])
        first_order = states[s] - a.T * states[t] - b.T * outputs[t]
        change = outputs[t] - outputs[r]
        cross = change @ first_order.T
        squares = (
            np.einsum("ij,ij->i", first_order, first_order)[None, :]
            + c**2 * np.einsum("ij,ij->i", change, change)[:, None]
        )
        table[t + 1 :, t, 1:t] = np.maximum(squares - 2.0 * c * cross, 0.0)
    return table


def _add(sums: Arrays, arrays: Arrays) -> None:
    for name in ("deviation", "second", "missed"):
        sums[name] = sums[name] + arrays[name] if name in sums else arrays[name]
    sums["end"] = np.concatenate([sums.get("end", np.zeros(0)), arrays["end"]])


def _trajectory(denoiser: Denoiser, plan: _Plan, sums: Arrays, identity: dict[str, Any]) -> Trajectory:
    samples, grid, process = plan.samples, plan.grid, denoiser.process.subset(plan.grid)
    deviation = sums["deviation"] / samples
    # The teacher's own steps do not deviate from it; what inner products give for them is rounding.
    own = np.flatnonzero(np.diff(grid) == 1)
    deviation[own + 1, own] = 0.0
    ends = sums["end"].reshape(samples, -1)
    return Trajectory(
        process=process,
        dims=int(ends.shape[1]),
        samples=samples,
        seed=identity["seed"],
        model=identity["model"],
        teacher=identity["teacher"],
        deviation=deviation,
        end_variance=float(ends.var(axis=0).mean()),
        coarse=plan.coarse,
        second=sums["second"] / samples,
        levels=plan.levels,
        amplification=sums["missed"][1] / np.maximum(sums["missed"][0], 1e-300),
        probes=plan.probes,
        conditioning=identity["conditioning"],
        shape=denoiser.shape,
        behaviour=Behaviour.from_dict(identity["behaviour"]),
    )


def _identity_of(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "kind": "trajectory",
        "model": trajectory.model,
        "teacher": trajectory.teacher,
        "grid": trajectory.process.fingerprint,
        **_facts(trajectory),
        "conditioning": trajectory.conditioning,
        "behaviour": None if trajectory.behaviour is None else trajectory.behaviour.to_dict(),
    }


def _kept(process: ForwardProcess, kept: int | npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The grid indices to keep, including 0 and T."""
    T = process.T
    if not isinstance(kept, (int, np.integer)):
        return np.union1d(np.asarray(kept, dtype=np.int64), [0, T])
    if isinstance(kept, bool) or kept < 1:
        raise ValueError(f"kept must be a number of grid points, at least 1, or the grid indices, not {kept!r}.")
    return np.unique(np.round(np.linspace(0, T, min(int(kept), T) + 1)).astype(np.int64))


def _coarse(process: ForwardProcess, paired: int) -> npt.NDArray[np.int64]:
    """About ``paired`` grid points above 0, evenly spaced in the sum of angle and log-SNR, each scaled to its range.

    The angle atan(g/f) resolves the trajectory's large moves, log-SNR the fine ones next to clean data. The far noise end,
    where log-SNR may be infinite, is compressed as in `coordinate.noise_coordinate`.
    """
    T = process.T
    if paired <= 1:
        return np.array([0, T], dtype=np.int64)
    if paired >= T:
        return np.arange(T + 1)
    angle, log_snr = np.arctan2(process.g, process.f)[1:], -np.log(process.snr[1:] + 1e-4)
    u = sum((part - part[0]) / (part[-1] - part[0]) for part in (angle, log_snr))
    # Where the grid is coarse, several points fall on one index, so more are requested until there are enough.
    for count in range(paired, 8 * paired):
        wanted = np.linspace(0.0, float(u[-1]), count)
        right = np.clip(np.searchsorted(u, wanted), 1, T - 1)
        nearest = 1 + np.where(wanted - u[right - 1] < u[right] - wanted, right - 1, right)
        found = np.unique(np.append(nearest, T))
        if found.size >= paired:
            break
    kept = np.round(np.linspace(0, found.size - 1, min(paired, found.size))).astype(np.int64)
    return np.append(0, found[kept]).astype(np.int64)


def _levels(grid: npt.NDArray[np.int64], coarse: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The inner points that are more than one of the teacher's steps below the next: a single step makes no error."""
    return coarse[1:-1][np.diff(grid[coarse[1:]]) > 1]


def _fingerprint(conditioning: Any) -> str | None:
    return None if conditioning is None else Samples(torch.zeros(1, 1), DataRange(None), conditioning).fingerprint
