"""Stage 5. Variance g̃²_ts, that of q(x_s given x_t, x_0): the paper's own reverse process, "fixed small"."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fitted import Fitted
from ..process import ForwardProcess
from . import Array, Errors, ReverseVariance, Steps


def _nats(steps: Steps, errors: Errors, fitted: Fitted) -> Array:
    """½ Δ E Σ e²."""
    return np.asarray(0.5 * steps.Delta * errors.squared_error)


def _value(process: ForwardProcess, t: int, s: int, fraction: Any, fitted: Fitted) -> float:
    return float(process.posterior_variance(t, s))


VARIANCE = ReverseVariance(_nats, _value, in_lines=True)
