"""Values that the network may expect as time.

Integers stay within 0 … the largest declared one: an out-of-range row of an embedding table is a GPU error from which the
process cannot recover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..description import Array, Change, Facts, Inputs

MOST = 1e6  # the largest time that is tried


def _fed(values: Callable[[Inputs, Facts], Array | None], whole: bool | None = None) -> Callable[..., Inputs | None]:
    """The change to these times; ``whole`` None keeps the declared kind of number."""

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
    """Times ``by`` training steps later; None for floats that are not evenly spaced."""

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
    # First, so that times that differ from others only in this are skipped if it makes no difference.
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
