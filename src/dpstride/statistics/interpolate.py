"""Stage 3. Statistics at grid indices that were not evaluated, from those that were.

What a denoiser's statistics depend on is the noise level, and they change smoothly with it, so a few evaluated t stand for
the whole grid. Every field is filled, so that costs, standard errors, scores and comparisons read filled statistics as
they read estimated ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from ..process import ForwardProcess
from . import artefact
from .artefact import BLOCK_NODES, Statistics
from .bins import BinnedRows, chebyshev_matrix, chebyshev_nodes, moments_of

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
LEAST = 1e-300  # stands for zero where a logarithm is taken
LEAST_LOG_NATS = -20.0  # where the decoder is all but certain, blocks do not differ
FLAT_BELOW = 0.1  # of the snr at which the data's whole square equals the noise: nothing changes further out


def fill(statistics: Statistics, evaluated: npt.ArrayLike, rows: npt.ArrayLike | None = None) -> Statistics:
    """``statistics`` with every row that is not ``evaluated`` [T + 1] replaced by an interpolated one.

    The coordinate is u = −ln(snr_t + c), log-SNR with the far noise end drawn together (c = 0.1 / E Σ x_0², so that
    f_T = 0 is allowed too). Between evaluated a < t < b, with w the position of t between them in u:

    * means of Σ e², of the `upper` decoder's cost and of Σ φ: monotone cubic (PCHIP) in u, Σ e² by its logarithm; values
      of single samples: the weighted mean (1 − w, w) of their values at a and b, times (for Σ φ: plus) what gives that mean;
    * residuals: a mixture (1 − w, w) of those at a and b, each rescaled to the interpolated second moment;
    * φ, weighted by 1 and by e²: the same mixture, each shifted to the interpolated mean and weighted to the interpolated
      E Σ e²;
    * blocks of the decoder's cost: by their logarithm, the weighted mean at the same σ; blocks of φ: the curve of the
      interpolated distribution times the weighted ratio (by its logarithm) of block to mean, at the same δ;
    * the learned decoder: the `upper` decoder's cost times the weighted mean of its ratio to that at a and b, as a
      function of δ/δ_max.

    Row 0 of ``evaluated`` is ignored; rows 1 and T must be evaluated, since nothing is extrapolated. With ``rows``, grid
    indices, only those are filled, which is quick, and the others are left as they were.
    """
    mask = check_evaluated(statistics.process, evaluated)
    if mask[1:].all():
        return statistics
    place = Place.between(statistics, mask, rows)
    squared_error = fill_samples(statistics.squared_error, place, "log")
    changes: dict[str, Any] = {"squared_error": squared_error, "evaluated": mask}
    if statistics.decoder_upper is not None:
        changes["decoder_upper"] = fill_samples(statistics.decoder_upper, place, "positive")
    if statistics.fraction_sum is not None:
        changes["fraction_sum"] = fill_samples(statistics.fraction_sum, place, "signed")
    filled = replace(statistics, **changes)
    if statistics.residual_bins is not None:
        bins = _filled_residuals(filled, statistics.residual_bins, place)
        filled = replace(filled, residual_bins=bins)
        filled = replace(filled, decoder_blocks=_filled_decoder_blocks(filled, place))
    if statistics.fraction_bins is not None:
        bins = _filled_fractions(filled, statistics.fraction_bins, place)
        filled = replace(filled, fraction_bins=bins)
        filled = replace(filled, fraction_blocks=_filled_fraction_blocks(filled, place))
    if statistics.learned_decoder is not None:
        mean, blocks = _filled_learned_decoder(filled, place)
        filled = replace(filled, learned_decoder=mean, learned_decoder_blocks=blocks)
    return filled


def check_evaluated(process: ForwardProcess, evaluated: npt.ArrayLike) -> Mask:
    """The mask as an array of booleans by grid index, or a clear error."""
    mask = np.asarray(evaluated)
    if mask.dtype != np.bool_ or mask.shape != (process.T + 1,):
        raise ValueError(
            f"evaluated must be one boolean per grid index, {process.T + 1} of them, not {mask.dtype} of shape {mask.shape}."
        )
    if missing := [t for t in (1, process.T) if not mask[t]]:
        raise ValueError(
            f"Grid indices 1 and T = {process.T} must be evaluated, since statistics are interpolated and never "
            f"extrapolated, but {' and '.join(map(str, missing))} is not. Add it to the steps."
        )
    return mask & (np.arange(mask.size) > 0)


def noise_coordinate(process: ForwardProcess, data_square: float) -> Array:
    """u = −ln(snr + c) at every grid index from 1, in which statistics are smooth; u[0] = −inf. ``data_square``: E Σ x_0²."""
    u = np.full(process.T + 1, -np.inf)
    snr = (process.f[1:] / process.g[1:]) ** 2
    # The second term keeps u rising where snr is so far below c that it is lost in rounding.
    u[1:] = -np.log(snr + FLAT_BELOW / max(data_square, 1e-12)) + 1e-9 * np.arange(process.T)
    return u


def interpolate(u: Array, values: Array, mask: Mask) -> Array:
    """Monotone cubic interpolation in ``u`` of ``values`` [T + 1] that are known where ``mask``; row 0 is left alone."""
    from scipy.interpolate import PchipInterpolator

    known = np.flatnonzero(mask[1:]) + 1
    result = values.copy()
    if known.size > 1:
        wanted = np.flatnonzero(~mask[1:]) + 1
        result[wanted] = PchipInterpolator(u[known], values[known])(u[wanted])
    return result


@dataclass(frozen=True)
class Place:
    """Where each grid index lies between its evaluated neighbours, in the noise coordinate u."""

    mask: Mask
    u: Array
    below: npt.NDArray[np.int64]  # a <= t, evaluated
    above: npt.NDArray[np.int64]  # b >= t, evaluated
    weight: Array  # of b; of a it is one less
    wanted: Mask  # rows to fill

    @classmethod
    def between(cls, statistics: Statistics, mask: Mask, rows: npt.ArrayLike | None = None) -> Place:
        """The places of all grid indices, of which ``rows`` (all when None) are wanted."""
        wanted = np.full(mask.size, rows is None)
        if rows is not None:
            wanted[np.asarray(rows)] = True
        u = noise_coordinate(statistics.process, float(statistics.data_square.mean()))
        known = np.flatnonzero(mask[1:]) + 1
        t = np.arange(mask.size)
        above = known[np.searchsorted(known, t)]
        below = known[np.maximum(np.searchsorted(known, t, side="right") - 1, 0)]
        gap = u[above] - u[below]
        weight = np.divide(u - u[below], gap, out=np.zeros(mask.size), where=gap > 0.0)
        return cls(mask, u, below, above, weight, wanted)

    @property
    def missing(self) -> list[int]:
        """Grid indices to fill."""
        return [int(t) for t in np.flatnonzero((self.wanted & ~self.mask)[1:]) + 1]

    def neighbours(self, t: int) -> list[tuple[int, float]]:
        """Evaluated neighbours of t and their weights."""
        w = float(self.weight[t])
        return [(int(self.below[t]), 1.0 - w), (int(self.above[t]), w)]

    def mix(self, values: Array, t: npt.NDArray[np.int64]) -> Array:
        """Weighted means of the neighbours' rows, for each t."""
        w = self.weight[t].reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray((1.0 - w) * values[self.below[t]] + w * values[self.above[t]])


