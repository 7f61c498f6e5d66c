"""Stage 3. Errors of the network for one kind of inputs: noise levels × draws, for every reading of the output at once.

All inputs are measured at the same noise levels of the same data with the same noise, so that differences between them are
paired. The error is that of the implied ε, snr · mean (x_0 − x̂_0)², which is 1 for the guess x̂_0 = x_t/f at every level.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..denoiser import Denoiser
from ..fingerprint import parts_of
from ..process import ForwardProcess
from ..statistics.data import Samples
from ..statistics.noise import standard_normal
from .description import Array, Inputs, Reading

Indices = npt.NDArray[np.int64]
NEAR = 0.5  # log-SNR by which a level may lie beyond the ends of a process


class Meter:
    """Runs the network of ``denoiser`` on ``data`` with any `Inputs`, and counts its evaluations."""

    def __init__(
        self,
        denoiser: Denoiser,
        data: Samples,
        readings: tuple[Reading, ...],
        targets: Array,
        *,
        seed: int,
        batch_size: int,
        draws: int,
        square: float | None = None,
    ) -> None:
        self.denoiser, self.data, self.readings = denoiser, data, readings
        self.targets = targets  # log-SNR, falling
        self.square = (
            square  # mean square of the data, to extend a description beyond its noise levels without a network
        )
        self.seed, self.batch_size, self.draws = seed, batch_size, draws
        self.evaluations = 0
        self.dtype = denoiser.dtype
        self.modules = [part for part in parts_of(denoiser.network) if isinstance(part, nn.Module)]

    def clean(self, draw: Indices, inputs: Inputs) -> tuple[Tensor, Any]:
        """Data of these draws in the network's units, and their conditioning."""
        batch = self.data.take((draw % len(self.data)).tolist()).batch(
            0, len(draw), self.denoiser.device, self.denoiser.algebra_dtype
        )
        channels = (1, -1, *[1] * (batch.x.ndim - 2)) if inputs.scale.size > 1 else (1,) * batch.x.ndim
        scale, shift = (torch.from_numpy(a).to(batch.x).reshape(channels) for a in (inputs.scale, inputs.shift))
        y = scale * batch.x + shift
        return (y if inputs.arrange is None else inputs.arrange(y)), batch.conditioning

    def noise(self, level: Indices, draw: Indices, inputs: Inputs) -> Tensor:
        """The noise of each (level, draw), arranged like the data."""
        drawn = [
            standard_normal(self.seed, "probe", int(k), int(i), count=1, shape=self.data.shape)
            for k, i in zip(level, draw, strict=True)
        ]
        noise = torch.cat(drawn).to(device=self.denoiser.device, dtype=self.denoiser.algebra_dtype)
        return noise if inputs.arrange is None else inputs.arrange(noise)

    def mean_square(self, errors: Tensor, draw: Indices, inputs: Inputs) -> Tensor:
        """Mean of e² over the predicted elements, per draw."""
        squares = errors.flatten(1).square()
        if self.data.mask is None:
            return squares.mean(1)
        mask = self.data.mask[draw % len(self.data)].to(squares)
        mask = (mask if inputs.arrange is None else inputs.arrange(mask)).flatten(1)
        return (mask * squares).sum(1) / mask.sum(1)

    def caller(self, inputs: Inputs, index: Indices) -> Denoiser:
        """The network with these ``inputs``, at the entries 1, 2, … of ``index``, returning its raw output."""
        times = inputs.time[index]
        fed = [int(time) for time in times] if inputs.whole else [float(time) for time in times]
        caller = Denoiser(
            self.denoiser.network,
            ForwardProcess.rectified_flow(len(index)),  # only numbers the levels: x_t is computed in `Measured`
            predicts="x0",
            variance=self.denoiser.variance,
            clip=None,
            shape=self.data.shape,
            device=self.denoiser.device,
            time_input=lambda i: fed[i - 1],
            dtype=self.dtype,
        )
        return caller if self.denoiser.autocast is None else caller.faster(autocast=self.denoiser.autocast)


