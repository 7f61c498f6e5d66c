"""Stage 5. Variance g²_ts, that of q(x_t given x_s): "fixed large", the setting of Ho et al. for CIFAR-10."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fitted import Fitted
from ..process import ForwardProcess
from . import Array, Errors, ReverseVariance, Steps


def _nats(steps: Steps, errors: Errors, fitted: Fitted) -> Array:
    """½ [dims (r − 1 − ln r) + r Δ E Σ e²] with r = g_s²/g_t²; by expm1, since adjacent steps have r ≈ 1."""
    log_r = -steps.delta
    width = steps.dims * (np.expm1(log_r) - log_r)
    return np.asarray(0.5 * (width + np.exp(log_r) * steps.Delta * errors.squared_error))


def _value(process: ForwardProcess, t: int, s: int, fraction: Any, fitted: Fitted) -> float:
    return float(process.g2_ts(t, s))


VARIANCE = ReverseVariance(_nats, _value)
