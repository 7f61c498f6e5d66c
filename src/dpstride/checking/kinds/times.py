"""Candidates for what the network is fed as time.

Whole numbers never leave 0 … the largest that was declared: an embedding table that is asked for a row it does not have
stops a GPU for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..description import Array, Change, Facts, Inputs

MOST = 1e6  # no network is fed a larger time


def _fed(values: Callable[[Inputs, Facts], Array | None], whole: bool | None = None) -> Callable[..., Inputs | None]:
    """The change to these times; ``whole`` None keeps the kind of number that was declared."""

    def apply(inputs: Inputs, facts: Facts) -> Inputs | None:
        times = values(inputs, facts)
        if times is None or not np.isfinite(times[1:]).all() or np.abs(times[1:]).max() > MOST:
            return None
        is_whole = inputs.whole if whole is None else whole
        if is_whole:
            times = np.clip(np.floor(times), 0.0, max(inputs.time[1:].max(), facts.T - 1.0))
        return replace(inputs, time=np.concatenate([[0.0], times[1:]]), whole=is_whole)

    return apply


def _shifted(by: int) -> Callable[[Inputs, Facts], Array | None]:
    """One training step later or earlier; only even times have such a thing."""

    def values(inputs: Inputs, facts: Facts) -> Array | None:
        if inputs.whole:
            return inputs.time + by
        step = float(np.diff(inputs.time[1:]).mean()) if inputs.time.size > 2 else 0.0
        even = np.allclose(np.diff(inputs.time[1:]), step, 1e-6, 1e-12)
        return inputs.time + by * step if even else None

    return values


def _reversed(inputs: Inputs, facts: Facts) -> Array:
    first = inputs.time[1] if inputs.whole else 0.0
    return np.asarray(first + inputs.time[-1] - inputs.time)


def _index0(inputs: Inputs, facts: Facts) -> Array:
    return np.asarray(facts.origin - 1.0, dtype=np.float64)


TIMES: tuple[Change, ...] = (
    # First, so that times which differ from others in this alone are not tried where it makes no difference.
    Change("time as a float", "time_input=lambda i: float(...)", _fed(lambda i, _: i.time if i.whole else None, False)),
    Change("time one step later", "time_input=lambda i: i (training steps counted from 1)", _fed(_shifted(1))),
    Change("time one step earlier", "time_input='index0' (or one less than now)", _fed(_shifted(-1))),
    Change("time reversed", "time_input counted from the noise end", _fed(_reversed)),
    Change("time as index0", "time_input='index0'", _fed(_index0, whole=True)),
    Change("time as index0, a float", "time_input=lambda i: float(i - 1)", _fed(_index0, whole=False)),
    Change(
        "time as index0, reversed",
        "time_input=lambda i: T - i",
        _fed(lambda inputs, facts: np.asarray(facts.T - facts.origin, np.float64), whole=True),
    ),
    Change(
        "time in (0, 1]",
        "time_input=lambda i: i / T",
        _fed(
            lambda inputs, facts: facts.times / facts.times[-1] if facts.continuous else facts.origin / facts.T, False
        ),
    ),
    Change(
        "time in (0, 1000]",
        "time_input='time' of a grid to 1, with the network wrapped as network(x, 1000 * time)",
        _fed(
            lambda inputs, facts: (
                1000.0 * (facts.times / facts.times[-1] if facts.continuous else facts.origin / facts.T)
            ),
            False,
        ),
    ),
    Change(
        "time rescaled",
        "time_input='rescaled'",
        _fed(lambda inputs, facts: (facts.origin - 1.0) * 1000.0 / facts.T, False),
    ),
    Change(
        "declared time times 1000",
        "the network wrapped as network(x, 1000 * time)",
        _fed(lambda i, _: 1000.0 * i.time, False),
    ),
    Change(
        "declared time divided by 1000",
        "the network wrapped as network(x, time / 1000)",
        _fed(lambda i, _: i.time / 1000.0, False),
    ),
    Change("time as sqrt(alpha_bar)", "time_input=lambda i: float(process.f[i])", _fed(lambda i, _: i.f, False)),
    Change(
        "time as sigma = g/f",
        "time_input=lambda i: float(process.g[i] / process.f[i])",
        _fed(lambda i, _: i.g / np.maximum(i.f, 1e-9), False),
    ),
)
