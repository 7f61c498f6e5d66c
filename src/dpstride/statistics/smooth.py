"""Stage 3. Smooth curves through noisy rows, for choosing a path: neighbouring rows show how much of a row is noise.

Every row has noise of its own, and the best path of a table goes where that happens to be low. The curve is a smoothing spline:
the curve that bends least while staying as close to the rows as their noise allows. How much it bends is chosen by restricted
maximum likelihood (REML), with random bends and noise of the size seen in the samples. Where the network itself jumps (another
one from some t on, a t at which it is wrong, errors that end in zero) curves do not follow, and deviations too large to be
noise are kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
KNOTS = 120  # of the spline at most, evenly spaced in the coordinate; a curve that bends more often is not followed
FEWEST = 8  # rows without a break between them, for noise to be distinguished from bends
FURTHEST = 5.0  # largest distance that a row is moved, in standard deviations of its own noise
FEW = 0.02  # largest share of rows that may lie further from their curve; beyond it the curve is rejected
FACTORS = np.exp(np.linspace(-30.0, 30.0, 241))  # ratios of bends to noise that are tried


def own_noise(u: Array, units: Array) -> Array:
    """Variance of each row's own noise in the mean of ``units`` [rows, samples].

    A sample's common part changes smoothly along the rows, so its own noise is what the rows on either side do not predict.
    """
    w = ((u[1:-1] - u[:-2]) / (u[2:] - u[:-2]))[:, None]
    missed = units[1:-1] - (1.0 - w) * units[:-2] - w * units[2:]
    variance = missed.var(axis=1) / (1.0 + w**2 + (1.0 - w) ** 2)[:, 0] / units.shape[1]
    variance = np.concatenate([variance[:1], variance, variance[-1:]])
    return np.asarray(np.maximum(np.minimum(variance, units.var(axis=1) / units.shape[1]), 1e-4 * variance.mean()))


def smooth_values(u: Array, values: Array, units: Array) -> Array:
    """``values`` at coordinates ``u``, moved to their smoothing spline; ``units`` [rows, samples] show the noise."""
    from scipy.interpolate import BSpline
    from scipy.linalg import eigh

    if u.size < FEWEST or not (variance := own_noise(u, units)).all():
        return values
    knots = u[np.unique(np.searchsorted(u, np.linspace(u[0], u[-1], KNOTS)))]
    apart = np.diff(knots) > 0.25 * (u[-1] - u[0]) / KNOTS  # two rows may surround one evenly spaced position
    knots = knots[[True, *apart[1:], True]]
    if knots.size < 4:
        return values
    at = np.delete(knots, [1, -2])  # no more coefficients than rows
    spline = BSpline(np.concatenate([at[[0] * 3], at, at[[-1] * 3]]), np.eye(at.size + 2), 3)
    # Products of second derivatives are quadratic between two knots, so two Gauss nodes integrate them exactly.
    half = np.tile(0.5 * np.diff(at), 2)
    nodes = np.tile(0.5 * (at[1:] + at[:-1]), 2) + half * np.repeat([-1.0, 1.0], at.size - 1) / np.sqrt(3.0)
    bent = spline.derivative(2)(nodes) * np.sqrt(half)[:, None]
    basis = spline(u)
    weighted = basis / variance[:, None]
    information = basis.T @ weighted
    # In these axes the noise of every coefficient is 1; the first two belong to straight lines, which do not bend.
    bends, axes = eigh(bent.T @ bent, information)
    found, bends = axes.T @ (weighted.T @ values), np.maximum(bends[2:], 1e-300)

    def deviance(factor: float) -> float:
        spread = 1.0 + factor / bends
        return float((found[2:] ** 2 / spread + np.log(spread)).sum())

    factor = min(np.median(bends) * FACTORS, key=deviance)
    share = np.concatenate([np.ones(2), factor / (factor + bends)])
    shift, reach = basis @ (axes @ (share * found)) - values, FURTHEST * np.sqrt(variance)
    if (np.abs(shift) > reach).mean() > FEW:
        return values
    return np.asarray(values + np.clip(shift, -reach, reach))
