"""Stage 5. The decoder variance per t that minimises the decoder's own cost."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..fitted import Fit
from ..options import Cdf
from ..statistics.artefact import Statistics
from . import Array, DecoderVariance
from .curve import decoder_curve, log_sigma_range

COARSE = 33  # values of ln σ tried first; the minimum is then searched between neighbours of the best
QUICK = 97  # values of ln σ of which the best is taken if a few percent will do: the cost is flat near it


def _fit(statistics: Statistics, indices: npt.NDArray[np.int64], cdf: Cdf) -> Array:
    if statistics.data_range.levels is None:
        return statistics.mean_squared_error
    from scipy.optimize import minimize_scalar

    best = np.full(statistics.process.T + 1, np.nan)
    for t in indices.tolist():
        coarse = np.linspace(*log_sigma_range(statistics, t), COARSE)
        at = int(decoder_curve(statistics, t, np.exp(2.0 * coarse), cdf).argmin())
        bounds = (coarse[max(at - 1, 0)], coarse[min(at + 1, COARSE - 1)])

        def cost(log_sigma: float, t: int = t) -> float:
            return float(decoder_curve(statistics, t, np.exp([2.0 * log_sigma]), cdf)[0])

        found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-7})
        best[t] = math.exp(2.0 * float(found.x))
    return best


def _fit_quickly(statistics: Statistics, t: int, cdf: Cdf) -> float:
    if statistics.data_range.levels is None:
        return float(statistics.mean_squared_error[t])
    variances = np.exp(2.0 * np.linspace(*log_sigma_range(statistics, t), QUICK))
    return float(variances[decoder_curve(statistics, t, variances, cdf).argmin()])


FIT = Fit(
    "decoder_variance",
    on=_fit,
    at=_fit_quickly,
    from_errors=lambda m, data_range: m if data_range.levels is None else None,
    note="The decoder's variance is that fitted on all samples.",
)
DECODER = DecoderVariance(lambda process, t, t2, fitted: float(fitted.of(FIT)[t]), fit=FIT)