def fill_samples(values: Array, place: Place, kind: Literal["log", "positive", "signed"]) -> Array:
    """Values [T + 1, N] of single samples: means by PCHIP, samples by the weighted mean of their neighbours."""
    missing = np.array(place.missing, dtype=np.int64)
    means = values.mean(axis=1)
    if kind == "log":
        means = np.exp(interpolate(place.u, np.log(np.maximum(means, LEAST)), place.mask))
    else:
        means = interpolate(place.u, means, place.mask)
    mixed = place.mix(values, missing)
    mixed_means = mixed.mean(axis=1)
    filled = values.copy()
    if kind == "signed":
        filled[missing] = mixed + (means[missing] - mixed_means)[:, None]
    else:
        filled[missing] = mixed * _ratio(means[missing], mixed_means)[:, None]
    return filled


def _ratio(numerator: Any, denominator: Any) -> Any:
    """Their ratio; 1 where both vanish."""
    return np.where(denominator > LEAST, numerator / np.maximum(denominator, LEAST), 1.0)


# --- distributions ----------------------------------------------------------------------------------------------------


def _filled_residuals(filled: Statistics, known: BinnedRows, place: Place) -> BinnedRows:
    mean = filled.squared_error.mean(axis=1)

    @cache
    def points_of(a: int) -> tuple[Array, Array, Array]:
        bins, weights = known.row(a)
        mesh = filled.residual_mesh(a)
        return mesh.points(bins % mesh.bins).ravel(), weights.ravel(), np.repeat(bins >= mesh.bins, weights.shape[-1])

    def row(t: int) -> tuple[npt.NDArray[np.int64], Array]:
        mesh = filled.residual_mesh(t)
        parts = [(points_of(a), share, np.sqrt(_ratio(mean[t], mean[a]))) for a, share in place.neighbours(t)]
        q = np.concatenate([q * scale for (q, _, _), _, scale in parts])
        weights = np.concatenate([share * weights for (_, weights, _), share, _ in parts])
        edge = np.concatenate([edge for (_, _, edge), _, _ in parts])
        at, z = mesh.locate(torch.from_numpy(q).clamp(-mesh.reach, mesh.reach))
        index = at + mesh.bins * torch.from_numpy(edge)
        return _kept(moments_of(index, z, torch.from_numpy(weights), 2 * mesh.bins))

    return _with_rows(known, place, row)


