"""Stage 5. Decoder variance g̃²(t1, t2) of the last step t1 and the SECOND kept step t2: improved-diffusion's respaced chain.

The cost of a path is then no sum over single steps, so the last two steps have a joint cost. With a learned variance it is
ln σ² = φ ln g_{t1}² + (1 − φ) ln g̃²(t1, t2) per dimension, φ at t1, and depends on t2 through δ = ln(g_{t1}²/g̃²(t1, t2)).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..fitted import Fitted
from ..options import EXACT, Cdf
from ..process import ForwardProcess
from ..statistics import artefact
from ..statistics.artefact import Statistics
from ..statistics.bins import chebyshev_matrix
from ..variances.fractions import fraction_blocks_at, fraction_means
from . import Array, DecoderVariance, LearnedDecoder
from .curve import decoder_curve

RULE = (
    "The respaced decoder takes its variance from a second step, so a path needs two steps. Ask for 2 steps or more, or choose "
    "another decoder."
)


def _value(process: ForwardProcess, t: int, t2: int | None, fitted: Fitted) -> float:
    if t2 is None:
        raise ValueError(RULE)
    return float(process.posterior_variance(t2, t))


def _check(process: ForwardProcess) -> None:
    if process.T < 2:
        raise ValueError("decoder='respaced' takes its variance from a second step; this grid has only one.")


def _row(statistics: Statistics, t1: int, cdf: Cdf) -> Array:
    """Dec(t1, t2) for every t2 > t1."""
    process = statistics.process
    delta, size = artefact.learned_decoder_delta(process, t1), artefact.learned_decoder_size(process)
    if statistics.data_range.levels is None or delta.size <= size or cdf != EXACT:
        # few variances, or a formula with a kink: each is evaluated directly
        return decoder_curve(statistics, t1, process.posterior_variance(np.arange(t1 + 1, process.T + 1), t1), cdf)
    values = decoder_curve(
        statistics, t1, process.g[t1] ** 2 * np.exp(-artefact.learned_decoder_nodes(process, t1, size))
    )
    return np.asarray(chebyshev_matrix(0.0, float(delta[0]), size, delta) @ values)


# --- with a learned variance ---------------------------------------------------------------------------------------------


def _learned_row(statistics: Statistics, t1: int, cdf: Cdf) -> Array:
    delta = artefact.learned_decoder_delta(statistics.process, t1)
    if statistics.data_range.levels is None:
        assert statistics.fraction_sum is not None
        _, weighted = fraction_means(statistics, t1, delta)
        fraction = float(statistics.fraction_sum[t1].mean())
        return _gaussian_nats(statistics, t1, delta, (statistics.dims, fraction), weighted=weighted)
    if cdf != EXACT:
        raise ValueError(
            f"cdf={cdf!r} with a learned decoder variance is only available by direct evaluation, bits_per_dim(denoiser, data, "
            f"schedule, decoder='respaced', cdf={cdf!r}): statistics hold that decoder with cdf='exact' only."
        )
    assert statistics.learned_decoder is not None
    values = statistics.learned_decoder[t1]
    if delta.size <= values.size:
        return np.asarray(values[: delta.size])
    return np.asarray(chebyshev_matrix(0.0, float(delta[0]), values.size, delta) @ values)


def _learned_units(statistics: Statistics, t1: int, t2: int, fraction: Array) -> Array:
    delta = artefact.learned_decoder_delta(statistics.process, t1)
    at = delta[[t2 - t1 - 1]]
    if statistics.data_range.levels is None:
        _, weighted = fraction_blocks_at(statistics, np.array([t1]), at, least_range=1e-9)
        return _gaussian_nats(statistics, t1, at, (statistics.block_dims, fraction), weighted=weighted[0])
    assert statistics.learned_decoder_blocks is not None
    blocks = statistics.learned_decoder_blocks[t1]
    if delta.size <= blocks.shape[1]:
        return np.asarray(blocks[:, t2 - t1 - 1])
    return np.asarray(blocks @ chebyshev_matrix(0.0, float(delta[0]), blocks.shape[1], at)[0])


def _gaussian_nats(statistics: Statistics, t1: int, delta: Array, sums: tuple[Any, Any], weighted: Array) -> Array:
    """Density of continuous data, from ``sums``, dims and Σ φ, and Σ e² exp(−φδ): ln σ² = ln g² − (1 − φ) δ."""
    dims, fraction = sums
    log_variance = dims * (math.log(2.0 * math.pi) + 2.0 * np.log(statistics.process.g[t1]))
    inverse = weighted * np.exp(delta) / statistics.process.g[t1] ** 2
    return np.asarray(0.5 * (log_variance - delta * (dims - fraction) + inverse))


def _learned_value(process: ForwardProcess, t1: int, scalar: float, fraction: Any) -> Any:
    return (fraction * (2.0 * math.log(process.g[t1])) + (1.0 - fraction) * math.log(scalar)).exp()


DECODER = DecoderVariance(
    _value,
    couples=RULE,
    row=_row,
    learned=LearnedDecoder(_learned_row, _learned_units, _learned_value),
    check=_check,
)