class Measured:
    """Errors [readings, levels, draws] for one `Inputs`; NaN where the network has not run."""

    def __init__(self, meter: Meter, inputs: Inputs) -> None:
        self.meter, self.inputs = meter, inputs
        log_snr = inputs.log_snr[1:]
        self.index: Indices = 1 + np.array([int(np.abs(log_snr - target).argmin()) for target in meter.targets])
        self.log_snr = inputs.log_snr[self.index]
        self.errors = np.full((len(meter.readings), len(self.index), meter.draws), np.nan)

    @property
    def levels(self) -> Indices:
        """All noise levels."""
        return np.arange(len(self.index))

    @property
    def few(self) -> Indices:
        """A third of the levels, for a first look; all levels that its process has, if it lacks one of those."""
        targets, own = self.meter.targets, self.inputs.log_snr[1:]
        few = self.levels[1::3] if len(self.levels) > 6 else self.levels
        inside = (targets <= own.max() + NEAR) & (targets >= own.min() - NEAR)
        return few if inside[few].all() or inside.sum() < 2 else self.levels[inside]

    def ensure(self, levels: Indices, draws: int) -> None:
        """Run the network where it has not run yet, at these levels and the first ``draws`` draws."""
        # Two targets may share a grid index; the network runs once for both.
        first = {int(index): int(k) for k, index in reversed(list(enumerate(self.index)))}
        wanted = sorted({first[int(self.index[k])] for k in levels})
        todo = [(k, i) for k in wanted for i in range(draws) if np.isnan(self.errors[0, k, i])]
        with _mode(self.meter.modules, self.inputs.training):
            caller = self.meter.caller(self.inputs, self.index) if todo else None
            if self.inputs.training:
                for module in self.meter.modules:
                    module.train()
            for start in range(0, len(todo), self.meter.batch_size):
                assert caller is not None
                self._pass(caller, np.array(todo[start : start + self.meter.batch_size]))
        for k in levels:
            self.errors[:, k] = self.errors[:, first[int(self.index[k])]]

    def _pass(self, caller: Denoiser, pairs: Indices) -> None:
        meter, inputs = self.meter, self.inputs
        level, draw = pairs[:, 0], pairs[:, 1]
        y, conditioning = meter.clean(draw, inputs)
        eps = meter.noise(level, draw, inputs)
        per_sample = (-1, *[1] * (y.ndim - 1))
        f, g, input_scale = (
            torch.from_numpy(array[self.index[level]]).to(y).reshape(per_sample)
            for array in (inputs.f, inputs.g, inputs.input_scale)
        )
        x_t = f * y + g * eps
        prediction = caller(input_scale * x_t, torch.from_numpy(level + 1), conditioning)
        meter.dtype = caller.dtype
        meter.evaluations += len(pairs)
        halves = [prediction.x0_hat]
        if prediction.fraction is not None:
            halves.append(2.0 * prediction.fraction - 1.0)
        snr = (f / g).flatten() ** 2
        for number, reading in enumerate(meter.readings):
            x0_hat = reading(halves[reading.half], x_t, f, g)
            squared = meter.mean_square(y - x0_hat, draw, inputs)
            self.errors[number, level, draw] = (snr * squared).cpu().numpy()

    def linear_errors(self, levels: Indices, draws: int, mean: Array, variance: Array) -> Array:
        """Errors [levels, draws] of the best linear denoiser that knows mean and variance of every dimension [*shape]."""
        errors = np.empty((len(levels), draws))
        plain = replace(self.inputs, scale=np.ones(1), shift=np.zeros(1), arrange=None)
        y, _ = self.meter.clean(np.arange(draws), plain)
        centre, spread = (torch.from_numpy(each).to(y) for each in (mean, variance))
        for row, k in enumerate(levels):
            noise = self.meter.noise(np.full(draws, k), np.arange(draws), plain)
            snr = math.exp(self.log_snr[k])
            gain = snr * spread / (1.0 + snr * spread)  # of x_t/f = y + eps/sqrt(snr)
            x0_hat = centre + gain * (y + noise / math.sqrt(snr) - centre)
            errors[row] = (snr * self.meter.mean_square(y - x0_hat, np.arange(draws), plain)).cpu().numpy()
        return errors

    @property
    def draws(self) -> int:
        """Number of draws measured at every level."""
        return int((~np.isnan(self.errors[0])).all(axis=0).sum())

    def of(self, reading: int, levels: Indices, draws: int) -> tuple[Array, Array]:
        """Log-SNR [levels], rising, and errors [levels, draws] of a reading."""
        order = np.argsort(self.log_snr[levels], kind="stable")
        chosen = levels[order]
        return self.log_snr[chosen], self.errors[reading][chosen][:, :draws]


@contextmanager
def _mode(modules: list[nn.Module], training: bool) -> Iterator[None]:
    """Restore every module afterwards: its mode, buffers and attributes, and the random state, which dropout advances."""
    if not training:
        yield
        return
    restore = [_restorer(part) for part in {part: None for module in modules for part in module.modules()}]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            for each in restore:
                each()


def _restorer(part: nn.Module) -> Callable[[], None]:
    """Return a function that restores a module's current state, since modules in training mode update theirs.

    The state is its attributes, the contents of their lists and dictionaries, and the values of tensors besides parameters.
    """
    attributes = dict(vars(part))
    containers = [
        (value, copy.copy(value)) for value in attributes.values() if isinstance(value, (dict, list, set, deque))
    ]
    tensors = [*part.buffers(recurse=False), *(value for value in attributes.values() if isinstance(value, Tensor))]
    numbers = [(tensor, tensor.detach().clone()) for tensor in tensors]

    def restore() -> None:
        vars(part).clear()
        vars(part).update(attributes)
        for container, kept in containers:
            container.clear()
            fill = container.extend if isinstance(container, (list, deque)) else container.update
            fill(kept)
        with torch.no_grad():
            for tensor, before in numbers:
                tensor.copy_(before)

    return restore
