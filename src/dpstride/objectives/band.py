"""Stage 6. The objective for samples: divergence from the data, summed over a band of noise levels.

At a noise level τ the data have the distribution q_τ, and the chain stopped at τ has p_τ. KL(q_τ ‖ p_τ) is at most B_τ, the
prior and the divergences of the steps down to τ, where the step t > τ > s that crosses τ counts as t → τ. With weights
dw_τ >= 0

    Σ_τ B_τ dw_τ = constant + Σ_steps L_w(t, s),   L_w(t, s) = w_s L(t, s) + Σ_{s < τ < t} dw_τ L(t, τ),   w_0 = 0

is again a sum over steps: exact dynamic programming, every budget, no network pass beyond those of `estimate`. With `posterior`
variance L(t, τ) = ½ M_t (u_τ − u_t), where u = 1/σ² and M_t = E Σ e², and summing by parts gives

    L_w(t, s) = ½ M_t (Φ_s − Φ_t),   Φ_s = Σ_{τ >= s} w_τ (u_τ − u_{τ+1}),   u_{T+1} = 0,   w_0 u_0 = 0

the paper's cost with Φ in place of the signal-to-noise ratio, which the solver takes without a table.

That sum ignores errors that a sampler forgets or repairs, and two numbers moderate it. ``cap`` bounds an error by a multiple of
the data's own variance: the error of an eps network at pure noise may be mere clipping, which later steps repair.
``evenness`` is a share:

    (1 − evenness) L_w(t, s) / C  +  evenness · K₀ ((t − s)/T)²

where C is the cost of the best path of K₀ = 8 steps, and 1/K₀ that of even steps. Equal increments minimise a sum of
squares, so evenness alone gives even steps; both parts fall about as 1/K, so one share serves neighbouring budgets. `Band` and
`band_costs` have neither by default; `DEFAULT`, with which schedules for samples are made, has both.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..options import (
    DEFAULT_DECODER,
    DEFAULT_ODE_SAMPLER,
    POSTERIOR,
    SAMPLERS,
    SAMPLES,
    SAMPLES_VARIANCE,
    CostOptions,
    Decoder,
    Sampler,
    Variance,
    check_choice,
)
from ..process import ForwardProcess
from ..runs.arguments import check_kinds
from ..solver.costs import Lines
from ..statistics.artefact import Statistics
from .elbo import elbo_costs, provenance_of
from .step_costs import StepCosts

Array = npt.NDArray[np.float64]
UNIT = "nats weighted over a band of noise levels"
EVENED_UNIT = "shares of what 8 steps cost"
REFERENCE = 8  # steps at which a path's cost and evenness are put on one scale


@dataclass(frozen=True)
class Band:
    """The weight of noise levels: w(σ) = 0 below ``low``, σ^``exponent`` from there to ``high``, ``high``^``exponent`` above.

    σ = g/f over the data's standard deviation per dimension, so that one band serves images, latents, vectors and signals.
    Levels below ``low`` do not count, and those above ``high`` count as much as ``high``. An exponent of 0 with ``low`` = 0 is
    the ELBO without its decoder; 2 weighs a small error of the variance as the squared Wasserstein distance does. Errors count
    as at most ``cap`` times the data's own variance; ``evenness`` is the share of even steps in the cost.
    """

    exponent: float = 1.3
    low: float = 0.2
    high: float = 20.0
    cap: float = math.inf
    evenness: float = 0.0

    def __post_init__(self) -> None:
        numbers = ("exponent", "low", "high", "cap", "evenness")
        for name, value in ((name, getattr(self, name)) for name in numbers):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or math.isnan(value):
                raise ValueError(f"The band's {name} must be a number, not {value!r:.80}.")
        if not 0.0 <= self.exponent < math.inf:
            raise ValueError(
                f"The exponent must be a finite number of at least 0, not {self.exponent}: the weight of noise levels must not "
                "fall with σ, or the sum bounds nothing. Use a number such as 1."
            )
        if not 0.0 <= self.low < self.high:
            raise ValueError(
                f"The band must begin below its end and not below 0, but it is ({self.low}, {self.high}). Give (low, high), in "
                "standard deviations of the data."
            )

        if not self.cap > 0.0:
            raise ValueError(
                f"cap must be a positive multiple of the data's variance, not {self.cap}. Leave it out for no cap."
            )
        if not 0.0 <= self.evenness < 1.0:
            raise ValueError(
                f"evenness must be a share from 0 to less than 1, not {self.evenness}. For even steps use even_stride."
            )

    @property
    def words(self) -> str:
        """The band as tables show it."""
        return (
            f"band {self.exponent:.3g}, {self.low:.3g}–{self.high:.3g}"
            + (f", cap {self.cap:.3g}" if self.cap < math.inf else "")
            + (f", {self.evenness:.0%} even" if self.evenness else "")
        )

    def weights(self, sigma: Array) -> Array:
        """w at every grid index, [T + 1]; 0 at index 0, and not read at T where σ may be infinite."""
        found = np.where(sigma < self.low, 0.0, np.minimum(sigma, self.high) ** self.exponent)
        found[0] = 0.0
        return np.asarray(found)


DEFAULT = Band(cap=1.5, evenness=0.5)  # chosen on training images: docs/beyond/samples.md


def relative_sigma(process: ForwardProcess, deviation: float) -> Array:
    """σ = g/f over the data's standard deviation at every grid index, [T + 1]; infinite where f = 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(process.g / process.f / deviation)


