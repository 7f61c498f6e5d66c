"""Stage 5. The learned variance times the one factor c per step that maximises the ELBO.

A network learns its variance for steps to the next t. For longer steps that is right up to a factor, of which the best is
c = E Σ (1 + Δ e²) exp(−φδ)/dims. It is stored as two curves in δ for each t.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..fitted import CURVE_NODES, FACTOR_SIZE, Fit, Fitted
from ..options import Cdf
from ..process import ForwardProcess
from ..statistics import artefact
from ..statistics.artefact import Statistics
from ..statistics.bins import chebyshev_matrix, chebyshev_nodes
from . import Array, Errors, Index, ReverseVariance, Steps, snr_difference
from .fractions import fraction_means
from .learned_range import learned_value


def _nats(steps: Steps, errors: Errors, fitted: Fitted) -> Array:
    """½ [δ E Σφ + dims (ln c − 1) + E Σ (1 + Δ e²) exp(−φδ) / c]."""
    best = factor(fitted, steps.t, steps.delta, steps.Delta)
    spread = (errors.decay + steps.Delta * errors.weighted) / best
    return np.asarray(0.5 * (steps.delta * errors.fraction + steps.dims * (np.log(best) - 1.0) + spread))


def _value(process: ForwardProcess, t: int, s: int, fraction: Any, fitted: Fitted) -> Any:
    delta = math.log(float(process.g2_ts(t, s)) / float(process.posterior_variance(t, s)))
    best = float(factor(fitted, t, np.asarray(delta), snr_difference(process, t, s)))
    return learned_value(process, t, s, fraction=fraction, fitted=fitted) * best


def _fit(statistics: Statistics, indices: npt.NDArray[np.int64], cdf: Cdf) -> Array:
    """The largest δ of each index, and at Chebyshev nodes below it ln(E Σ exp(−φδ)/dims)/δ and ln(E Σ e² exp(−φδ)/dims)."""
    process = statistics.process
    found = np.full((process.T + 1, FACTOR_SIZE), np.nan)
    for t in indices.tolist():
        _, most = artefact.fraction_range(process, t)
        nodes = chebyshev_nodes(0.0, max(most, 1e-6), CURVE_NODES)
        means = np.stack(fraction_means(statistics, t, nodes)) / statistics.dims
        decay, weighted = np.log(np.maximum(means, 1e-300))
        # Rounded so that schedule files stay small; all code uses the rounded numbers.
        found[t] = np.round([most, *(decay / nodes), *weighted], 6)
    return found


def factor(fitted: Fitted, t: Index, delta: Array, Delta: Array) -> Array:
    """c = E Σ (1 + Δ e²) exp(−φδ) / dims of steps from t, from the curves of `_fit`."""
    rows = fitted.of(FIT)[np.broadcast_to(t, np.shape(delta))]
    share = delta / np.maximum(rows[..., 0], 1e-300)
    nodes = chebyshev_matrix(0.0, 1.0, CURVE_NODES, np.reshape(share, -1)).reshape(*np.shape(delta), 1, CURVE_NODES)
    curves = (rows[..., 1:].reshape(*np.shape(delta), 2, CURVE_NODES) * nodes).sum(axis=-1)
    return np.asarray(np.exp(delta * curves[..., 0]) + Delta * np.exp(curves[..., 1]))


FIT = Fit("learned_factor", on=_fit, note="The factors of the learned variance are those fitted on all samples.")
VARIANCE = ReverseVariance(_nats, _value, learned=True, fit=FIT)
