"""Stage 3. Statistics at grid indices that were not evaluated, from those that were.

A denoiser's statistics depend on the noise level and change smoothly with it, so a few evaluated t can represent the whole
grid. Factors known exactly from the process's coefficients are divided out before and multiplied back after. Every field is
filled, so that costs, standard errors, scores and comparisons treat filled statistics like estimated ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess
from . import artefact, kernels
from .artefact import BLOCK_NODES, Statistics
from .bins import MOMENTS, BinnedRows, chebyshev_matrix, chebyshev_nodes
from .coordinate import output_gain
from .decoder import rough_nats
from .place import Place, check_evaluated, predicts_of
from .smooth import FEWEST

Array = npt.NDArray[np.float64]
LEAST = 1e-300  # replaces zero where a logarithm is taken
LEAST_LOG_NATS = -20.0  # where the decoder is almost certain, blocks do not differ
ROWS_AT_ONCE = 256


def fill(
    statistics: Statistics, evaluated: npt.ArrayLike, rows: npt.ArrayLike | None = None, smooth: bool = False
) -> Statistics:
    """``statistics`` with every row that is not ``evaluated`` [T + 1] replaced by an interpolated one.

    The coordinate is u = −ln snr_t, with the far noise end compressed where x̂_0 stays bounded (`noise_coordinate`).
    Between evaluated a < t < b, with w the position of t between them in u:

    * means, by a monotone cubic in u (`monotone_cubic`): for Σ e², the logarithm of the error of the network's output, of
      which it is a known multiple (`output_gain`); for the `upper` decoder's cost, its ratio to the approximation from Σ e²
      alone (`rough_nats`); for Σ φ, the mean itself. Values of single samples: the weighted mean (1 − w, w) of their ratios
      to the mean at a and b (for Σ φ: of their differences from it);
    * residuals: a mixture (1 − w, w) of those at a and b, each rescaled to the interpolated second moment;
    * φ, weighted by 1 and by e²: the same mixture, each shifted to the interpolated mean and weighted to the interpolated
      E Σ e²;
    * blocks of the decoder's cost: their ratio to `rough_nats`, the weighted mean of its logarithm at the same σ; blocks of
      φ: the curve of the interpolated distribution times the weighted ratio (by its logarithm) of block to mean, at the
      same δ;
    * the learned decoder: the `upper` decoder's cost times the weighted mean of its ratio to that at a and b, as a
      function of δ/δ_max.

    Row 0 of ``evaluated`` is ignored; rows 1 and T must be evaluated, since nothing is extrapolated. With ``rows`` (grid
    indices), only those are filled, which is fast, and the others are left unchanged.
    """
    mask = check_evaluated(statistics.process, evaluated)
    if mask[1:].all() and not smooth:
        return statistics
    place = Place.between(statistics, mask, rows, smooth)
    gain = output_gain(statistics.process, predicts_of(statistics))
    squared_error = _fill_samples(statistics.squared_error, place, "log", 1.0 / gain)
    filled = replace(statistics, squared_error=squared_error, evaluated=mask)
    if statistics.decoder_upper is not None:
        rough = _rough_decoder(filled, np.arange(mask.size), statistics.process.g[:, None] ** 2)[:, 0]
        filled = replace(filled, decoder_upper=_fill_samples(statistics.decoder_upper, place, "ratio", rough))
    if statistics.fraction_sum is not None:
        filled = replace(filled, fraction_sum=_fill_samples(statistics.fraction_sum, place, "signed"))
    if statistics.residual_bins is not None:
        bins = _filled_residuals(filled, statistics, place)
        filled = replace(filled, residual_bins=bins)
        filled = replace(filled, decoder_blocks=_filled_decoder_blocks(filled, statistics, place))
    if statistics.fraction_bins is not None:
        bins = _filled_fractions(filled, statistics, place)
        filled = replace(filled, fraction_bins=bins)
        filled = replace(filled, fraction_blocks=_filled_fraction_blocks(filled, place))
    if statistics.learned_decoder is not None:
        mean, blocks = _filled_learned_decoder(filled, statistics, place)
        filled = replace(filled, learned_decoder=mean, learned_decoder_blocks=blocks)
    return filled


def smoothed(statistics: Statistics) -> Statistics:
    """``statistics`` for choosing a path: evaluated rows are smoothed to remove their own noise, and the others filled in.

    Statistics of every row are left unchanged: their table is the paper's, and its best path the best one measured.
    """
    if statistics.samples < 2 or statistics.evaluated.sum() < FEWEST or statistics.evaluated[1:].all():
        return statistics
    return fill(statistics, statistics.evaluated, smooth=True)


def _fill_samples(values: Array, place: Place, kind: Literal["log", "ratio", "signed"], scale: Any = None) -> Array:
    """Values [T + 1, N] of single samples: means by a monotone cubic, samples by weighted means relative to the mean.

    ``scale`` [T + 1] is known at every t: "log" and "ratio" interpolate the mean in its units.
    """
    missing = np.array(place.missing, dtype=np.int64)
    means = values.mean(axis=1)
    filled = values.copy()
    if kind == "signed":
        relative = place.mix(values - means[:, None], missing)
        filled[missing] = relative + place.curve(means, values)[missing, None]
        return filled
    relative = place.mix(_ratio(values, means[:, None]), missing)
    level = means / np.maximum(scale, LEAST)
    if kind == "log":
        level = np.exp(place.curve(np.log(np.maximum(level, LEAST)), _ratio(values, means[:, None])))
    else:
        level = place.curve(level, values / np.maximum(scale, LEAST)[:, None])
    filled[missing] = relative * (level * scale)[missing, None]
    return filled


def _rough_decoder(filled: Statistics, t: npt.NDArray[np.int64], variances: Array) -> Array:
    """`rough_nats` of rows t at their ``variances`` [rows, n]."""
    squared_error = filled.squared_error[t].mean(axis=1)[:, None]
    return np.asarray(rough_nats(filled.dims, squared_error, variances, filled.data_range.step))


def _ratio(numerator: Any, denominator: Any) -> Any:
    """numerator/denominator; 1 where the denominator vanishes."""
    return np.where(denominator > LEAST, numerator / np.maximum(denominator, LEAST), 1.0)


# --- distributions ----------------------------------------------------------------------------------------------------


def _filled_residuals(filled: Statistics, measured: Statistics, place: Place) -> BinnedRows:
    assert measured.residual_bins is not None
    known = measured.residual_bins
    mean, before = filled.squared_error.mean(axis=1), measured.squared_error.mean(axis=1)

    @cache
    def points_of(a: int) -> tuple[Array, Array, Array]:
        bins, weights = known.row(a)
        mesh = filled.residual_mesh(a)
        return mesh.points(bins % mesh.bins).ravel(), weights.ravel(), np.repeat(bins >= mesh.bins, weights.shape[-1])

    def row(t: int) -> tuple[npt.NDArray[np.int64], Array]:
        mesh = filled.residual_mesh(t)
        parts = [(points_of(a), share, np.sqrt(_ratio(mean[t], before[a]))) for a, share in place.neighbours(t)]
        q = np.concatenate([q * scale for (q, _, _), _, scale in parts])
        weights = np.concatenate([share * weights for (_, weights, _), share, _ in parts])
        edge = np.concatenate([edge for (_, _, edge), _, _ in parts])
        sums = np.zeros((2 * mesh.bins, MOMENTS))
        kernels.add_weighted_residuals(mesh, q.clip(-mesh.reach, mesh.reach), edge, weights, sums=sums)
        return _nonempty(sums)

    return _with_rows(known, place, row)


def _filled_fractions(filled: Statistics, measured: Statistics, place: Place) -> BinnedRows:
    assert measured.fraction_bins is not None
    known = measured.fraction_bins
    (fraction, squared_error), (fraction_before, error_before) = map(_fraction_and_error, (filled, measured))
    mesh_of = cache(filled.fraction_mesh)

    @cache
    def points_of(a: int) -> tuple[Array, Array]:
        bins, weights = known.row(a)
        return mesh_of(a).points(bins).ravel(), weights.swapaxes(0, 1).reshape(2, -1)

    def row(t: int) -> tuple[npt.NDArray[np.int64], Array]:
        mesh = mesh_of(t)
        parts = [
            (points_of(a), np.array([[share], [share * _ratio(squared_error[t], error_before[a])]]))
            for a, share in place.neighbours(t)
        ]
        # One shift for both neighbours keeps the mixture's mean equal to that of fraction_sum: costs of short steps are
        # differences of the two.
        shift = fraction[t] - sum(share * fraction_before[a] for a, share in place.neighbours(t))
        phi = np.concatenate([phi for (phi, _), _ in parts]) + shift
        weights = np.concatenate([weights * scale for (_, weights), scale in parts], axis=1)
        sums = np.zeros((mesh.bins, 2, MOMENTS))
        kernels.add_weighted_fractions(mesh, phi.clip(-mesh.LIMIT, mesh.LIMIT), weights, sums)
        return _nonempty(sums)

    return _with_rows(known, place, row)


def _fraction_and_error(statistics: Statistics) -> tuple[Array, Array]:
    """E φ and E Σ e² at every t."""
    assert statistics.fraction_sum is not None
    return statistics.fraction_sum.mean(axis=1) / statistics.dims, statistics.squared_error.mean(axis=1)


def _nonempty(moments: Array) -> tuple[npt.NDArray[np.int64], Array]:
    """The non-empty bins of moments [bins, ..., MOMENTS], as a row of `BinnedRows`."""
    bins = np.flatnonzero(moments.reshape(len(moments), -1).any(axis=1))
    return bins, moments[bins]


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


# --- blocks, for standard errors ----------------------------------------------------------------------------------------


def _filled_decoder_blocks(filled: Statistics, measured: Statistics, place: Place) -> Array:
    assert measured.decoder_blocks is not None
    before, missing = measured.decoder_blocks, np.array(place.missing, dtype=np.int64)
    blocks = before.copy()
    limits = _limits(place, lambda t: artefact.decoder_log_sigma_range(filled.process, filled.data_range, t))
    for t in _parts(missing):
        log_sigma = _nodes_of(limits[t])
        variances = np.exp(2.0 * log_sigma)
        ratio = sum(
            share[:, None, None]
            * (
                np.maximum(before[a], LEAST_LOG_NATS) @ _to_nodes(limits[a], log_sigma)
                - np.log(_rough_decoder(measured, a, variances))[:, None]
            )
            for a, share in place.sides(t)
        )
        blocks[t] = ratio + np.log(_rough_decoder(filled, t, variances))[:, None]
    return blocks


def _filled_fraction_blocks(filled: Statistics, place: Place) -> Array:
    assert filled.fraction_blocks is not None
    assert filled.fraction_bins is not None
    blocks, missing = filled.fraction_blocks.copy(), np.array(place.missing, dtype=np.int64)
    sizes = np.bincount(filled.block_of_sample) / filled.samples
    limits = _limits(place, lambda t: artefact.fraction_range(filled.process, t))
    ratios = np.zeros_like(blocks)
    known = np.flatnonzero(place.mask)
    ratios[known] = _log_ratio(blocks[known], sizes)
    for part in _parts(missing):
        delta = _nodes_of(limits[part])
        mean = np.array([_fraction_means(filled, int(t), each) for t, each in zip(part, delta, strict=True)])
        ratio = sum(
            share[:, None, None, None] * ratios[a] @ _to_nodes(limits[a], delta)[:, None]
            for a, share in place.sides(part)
        )
        blocks[part] = _about(mean, ratio, sizes)
    return blocks


def _fraction_means(filled: Statistics, t: int, delta: Array) -> Array:
    """E Σ exp(−φδ) and E Σ e² exp(−φδ) from the bins of t, [2, len(delta)]."""
    assert filled.fraction_bins is not None
    bins, weights = filled.fraction_bins.row(t)
    decay = np.exp(-filled.fraction_mesh(t).points(bins)[..., None] * delta).reshape(-1, delta.size)
    return np.asarray(weights.swapaxes(0, 1).reshape(2, -1) @ decay / filled.samples)


def _parts(rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Rows in parts small enough for their blocks to fit into memory many times over."""
    return [rows[first : first + ROWS_AT_ONCE] for first in range(0, rows.size, ROWS_AT_ONCE)]


