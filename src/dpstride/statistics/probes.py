"""Stage 3. Probes: fixed inputs that record a network's behaviour, and show whether it treats each sample separately.

All other code here assumes that a network is a function of (x, time, conditioning), sample by sample. One that is random,
keeps state between calls, or mixes the samples of a batch would silently give wrong numbers, so four inputs are passed
alone, in batches of two, in one of eight, and alone again: `EVALUATIONS` network evaluations. Batches of two differ only in
the other sample, so a correct network's rounding is the same in both and does not blur the comparison. A fifth input differs
from the first in x alone, and comes right after it, which exposes networks that cache outputs by time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..calling import is_out_of_memory
from ..denoiser import Denoiser
from ..runs.behaviour import IN_BATCH, SAME_PLACE, Behaviour, sketch
from .data import slice_conditioning
from .noise import standard_normal

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Inputs = Callable[[Indices, Indices], tuple[Tensor, Any]]  # x_t and conditioning of grid indices and samples
COUNT = 4
LARGE = 8  # samples in the largest batch, if the work has batches that large
PAIRS = ((0, 1), (0, 2), (3, 1), (3, 2))  # each of the four, at its place in the batch, with two others
# 4 alone and one more, 4 batches of two at one t, 4 at several, one large one, 4 alone again; 9 for a batch size of 1. Where
# a batch cannot hold several t, there are 4 batches of two at each of the other t too.
PASSES, EVALUATIONS = 18, 25 + LARGE
AFTER = COUNT  # after the work, each alone
ROUNDED = 10.0  # times `SAME_PLACE`, or the rounding in a batch of two: the rounding allowed in a larger batch
ON_DEVICES = 1e-3  # GPUs may use TF32 for float32, and another order of summation at every call
NOT_FINITE = 1e4  # replaces NaN and infinity, which the work itself reports,
LARGEST = 1e100  # and numbers whose squares would overflow


@dataclass(frozen=True)
class Probed:
    """Behaviour of a model, whether a batch may hold several t, and the relative rounding error of an output."""

    behaviour: Behaviour
    mixes: bool
    slack: float


class Model(Protocol):
    """A model as the probes see it: a `Denoiser`, or anything else that responds at grid indices."""

    process: Any  # its grid, of T steps
    device: torch.device
    dtype: torch.dtype | None  # precision of its network

    @property
    def autocast_now(self) -> torch.dtype | None:
        """Autocast's precision, or None."""

    def response(self, x_t: Tensor, t: Tensor, conditioning: Any = None) -> Tensor:
        """The network's own output."""


@dataclass(frozen=True)
class _Outputs:
    values: Array  # [n, numbers]
    sizes: Array  # [n] norms, at least a thousandth of the input's
    dtype: torch.dtype

    def row(self, place: int) -> tuple[Array, float]:
        return self.values[place], float(self.sizes[place])


