"""Stage 5. The evidence lower bound as a sum of step costs (Eq. 16 and 17 of the paper, errata applied).

For 0 < s < t the cost is the KL divergence between q(x_s given x_t, x_0) and p(x_s given x_t). Both have the same mean
formula, in x_0 and in x̂_0, so with e = x_0 − x̂_0, Δ = snr_s − snr_t and δ = ln(g_t²/g_s²) it depends on the network
only through statistics of t: one pass per t fills a whole row. For s = 0 it is the decoder's −ln p(x_0 given x_t).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

import numpy as np

from ..fitted import Fitted, fields_of, shape_of
from ..objectives.step_costs import StepCosts
from ..options import Cdf, Decoder, Variance
from ..process import ForwardProcess
from ..statistics.artefact import Statistics
from .decoder import decoder_nats_at, optimal_decoder, respaced_row
from .steps import LEARNED, fit_factors, step_row
from .units import prior_nats_at, unit_terms, unit_totals

RESPACED_RULE = (
    "The respaced decoder takes its variance from a second step, so a path needs two steps. Ask for 2 steps or more, or choose "
    "another decoder."
)


def elbo_costs(
    statistics: Statistics,
    variance: Variance | None = None,
    decoder: Decoder = "upper",
    fitted: Fitted | None = None,
    cdf: Cdf = "exact",
) -> StepCosts:
    """The table L[t, s] of negative ELBO terms in nats, [T + 1, T + 1].

    Args:
        statistics: from `estimate`.
        variance: reverse variance of steps that end above 0; None is what the model was trained with.
        decoder: variance of the last step; see method.md, "s = 0, the decoder".
        fitted: numbers fitted on other data (``StepCosts.fitted`` or ``Schedule.fitted``), to score them on these
            statistics; by default `optimal` options are fitted here.
        cdf: "exact", or "tanh" for comparing with improved-diffusion's figures.
    """
    options = check_options(statistics.process, statistics.model["variance"], variance, decoder, cdf)
    fitted = fit(statistics, options) if fitted is None else _check_fitted(fitted, options, statistics.process.T)
    process, T = statistics.process, statistics.process.T
    L = np.full((T + 1, T + 1), np.inf)
    for t in range(2, T + 1):
        L[t, 1:t] = step_row(statistics, t, np.arange(1, t), options["variance"], fitted)
    pairs = None
    if options["decoder"] == "respaced":
        pairs = np.full((T + 1, T + 1), np.inf)
        for t1 in range(1, T):
            pairs[t1 + 1 :, t1] = L[t1 + 1 :, t1] + respaced_row(statistics, t1, options)
    else:
        for t in range(1, T + 1):
            L[t, 0] = decoder_nats_at(statistics, t, options, fitted)
    return StepCosts(
        process=process,
        table=L,
        dims=statistics.dims,
        options=options,
        pairs=pairs,
        pairs_rule=RESPACED_RULE,
        fitted=fitted,
        provenance={
            "model": statistics.model,
            "data": statistics.data,
            "data_range": statistics.data_range.describe(),
            "seed": statistics.seed,
            "process": process.fingerprint,
            "version": statistics.version,
        },
        unit_terms=partial(unit_terms, statistics, options=options, fitted=fitted),
        unit_totals=partial(unit_totals, statistics, options=options, fitted=fitted),
        prior=partial(prior_nats_at, statistics),
    )


def check_options(
    process: ForwardProcess, model_variance: str, variance: str | None, decoder: str = "upper", cdf: str = "exact"
) -> dict[str, Any]:
    """The options as they will be recorded, or a clear error; ``model_variance`` is what the model was trained with."""
    chosen = model_variance if variance is None else variance
    for name, value, choices in (
        ("variance", chosen, get_args(Variance)),
        ("decoder", decoder, get_args(Decoder)),
        ("cdf", cdf, get_args(Cdf)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r:.80}.")
    if chosen in LEARNED and model_variance != "learned_range":
        raise ValueError(
            f"variance={chosen!r} was asked of a model without a learned variance (it has {model_variance!r}). Use "
            "'posterior', 'upper' or 'optimal'."
        )
    if decoder == "first_pair" and process.kind != "discrete":
        raise ValueError(
            "decoder='first_pair' is defined by steps 2 → 1 of a discrete training grid, and this process is "
            "continuous. Use 'upper' or 'optimal'."
        )
    if decoder == "respaced" and process.T < 2:
        raise ValueError("decoder='respaced' takes its variance from a second step; this grid has only one.")
    return {"variance": chosen, "decoder": decoder, "cdf": cdf}


def fit(statistics: Statistics, options: Mapping[str, Any]) -> Fitted:
    """The numbers of `optimal` options, fitted on these statistics."""
    return Fitted(
        mean_squared_error=statistics.mean_squared_error if options["variance"] == "optimal" else None,
        decoder_variance=optimal_decoder(statistics, options["cdf"]) if options["decoder"] == "optimal" else None,
        learned_factor=(
            fit_factors(statistics, np.arange(1, statistics.process.T + 1))
            if options["variance"] == "learned_optimal"
            else None
        ),
    )


def _check_fitted(fitted: Fitted, options: Mapping[str, Any], T: int) -> Fitted:
    for option, name in fields_of(options).items():
        array = getattr(fitted, name)
        if array is None or array.shape != shape_of(name, T):
            raise ValueError(
                f"{option}={options[option]!r} needs fitted.{name} for every grid index (T + 1 = {T + 1} of them), which the "
                "schedule does not have. It comes from the data that chose the path: optimise with that option."
            )
    return fitted
