"""Stage 5. The optimal reverse variance per dimension and step (Bao et al. 2022, diagonal form).

With m_d = E e_d² at t, the variance g̃² + b² m_d of dimension d is the best for the step t → s, and costs

    L(t, s) = ½ Σ_d ln(1 + Δ m_d)        on the data that were fitted,
    L(t, s) = ½ Σ_d [ln(1 + Δ m_d) + Δ (m'_d − m_d)/(1 + Δ m_d)]     on other data, with their own m'.

By Jensen's inequality the first is at most the scalar's ½ dims ln(1 + Δ mean m). The second need not be: a dimension that is
constant in few samples (the border of an image) has m_d = 0, and costs without bound when it is not so in others. So m_d is
drawn towards the mean over dimensions as κ more samples would draw it, with the κ for which each half of the samples scores
the other half best.

Rows are functions of Δ alone. They are computed at `NODES` Chebyshev nodes of ln Δ and interpolated, so a table takes
T · NODES · dims logarithms instead of T² dims/2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..fitted import Fitted
from ..options import Decoder
from ..statistics.artefact import Statistics
from ..statistics.bins import chebyshev_matrix, chebyshev_nodes
from ..statistics.diagonal import DiagonalErrors
from .elbo import elbo_costs
from .steps import snr_difference
from .table import CostTable

Array = npt.NDArray[np.float64]
NODES = 96
PSEUDO_SAMPLES = tuple(2.0**power for power in range(-2, 13))


def fit_diagonal(errors: DiagonalErrors) -> tuple[Array, float]:
    """m_d at every grid index, [T+1, dims], drawn towards the mean over dimensions; and the κ that was chosen."""
    halves = errors.halves.reshape(2, errors.process.T + 1, -1)[:, 1:]
    counts = errors.counts

    def misfit(kappa: float) -> float:
        total = 0.0
        for mine, other, count in ((halves[0], halves[1], counts[0]), (halves[1], halves[0], counts[1])):
            m = _drawn(mine, count, kappa)
            # Typical steps have Δ of about 1/m; shorter ones care less for the variance, longer ones are as sensitive.
            Delta = 1.0 / np.maximum(m.mean(axis=1, keepdims=True), 1e-300)
            total += float((np.log1p(Delta * m) + Delta * (other - m) / (1.0 + Delta * m)).sum())
        return total

    kappa = min(PSEUDO_SAMPLES, key=misfit)
    m = _drawn(errors.mean.reshape(errors.process.T + 1, -1), errors.samples, kappa)
    return m, kappa


def _drawn(m: Array, count: int, kappa: float) -> Array:
    return np.asarray((count * m + kappa * m.mean(axis=1, keepdims=True)) / (count + kappa))


def diagonal_costs(
    statistics: Statistics,
    errors: DiagonalErrors,
    fit: Array | None = None,
    decoder: Decoder = "upper",
    fitted: Fitted | None = None,
) -> CostTable:
    """The table L[t, s] with one variance per dimension and step; the decoder's column is that of `elbo_costs`.

    Args:
        statistics: of the same data, for the decoder and the prior.
        errors: of the data that are scored here.
        fit: m_d from `fit_diagonal` of other data; fitted on ``errors`` by default.
        decoder: see `elbo_costs`; not "respaced".
        fitted: the decoder's numbers fitted on other data.
    """
    if decoder == "respaced":
        raise ValueError("The diagonal variance is available with the decoders 'upper', 'first_pair' and 'optimal'.")
    statistics.check_process(errors.process)
    process, T = statistics.process, statistics.process.T
    m = fit_diagonal(errors)[0] if fit is None else fit
    test = errors.mean.reshape(T + 1, -1)
    if m.shape != test.shape or test.shape[1] != statistics.dims:
        raise ValueError(
            f"Fitted numbers must be [T + 1, dims] = {(T + 1, statistics.dims)}, but they are {m.shape}, and those of the data "
            f"{test.shape}. Fit on the same grid and shape."
        )
    base = elbo_costs(statistics, "posterior", decoder, fitted)
    L = np.full((T + 1, T + 1), np.inf)
    L[:, 0] = base.L[:, 0]
    for t in range(2, T + 1):
        L[t, 1:t] = step_costs(snr_difference(process, t, np.arange(1, t)), m[t], test[t])
    options = {**base.options, "variance": "diagonal"}
    return replace(base, L=L, options=options, unit_terms=None, unit_totals=None)


def step_costs(Delta: Array, m: Array, test: Array) -> Array:
    """L for each Δ, from m_d that were fitted and m'_d of the data: both [dims]."""
    if Delta.size <= NODES:
        return _exact(Delta, m, test)
    low, high = float(np.log(Delta.min())), float(np.log(Delta.max()))
    nodes = np.exp(chebyshev_nodes(low, high, NODES))
    # L/Δ^½ has a range of a few powers of ten where L has ten, so that small costs keep their digits.
    values = _exact(nodes, m, test) / np.sqrt(nodes)
    return np.asarray(chebyshev_matrix(low, high, NODES, np.log(Delta)) @ values * np.sqrt(Delta))


def _exact(Delta: Array, m: Array, test: Array) -> Array:
    product = Delta[:, None] * m
    return np.asarray(0.5 * (np.log1p(product) + Delta[:, None] * (test - m) / (1.0 + product)).sum(axis=1))