def band_levels(process: ForwardProcess, band: Band, deviation: float) -> Array:
    """Φ at every grid index, [T + 1], for costs in nats per E Σ e²: u is in units of the data, 1/(σ deviation)².

    At s = 0 it is Φ_1, since w_0 u_0 = 0: the step to clean data counts as one to the lowest level of the grid.
    """
    sigma = relative_sigma(process, deviation)
    if math.isinf(band.high) and math.isinf(sigma[-1]) and band.exponent >= 2.0:
        raise ValueError(
            f"An exponent of {band.exponent} without an upper end of the band has no finite weight on this process, whose last "
            "grid point is pure noise. Give the band an upper end, such as 10, or an exponent below 2."
        )
    weights = band.weights(sigma)[1:]
    snr = (process.f[1:] / process.g[1:]) ** 2
    # At pure noise w_T may be infinite where u_T is 0; their product is the limit of σ^(p − 2) for p < 2, which is 0.
    terms = np.where(snr > 0.0, weights, 0.0) * (snr - np.append(snr[1:], 0.0))
    levels = np.empty(process.T + 1)
    levels[1:] = np.cumsum(terms[::-1])[::-1]
    levels[0] = levels[1]
    return levels


def band_costs(
    statistics: Statistics,
    exponent: float = DEFAULT.exponent,
    band: tuple[float, float] = (DEFAULT.low, DEFAULT.high),
    variance: Variance = POSTERIOR,
    *,
    cap: float = math.inf,
    evenness: float = 0.0,
) -> StepCosts:
    """Return the cost L_w[t, s] of every step for the quality of samples, in nats weighted over a band of noise levels.

    Args:
        statistics: from `estimate`.
        exponent: p of the weight w(σ) = σ^p; see `Band`.
        band: (low, high), the noise levels that count, in standard deviations of the data.
        variance: reverse variance of the divergences L(t, s), whichever is used to sample; all but `posterior` need a table.
        cap: largest error that counts, as a multiple of the data's own variance; for the `posterior` form.
        evenness: share of even steps in the cost, from 0 to less than 1; above 0 the cost is no longer in nats.

    Of paths with equal cost, such as those that differ only below the band, the solver takes the one with the smallest s first.
    """
    check_kinds(band_costs, statistics=statistics)
    chosen = Band(exponent, *_ends(band), cap=cap, evenness=evenness)
    deviation = data_deviation(statistics)
    costs: Lines | Array
    if variance == POSTERIOR:
        weights = statistics.squared_error.mean(axis=1)
        weights = np.minimum(weights, cap * deviation**2 * statistics.dims)
        levels = band_levels(statistics.process, chosen, deviation)
        costs = Lines(levels, weights, 0.5 * weights * (levels[1] - levels))
    elif cap < math.inf:
        raise ValueError(f"Only the {POSTERIOR!r} form has errors to cap. Leave cap or variance={variance!r} out.")
    else:
        costs = weighted_table(
            elbo_costs(statistics, variance).L, chosen.weights(relative_sigma(statistics.process, deviation))
        )
    if evenness:
        costs = mixed_with_evenness(costs, evenness)
    return StepCosts(
        process=statistics.process,
        dims=statistics.dims,
        table=None if isinstance(costs, Lines) else costs,
        lines=costs if isinstance(costs, Lines) else None,
        unit=EVENED_UNIT if evenness else UNIT,
        options={
            "objective": SAMPLES,
            "exponent": float(exponent),
            "band": [chosen.low, chosen.high],
            "divergence": variance,
            **({"cap": float(cap)} if cap < math.inf else {}),
            **({"evenness": float(evenness)} if evenness else {}),
        },
        provenance=provenance_of(statistics),
    )