def _limits(place: Place, of: Callable[[int], tuple[float, float]]) -> Array:
    """The ends of the interval of every row that is filled or evaluated, [T + 1, 2]."""
    limits = np.zeros((place.mask.size, 2))
    for t in {*place.missing, *np.flatnonzero(place.mask).tolist()}:
        limits[t] = of(t)
    return limits


def _nodes_of(limits: Array) -> Array:
    """Chebyshev nodes of each interval, [rows, BLOCK_NODES]."""
    unit = chebyshev_nodes(0.0, 1.0, BLOCK_NODES)
    return np.asarray(limits[:, :1] + (limits[:, 1:] - limits[:, :1]) * unit)


def _to_nodes(limits: Array, at: Array) -> Array:
    """For each row, matrix [BLOCK_NODES, n] from values at the nodes of ``limits`` to those ``at``, constant beyond them."""
    width = limits[:, 1:] - limits[:, :1]
    # An empty interval has all its nodes in one place, and one value.
    unit = np.divide(at - limits[:, :1], width, out=np.full(at.shape, 0.5), where=width > 0.0)
    matrix = chebyshev_matrix(0.0, 1.0, BLOCK_NODES, unit.ravel())
    return matrix.reshape(*at.shape, BLOCK_NODES).swapaxes(1, 2)


