"""Stage 5. Variance between the two fixed ones, as the network predicts: ln σ² = φ ln g²_ts + (1 − φ) ln g̃²_ts.

Nichol and Dhariwal (2021); φ = (v + 1)/2 per dimension, not clamped.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..fitted import Fitted
from ..process import ForwardProcess
from . import Array, Errors, ReverseVariance, Steps


def _nats(steps: Steps, errors: Errors, fitted: Fitted) -> Array:
    """½ E Σ [−1 + φδ + exp(−φδ)(1 + Δ e²)]."""
    spread = errors.decay - steps.dims
    return np.asarray(0.5 * (steps.delta * errors.fraction + spread + steps.Delta * errors.weighted))


def learned_value(process: ForwardProcess, t: int, s: int, fraction: Any, fitted: Fitted) -> Any:
    """One variance per element of ``fraction``, a tensor."""
    posterior, upper = float(process.posterior_variance(t, s)), float(process.g2_ts(t, s))
    return (fraction * math.log(upper) + (1.0 - fraction) * math.log(posterior)).exp()


VARIANCE = ReverseVariance(_nats, learned_value, learned=True)