def probe(denoiser: Model, inputs: Inputs, samples: Sequence[int], batch_size: int) -> Probed:
    """Run the probes; ValueError unless the network is a function of each sample alone.

    Args:
        denoiser: the model.
        inputs: returns x_t and conditioning for grid indices and sample numbers.
        samples: four sample numbers, repeated if there are fewer.
        batch_size: of the work to come; no batches are probed if it is 1.
    """
    who, t = np.asarray(samples, dtype=np.int64), _times(denoiser.process.T)

    def at(times: Sequence[int], places: Sequence[int]) -> _Outputs:
        indices = np.asarray(times, dtype=np.int64)
        return _respond(denoiser, *inputs(indices, who[list(places)]), indices)

    alone = [at([t[0]], [0])]
    next_input = at([t[0]], [1])
    alone += [at([t[i]], [i]) for i in range(1, COUNT)]
    together = mixed = None
    if batch_size > 1:
        together = _pairs(lambda a, b: at([t[0], t[0]], [a, b]))
        if denoiser.process.T > 1:
            mixed = _mixed(lambda a, b: at([t[a], t[b]], [a, b]))
    again = [at([t[i]], [i]) for i in range(COUNT)]

    precision = max((denoiser.dtype, alone[0].dtype, denoiser.autocast_now), key=_epsilon)
    slack = SAME_PLACE[_name(precision)]
    if denoiser.device.type != "cpu":
        slack = max(slack, ON_DEVICES)
    for i in range(COUNT):
        if (far := _apart(alone[i].row(0), again[i].row(0))) > slack:
            raise ValueError(_not_repeatable(far, t[i], _is_random(denoiser, lambda: at([t[0]], [0]), slack)))
    if together is not None and (far := _disturbed(together)) > slack:
        raise ValueError(_disturbs(far, t[0]))
    mixes = mixed is not None and _disturbed(mixed) <= slack
    if together is not None and not mixes:  # it takes one time for a batch, or mixes samples at some t
        for index in dict.fromkeys(each for each in t[1:] if each != t[0]):
            there = _pairs(functools.partial(lambda index, a, b: at([index, index], [a, b]), index))
            if there is not None and (far := _disturbed(there)) > slack:
                raise ValueError(_disturbs(far, index))
    pairs = [(alone[0], together[0].row(0))] if together is not None else []
    if mixed is not None and mixes:
        pairs += [
            (alone[i], mixed[batch].row(place)) for i, batch, place in ((0, 0, 0), (1, 0, 1), (2, 1, 1), (3, 2, 0))
        ]
    rounding = max((_apart(one.row(0), other) for one, other in pairs), default=0.0)
    if rounding > IN_BATCH:
        raise ValueError(_in_batches(rounding, 2))
    allowed = min(IN_BATCH, ROUNDED * max(slack, rounding))
    if together is None and np.array_equal(next_input.values, alone[0].values):  # a constant, or a cached output
        together = _pairs(lambda a, b: at([t[0], t[0]], [a, b]))
        if together is not None and _disturbed(together) > slack:
            together = None  # it is not made for batches, and there will be none
    if together is not None and (far := _apart(next_input.row(0), together[0].row(1))) > allowed:
        raise ValueError(_remembers(far, t[0]))
    if batch_size > 2:
        size = min(LARGE, batch_size)
        mixes = mixes and _in_large(lambda places: at([t[i] for i in places], places), alone, size, True) <= allowed
        if not mixes:
            far = _in_large(lambda places: at([t[0]] * size, places), [alone[0], next_input], size)
            if far > allowed:
                raise ValueError(_in_batches(far, size))
    behaviour = Behaviour(
        t=t,
        samples=tuple(who.tolist()),
        sizes=tuple(float(each.sizes[0]) for each in alone),
        sketches=tuple(sketch(each.values[0]) for each in alone),
        rounding=rounding,
        precision=_name(precision),
        dtype=_name(denoiser.dtype),
        autocast=None if denoiser.autocast_now is None else _name(denoiser.autocast_now),
        device=_device_name(denoiser.device),
        torch=torch.__version__,
    )
    return Probed(behaviour, mixes, slack)


def check_unchanged(denoiser: Model, inputs: Inputs, probed: Probed) -> None:
    """Run four of the probes once more, after the work; ValueError if the network has changed."""
    there = probed.behaviour
    for place, (t, sample) in enumerate(zip(there.t, there.samples, strict=True)):
        index = np.array([t], dtype=np.int64)
        found = _respond(denoiser, *inputs(index, np.array([sample], dtype=np.int64)), index)
        far = math.dist(sketch(found.values[0]), there.sketches[place])
        far /= max(there.sizes[place], float(found.sizes[0]), 1e-300)
        if far > probed.slack:
            raise ValueError(
                f"The network changed during the work: at t = {t} its output differs from the one before (by {far:.2g} of its "
                "size), so the numbers come from several networks. Make it a function of (x, time, conditioning) alone: look "
                "for anything that it counts, stores or learns between calls."
            )


def probe_on_noise(denoiser: Denoiser, conditioning: Any, count: int, batch_size: int) -> Probed:
    """`probe` without data: on noised noise, with the conditioning of the first of ``count`` samples."""
    shape, process = denoiser.shape, denoiser.process
    assert shape is not None

    def inputs(t: Indices, samples: Indices) -> tuple[Tensor, Any]:
        rows = []
        for index, sample in zip(t.tolist(), samples.tolist(), strict=True):
            x_0 = standard_normal(0, "probe", 0, sample, count=1, shape=shape).clamp(-1.0, 1.0)
            noise = standard_normal(0, "probe", int(process.origin[index]), sample, count=1, shape=shape)
            rows.append(process.f[index] * x_0 + process.g[index] * noise)
        return torch.cat(rows), slice_conditioning(conditioning, samples.tolist())

    return probe(denoiser, inputs, [i % count for i in range(COUNT)], batch_size)


