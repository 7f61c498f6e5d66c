"""Stage 7. Distance between the end points of a few steps and those of all steps, from the same noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class EndpointDistance:
    """Root mean square distance per dimension between end points of the same noise, and its standard error."""

    value: float
    standard_error: float
    samples: int


def endpoint_distance(ends: Any, teacher: Any) -> EndpointDistance:
    """Distance of samples [n, *shape] from a teacher's samples of the same seeds, in the same order."""
    a, b = (np.asarray(x, dtype=np.float64) for x in (ends, teacher))
    if a.shape != b.shape or a.ndim < 2:
        raise ValueError(f"End points must have the same shape [n, *shape], not {a.shape} and {b.shape}.")
    squares = ((a - b) ** 2).reshape(len(a), -1).mean(axis=1)
    value = math.sqrt(float(squares.mean()))
    spread = float(squares.std(ddof=1)) / math.sqrt(len(a)) if len(a) > 1 else math.nan
    # By the delta method: the standard error of a root is that of the mean square over twice the root.
    return EndpointDistance(value, spread / (2.0 * value) if value > 0.0 else 0.0, len(a))
