"""Stage 6. The evidence lower bound as a sum of step costs (Eq. 16 and 17 of the paper, errata applied).

For 0 < s < t the cost is the KL divergence between q(x_s given x_t, x_0) and p(x_s given x_t). Their means have the same
formula, in x_0 and in x̂_0, so with e = x_0 − x̂_0, Δ = snr_s − snr_t and δ = ln(g_t²/g_s²) it depends on the network
only through statistics of t: one pass per t fills a whole row. For s = 0 it is the decoder's −ln p(x_0 given x_t).
"""

from __future__ import annotations

from typing import Any

from .. import decoders, variances
from ..fitted import Fitted
from ..options import DEFAULT_CDF, DEFAULT_DECODER, LEARNED_RANGE, VARIANCES, Cdf, CostOptions, Decoder, Variance
from ..process import ForwardProcess
from ..runs.arguments import check_kinds
from ..statistics.artefact import Statistics
from .engine import ElboEngine
from .step_costs import StepCosts


def elbo_costs(
    statistics: Statistics,
    variance: Variance | None = None,
    decoder: Decoder = DEFAULT_DECODER,
    fitted: Fitted | None = None,
    cdf: Cdf = DEFAULT_CDF,
) -> StepCosts:
    """The table L[t, s] of negative ELBO terms in nats, [T + 1, T + 1]; on grids of over 8,192 steps as lines where possible.

    Args:
        statistics: from `estimate`.
        variance: reverse variance of steps that end above 0; the one that the model was trained with when None.
        decoder: variance of the last step; see method.md, "s = 0, the decoder".
        fitted: numbers fitted on other data (``StepCosts.fitted`` or ``Schedule.fitted``), to score them on these
            statistics; by default `optimal` options are fitted here.
        cdf: "exact", or "tanh" for comparing with improved-diffusion's figures.
    """
    check_kinds(elbo_costs, statistics=statistics)
    options = check_options(statistics.process, statistics.model["variance"], variance, decoder, cdf=cdf)
    process = statistics.process
    if fitted is not None:
        _check_fitted(fitted, options, process.T)
    engine = ElboEngine(statistics, options, fitted)
    lines = engine.lines()
    L, pairs = engine.table() if lines is None else (None, None)
    return StepCosts(
        process=process,
        table=L,
        lines=lines,
        dims=statistics.dims,
        options=options.to_dict(),
        pairs=pairs,
        pairs_rule=decoders.find(options.decoder).couples,
        fitted=engine.fitted,
        provenance=provenance_of(statistics),
        unit_terms=engine.unit_terms,
        unit_totals=engine.unit_totals,
        prior=engine.prior_nats,
    )


def heldout_costs(heldout: Statistics, options: CostOptions, fitted: Fitted) -> StepCosts:
    """Costs on held-out data, with the options and fitted numbers of the choosing data."""
    known = fitted if fitted_numbers(options) else None
    return elbo_costs(heldout, options.variance, options.decoder, known, cdf=options.cdf)


def provenance_of(statistics: Statistics) -> dict[str, Any]:
    """The provenance of costs from these statistics, as schedules record it."""
    return {
        "model": statistics.model,
        "data": statistics.data,
        "data_range": statistics.data_range.describe(),
        "seed": statistics.seed,
        "process": statistics.process.fingerprint,
        "version": statistics.version,
        **({"shape": statistics.data["shape"]} if "shape" in statistics.data else {}),  # not in files of version 0.1
    }


def check_options(
    process: ForwardProcess,
    model_variance: Variance,
    variance: Any = None,
    decoder: Any = DEFAULT_DECODER,
    cdf: Any = DEFAULT_CDF,
) -> CostOptions:
    """The options as they are recorded, or a clear error; ``model_variance`` is the one that the model was trained with."""
    options = CostOptions(model_variance if variance is None else variance, decoder, cdf)
    if variances.find(options.variance).learned and model_variance != LEARNED_RANGE:
        *others, last = (repr(name) for name in VARIANCES if not variances.find(name).learned)
        raise ValueError(
            f"variance={options.variance!r} needs a model with a learned variance, but this one has {model_variance!r}. Use "
            f"{', '.join(others)} or {last}."
        )
    decoders.find(options.decoder).check(process)
    return options


def fitted_numbers(options: CostOptions) -> dict[str, str]:
    """Numbers that these options need fitted: "variance" or "decoder" → name of the numbers in `Fitted`."""
    fits = {"variance": variances.find(options.variance).fit, "decoder": decoders.find(options.decoder).fit}
    return {option: fit.numbers for option, fit in fits.items() if fit is not None}


def _check_fitted(fitted: Fitted, options: CostOptions, T: int) -> None:
    for option, name in fitted_numbers(options).items():
        if not fitted.has(name, T):
            raise ValueError(
                f"{option}={getattr(options, option)!r} needs fitted.{name} for every grid index (T + 1 = {T + 1} of them), "
                "which the schedule does not have. It comes from the data that chose the path: optimise with that option."
            )