def _times(T: int) -> tuple[int, int, int, int]:
    """Four grid indices. The second is neither the first nor the third, the first not the last, as `_disturbed` needs."""
    return max(1, round(T / 3)), T, 1, -(-2 * T // 3)


def _pairs(both: Callable[[int, int], _Outputs]) -> list[_Outputs] | None:
    """The probes in batches of two, as `PAIRS` lists them; None if two do not fit into memory."""
    try:
        return [both(*places) for places in PAIRS]
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _mixed(both: Callable[[int, int], _Outputs]) -> list[_Outputs] | None:
    """The same with a different t for each sample; None if the network refuses."""
    try:
        return _pairs(both)
    except Exception:  # any other fault will show in the work itself
        return None


def _disturbed(batches: list[_Outputs]) -> float:
    """Return how far an output moves when only the other sample of its batch changes.

    If a network uses something of one row for both (of the first, the last, the larger, or a mean), that row was exchanged
    in one of the batches, and the other row shows it.
    """
    first, other_second, other_first, both_others = batches
    moved = [
        (first.row(0), other_second.row(0)),
        (first.row(1), other_first.row(1)),
        (other_first.row(0), both_others.row(0)),
        (other_second.row(1), both_others.row(1)),
    ]
    return max(_apart(*pair) for pair in moved)


def _in_large(
    respond: Callable[[list[int]], _Outputs], alone: list[_Outputs], size: int, may_refuse: bool = False
) -> float:
    """Return how far the outputs ``alone`` move in a batch of ``size`` such inputs; 0 if that does not fit into memory."""
    places = [i % len(alone) for i in range(size)]
    try:
        found = respond(places)
    except Exception as error:
        if is_out_of_memory(error):
            return 0.0
        if may_refuse:
            return np.inf
        raise
    return max(_apart(alone[i].row(0), found.row(place)) for place, i in enumerate(places))


def _respond(denoiser: Model, x_t: Tensor, conditioning: Any, t: Indices) -> _Outputs:
    output = denoiser.response(x_t, torch.from_numpy(t), conditioning)
    values = output.flatten(1).to(device="cpu", dtype=torch.float64, copy=True).numpy()
    values[~(np.abs(values) < LARGEST)] = NOT_FINITE
    least = 1e-3 * np.linalg.norm(x_t.flatten(1).double().cpu().numpy(), axis=1)
    return _Outputs(values, np.maximum(np.linalg.norm(values, axis=1), least), output.dtype)


def _apart(one: tuple[Array, float], other: tuple[Array, float]) -> float:
    """Distance of two outputs, relative to their size."""
    return float(np.linalg.norm(one[0] - other[0])) / max(one[1], other[1], 1e-300)


def _is_random(denoiser: Model, respond: Callable[[], _Outputs], slack: float) -> bool:
    """Return whether torch's random numbers explain the difference: with the same seed there is none."""
    with torch.random.fork_rng(devices=[denoiser.device] if denoiser.device.type == "cuda" else []):
        found = []
        for _ in range(2):
            torch.manual_seed(0)
            found.append(respond().row(0))
    return _apart(*found) <= slack


def _not_repeatable(far: float, t: int, random: bool) -> str:
    found = f"The network returned different outputs for the same input (by {far:.2g} of their size, at t = {t})"
    if random:
        return (
            f"{found}: it draws random numbers, so no result could be reproduced. Dropout that was left on does that: call "
            ".eval() on every module (Denoiser does for those it can find). A network that is random by design must derive "
            "its random numbers from its input."
        )
    return (
        f"{found}: it keeps state between calls, or draws random numbers of its own, so results would depend on the "
        "order of the work. Make it a function of (x, time, conditioning) alone; modules in training mode need .eval()."
    )


def _disturbs(far: float, t: int) -> str:
    return (
        f"The network's output for a sample depends on the other samples in its batch (by {far:.2g} of its size at t = {t}), "
        "so every result would depend on the batches. Batch normalisation in training mode does that: call .eval() on every "
        "module (Denoiser does for those it can find). So does a mean, a norm or a single label for the whole batch: compute "
        "it for each sample."
    )


def _remembers(far: float, t: int) -> str:
    return (
        f"Right after another sample at the same t = {t}, the network returned a different output for a sample than in a batch "
        f"(by {far:.2g} of its size): it caches something by time or shape, whatever x is. Turn that cache off, or let it "
        "store only values that do not depend on x."
    )


def _in_batches(far: float, size: int) -> str:
    count = "two" if size == 2 else size
    return (
        f"The network returns a different output in a batch of {count} than for the sample alone (by {far:.2g} of its size), "
        "so every result would depend on the batches. Look for a squeeze() that drops the batch dimension, a sum over it, or a "
        "single label for all samples."
    )


def _epsilon(dtype: torch.dtype | None) -> float:
    return 0.0 if dtype is None else torch.finfo(dtype).eps


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return f"cpu {torch.backends.cpu.get_cpu_capability()}"
    return f"cuda {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type
