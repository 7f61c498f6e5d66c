"""Stage 5. The one variance per step that maximises the ELBO, g̃² (1 + Δ m) with m = E Σ e²/dims (Bao et al. 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fitted import Fit, Fitted
from ..process import ForwardProcess
from . import Array, Errors, ReverseVariance, Steps

FIT = Fit(
    "mean_squared_error",
    on=lambda statistics, indices, cdf: statistics.mean_squared_error,
    from_errors=lambda m, data_range: m,
)


def _nats(steps: Steps, errors: Errors, fitted: Fitted) -> Array:
    """½ dims ln(1 + Δ m), plus the cost of errors other than the fitted ones: ½ dims Δ (m' − m)/(1 + Δ m)."""
    m = fitted.of(FIT)[steps.t]
    excess = (errors.squared_error / steps.dims - m) * steps.Delta / (1.0 + steps.Delta * m)
    return np.asarray(0.5 * steps.dims * (np.log1p(steps.Delta * m) + excess))


def _value(process: ForwardProcess, t: int, s: int, fraction: Any, fitted: Fitted) -> float:
    _, b = process.posterior_mean(t, s)
    return float(process.posterior_variance(t, s)) + float(b) ** 2 * float(fitted.of(FIT)[t])


VARIANCE = ReverseVariance(_nats, _value, fit=FIT)