def _filled_fractions(filled: Statistics, known: BinnedRows, place: Place) -> BinnedRows:
    assert filled.fraction_sum is not None
    fraction = filled.fraction_sum.mean(axis=1) / filled.dims
    squared_error = filled.squared_error.mean(axis=1)

    @cache
    def points_of(a: int) -> tuple[Array, Array]:
        bins, weights = known.row(a)
        return filled.fraction_mesh(a).points(bins).ravel(), weights.swapaxes(0, 1).reshape(2, -1)

    def row(t: int) -> tuple[npt.NDArray[np.int64], Array]:
        mesh = filled.fraction_mesh(t)
        parts = [
            (points_of(a), np.array([[share], [share * _ratio(squared_error[t], squared_error[a])]]))
            for a, share in place.neighbours(t)
        ]
        # One shift for both neighbours keeps the mixture's mean equal to that of fraction_sum: costs of short steps are
        # differences of the two.
        shift = fraction[t] - sum(share * fraction[a] for a, share in place.neighbours(t))
        phi = np.concatenate([phi for (phi, _), _ in parts]) + shift
        weights = np.concatenate([weights * scale for (_, weights), scale in parts], axis=1)
        at, z = mesh.locate(torch.from_numpy(phi).clamp(-mesh.LIMIT, mesh.LIMIT))
        return _kept(np.stack([moments_of(at, z, torch.from_numpy(each), mesh.bins) for each in weights], axis=1))

    return _with_rows(known, place, row)


def _kept(moments: Array) -> tuple[npt.NDArray[np.int64], Array]:
    """Bins that hold anything, of moments [MOMENTS, ..., bins], as a row of `BinnedRows`."""
    bins = np.flatnonzero(moments.reshape(-1, moments.shape[-1]).any(axis=0))
    return bins, np.moveaxis(moments[..., bins], (-1, 0), (0, -1))


def _with_rows(
    known: BinnedRows, place: Place, row: Callable[[int], tuple[npt.NDArray[np.int64], Array]]
) -> BinnedRows:
    entries = [slice(int(first), int(last)) for first, last in zip(known.offsets, known.offsets[1:], strict=False)]
    empty = slice(0, 0)
    rows = [(known.bins[empty], known.moments[empty])]
    missing = set(place.missing)
    for t in range(1, place.mask.size):
        rows.append(row(t) if t in missing else (known.bins[entries[t]], known.moments[entries[t]]))
    return BinnedRows.from_rows(rows)


# --- blocks: what standard errors need ----------------------------------------------------------------------------------


def _filled_decoder_blocks(filled: Statistics, place: Place) -> Array:
    assert filled.decoder_blocks is not None
    blocks = filled.decoder_blocks.copy()
    sigma_range = partial(artefact.decoder_log_sigma_range, filled.process, filled.data_range)
    for t in place.missing:
        log_sigma = chebyshev_nodes(*sigma_range(t), BLOCK_NODES)
        blocks[t] = sum(
            share * np.maximum(blocks[a], LEAST_LOG_NATS) @ _to_nodes(sigma_range(a), log_sigma)
            for a, share in place.neighbours(t)
        )
    return blocks