def _log_ratio(log_blocks: Array, sizes: Array) -> Array:
    """ln of block over mean, [rows, B, ..., J], for blocks given by their logarithms."""
    return np.asarray(log_blocks - np.log(_mean_of_blocks(sizes, np.exp(log_blocks)).clip(min=LEAST)))


def _about(mean: Array, log_ratio: Any, sizes: Array) -> Array:
    """ln of blocks [rows, B, ..., J] with these ratios and exactly this mean [rows, ..., J]."""
    correction = np.log(_mean_of_blocks(sizes, np.exp(log_ratio)))
    return np.asarray(np.log(np.maximum(mean, LEAST))[:, None] + log_ratio - correction)


def _mean_of_blocks(sizes: Array, blocks: Array) -> Array:
    """Means over axis 1, which is kept."""
    return np.asarray(np.tensordot(blocks, sizes, ([1], [0]))[:, None])


# --- the learned decoder ----------------------------------------------------------------------------------------------


def _filled_learned_decoder(filled: Statistics, measured: Statistics, place: Place) -> tuple[Array, Array]:
    assert measured.learned_decoder is not None
    assert measured.learned_decoder_blocks is not None
    assert measured.decoder_upper is not None
    assert filled.decoder_upper is not None
    before, blocks_before = measured.learned_decoder, measured.learned_decoder_blocks
    mean, blocks = before.copy(), blocks_before.copy()
    process, size = filled.process, mean.shape[1]
    upper, upper_before = filled.decoder_upper.mean(axis=1), measured.decoder_upper.mean(axis=1)
    sizes = np.bincount(filled.block_of_sample) / filled.samples
    missing = np.array([t for t in place.missing if t < process.T], dtype=np.int64)
    # Where there are more second steps than nodes, all rows have the same nodes, in units of their largest δ.
    alike = process.T - place.above[missing] > size
    for t in _parts(missing[alike]):
        ratio, by_block = 0.0, 0.0
        for a, share in place.sides(t):
            w = share[:, None]
            ratio = ratio + w * _ratio(before[a], upper_before[a][:, None])
            by_block = by_block + w[..., None] * _ratio(blocks_before[a], before[a][:, None])
        mean[t] = upper[t][:, None] * ratio
        blocks[t] = mean[t][:, None] * by_block / _mean_of_blocks(sizes, np.asarray(by_block))
    for t in missing[~alike].tolist():
        nodes = artefact.learned_decoder_nodes(process, t, size)
        z = nodes / artefact.learned_decoder_delta(process, t)[0]
        # T is never the last step of a pair, so it has no learned decoder: next to it only the other neighbour is used.
        neighbours = [(a, share) for a, share in place.neighbours(t) if a < process.T]
        total = sum(share for _, share in neighbours)
        of_row = np.zeros(nodes.size)
        of_blocks = np.zeros((len(sizes), nodes.size))
        for neighbour, part in neighbours:
            at = _at_positions(process, neighbour, size, z)
            curve = before[neighbour, : at.shape[0]] @ at
            of_row += part / total * _ratio(curve, upper_before[neighbour])
            of_blocks += part / total * _ratio(blocks_before[neighbour, :, : at.shape[0]] @ at, curve)
        mean[t], blocks[t] = 0.0, 0.0
        mean[t, : nodes.size] = upper[t] * of_row
        blocks[t, :, : nodes.size] = upper[t] * of_row * of_blocks / (sizes @ of_blocks)
    return mean, blocks


def _at_positions(process: ForwardProcess, t: int, size: int, z: Array) -> Array:
    """Matrix from a row's learned decoder to its values at δ = z δ_max, z in [0, 1]."""
    delta = artefact.learned_decoder_delta(process, t)
    if delta.size > size:
        return chebyshev_matrix(0.0, 1.0, size, z).T
    # All δ that occur, descending: linear between them, constant below the smallest.
    positions = delta[::-1] / delta[0]
    return np.array([np.interp(z, positions, row[::-1]) for row in np.eye(delta.size)])