@dataclass(frozen=True)
class SamplesPlan:
    """Settings of schedules for samples: which noise levels count, and the sampler.

    Attributes:
        band: noise levels that count, and their weight.
        sampler: sampler recorded in schedules, used unless another is given.
        eta: its noise option, if it has one.
    """

    band: Band = DEFAULT
    sampler: Sampler = DEFAULT_ODE_SAMPLER
    eta: float = 0.0

    def __post_init__(self) -> None:
        check_choice("sampler", self.sampler, SAMPLERS)

    @classmethod
    def of(cls, band: Band | None, sampler: Sampler | None, eta: float | None) -> SamplesPlan:
        """The plan, with defaults in place of None."""
        return cls(band or DEFAULT, sampler or DEFAULT_ODE_SAMPLER, 0.0 if eta is None else eta)

    def costs(
        self, statistics: Statistics, variance: Variance | None = None, decoder: Decoder = DEFAULT_DECODER
    ) -> StepCosts:
        """Return `band_costs` whose schedules carry sampler, eta and ``variance``, and have the ELBO's bits/dim as well.

        The variance of ancestral steps matters as much as the path; when None, it is the one that maximises the ELBO.
        """
        likelihood = elbo_costs(statistics, variance or SAMPLES_VARIANCE, decoder)
        costs = costs_over(self.band, statistics)
        scored = CostOptions.from_dict(likelihood.options).to_dict()
        return replace(
            costs,
            likelihood=likelihood,
            fitted=likelihood.fitted,
            options={**scored, **costs.options, "sampler": self.sampler, "eta": float(self.eta)},
        )


def costs_over(band: Band, statistics: Statistics) -> StepCosts:
    """Return `band_costs` of a `Band`."""
    ends = (band.low, band.high)
    return band_costs(statistics, band.exponent, ends, cap=band.cap, evenness=band.evenness)


def mixed_with_evenness(costs: Lines | Array, share: float) -> Array:
    """Costs and evenness of steps as one table; see the docstring of this module."""
    from ..solver import solve

    L = costs.table() if isinstance(costs, Lines) else costs
    T = len(L) - 1
    K = min(REFERENCE, T)
    least = solve(costs, K).cost(K)
    steps = np.subtract.outer(np.arange(T + 1.0), np.arange(T + 1.0)) / T
    return np.asarray((1.0 - share) / (least if least > 0.0 else 1.0) * L + share * K * steps**2)


def weighted_table(L: Array, weights: Array) -> Array:
    """L_w of any table L of divergences: each row's running sum from its end."""
    T = len(L) - 1
    found = np.full_like(L, np.inf)
    found[1, 0] = 0.0
    increments = np.diff(weights)  # dw_τ at τ − 1
    for t in range(2, T + 1):
        row = L[t, 1:t]
        beyond = np.cumsum((increments[: t - 1] * row)[::-1])[::-1]  # Σ_{τ >= s}, s from 1
        found[t, 0] = beyond[0]
        found[t, 1:t] = weights[1:t] * row + np.append(beyond[1:], 0.0)
    return found


def data_deviation(statistics: Statistics) -> float:
    """The data's standard deviation per dimension (root mean square over dimensions); its root mean square for older files."""
    kept = statistics.data.get("deviation")
    if kept is not None and kept <= 0.0:
        raise ValueError(
            "All samples of the data are the same, so noise levels cannot be measured in their standard deviation. Give data "
            "that vary."
        )
    if kept is not None:
        return float(kept)
    warnings.warn(
        "These statistics do not hold the data's standard deviation (they are of version 0.1, or of a single sample), so noise "
        "levels are measured by the data's root mean square instead. Estimate again for exact noise levels.",
        stacklevel=3,
    )
    return math.sqrt(float(statistics.data_square.mean()) / statistics.dims)


def _ends(band: object) -> tuple[float, float]:
    if not isinstance(band, (tuple, list)) or len(band) != 2:
        raise ValueError(f"The band must be a pair (low, high) in standard deviations of the data, not {band!r:.80}.")
    return band[0], band[1]