def _filled_fraction_blocks(filled: Statistics, place: Place) -> Array:
    assert filled.fraction_blocks is not None
    assert filled.fraction_bins is not None
    blocks, process = filled.fraction_blocks.copy(), filled.process
    sizes = np.bincount(filled.block_of_sample) / filled.samples
    for t in place.missing:
        delta = chebyshev_nodes(*artefact.fraction_range(process, t), BLOCK_NODES)
        bins, weights = filled.fraction_bins.row(t)
        decay = np.exp(-filled.fraction_mesh(t).points(bins)[..., None] * delta).reshape(-1, BLOCK_NODES)
        mean = weights.swapaxes(0, 1).reshape(2, -1) @ decay / filled.samples
        ratio = sum(
            share * _log_ratio(blocks[a], sizes) @ _to_nodes(artefact.fraction_range(process, a), delta)
            for a, share in place.neighbours(t)
        )
        blocks[t] = _about(mean, ratio, sizes)
    return blocks


def _to_nodes(limits: tuple[float, float], at: Array) -> Array:
    """Matrix [BLOCK_NODES, len(at)] from values at the nodes of ``limits`` to values at ``at``, held beyond the limits."""
    return chebyshev_matrix(*limits, BLOCK_NODES, at).T


def _log_ratio(log_blocks: Array, sizes: Array) -> Array:
    """ln of block over mean, [B, ..., J], for blocks given by their logarithms."""
    return np.asarray(log_blocks - np.log(np.tensordot(sizes, np.exp(log_blocks), 1).clip(min=LEAST)))


def _about(mean: Array, log_ratio: Any, sizes: Array) -> Array:
    """ln of blocks with these ratios and exactly this mean."""
    correction = np.log(np.tensordot(sizes, np.exp(log_ratio), 1))
    return np.asarray(np.log(np.maximum(mean, LEAST)) + log_ratio - correction)


# --- the learned decoder ----------------------------------------------------------------------------------------------


def _filled_learned_decoder(filled: Statistics, place: Place) -> tuple[Array, Array]:
    assert filled.learned_decoder is not None
    assert filled.learned_decoder_blocks is not None
    assert filled.decoder_upper is not None
    process, size = filled.process, filled.learned_decoder.shape[1]
    mean, blocks = filled.learned_decoder.copy(), filled.learned_decoder_blocks.copy()
    upper = filled.decoder_upper.mean(axis=1)
    sizes = np.bincount(filled.block_of_sample) / filled.samples
    for t in place.missing:
        nodes = artefact.learned_decoder_nodes(process, t, size)
        z = nodes / artefact.learned_decoder_delta(process, t)[0]
        # T is the last step of no pair, so it has no learned decoder: next to it the other neighbour stands alone.
        neighbours = [(a, share) for a, share in place.neighbours(t) if a < process.T]
        total = sum(share for _, share in neighbours)
        ratio = np.zeros(nodes.size)
        by_block = np.zeros((len(sizes), nodes.size))
        for a, share in neighbours:
            at = _at_positions(process, a, size, z)
            curve = mean[a, : at.shape[0]] @ at
            ratio += share / total * _ratio(curve, upper[a])
            by_block += share / total * _ratio(blocks[a, :, : at.shape[0]] @ at, curve)
        mean[t], blocks[t] = 0.0, 0.0
        mean[t, : nodes.size] = upper[t] * ratio
        blocks[t, :, : nodes.size] = upper[t] * ratio * by_block / (sizes @ by_block)
    return mean, blocks


def _at_positions(process: ForwardProcess, t: int, size: int, z: Array) -> Array:
    """Matrix from a row's learned decoder to its values at δ = z δ_max, z in [0, 1]."""
    delta = artefact.learned_decoder_delta(process, t)
    if delta.size > size:
        return chebyshev_matrix(0.0, 1.0, size, z).T
    # Every δ that occurs, descending: linear between them, held beyond the least.
    positions = delta[::-1] / delta[0]
    return np.array([np.interp(z, positions, row[::-1]) for row in np.eye(delta.size)])
