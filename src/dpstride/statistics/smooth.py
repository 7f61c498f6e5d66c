"""Stage 3. Smooth curves through noisy rows, for choosing a path: the rows around a row show how much of it is noise.

Every row has noise of its own, and the best path of a table goes where that happens to be low. The curve is a smoothing spline:
of all curves the one that bends least and stays as near the rows as their noise lets them be. How much it bends is what is
likeliest where bends are random and noise is as large as the samples say (REML). Where the network itself jumps (another one
from some t on, a t at which it is wrong, errors that end in zero) curves do not follow, and what noise cannot be is kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
KNOTS = 120  # of the spline at most, even in the coordinate; a curve that bends more often is not followed
FEWEST = 8  # rows without a break between them, in which noise can be told from bends
FURTHEST = 5.0  # standard deviations of its own noise by which a row is moved at most
FEW = 0.02  # of the rows that may lie further from their curve; where more do, it is not theirs
FACTORS = np.exp(np.linspace(-30.0, 30.0, 241))  # of bends over noise that are tried


def own_noise(u: Array, units: Array) -> Array:
    """Variance of each row's own noise in the mean of ``units`` [rows, samples].

    What a sample has in common at all rows changes smoothly, so it is what the rows on either side do not tell of it.
    """
    w = ((u[1:-1] - u[:-2]) / (u[2:] - u[:-2]))[:, None]
    missed = units[1:-1] - (1.0 - w) * units[:-2] - w * units[2:]
    variance = missed.var(axis=1) / (1.0 + w**2 + (1.0 - w) ** 2)[:, 0] / units.shape[1]
    variance = np.concatenate([variance[:1], variance, variance[-1:]])
    return np.asarray(np.maximum(np.minimum(variance, units.var(axis=1) / units.shape[1]), 1e-4 * variance.mean()))


def smooth_values(u: Array, values: Array, units: Array) -> Array:
    """``values`` at coordinates ``u`` on their smoothing spline; ``units`` [rows, samples] vary as samples make them."""
    from scipy.interpolate import BSpline
    from scipy.linalg import eigh

    if u.size < FEWEST or not (variance := own_noise(u, units)).all():
        return values
    near = u[np.unique(np.searchsorted(u, np.linspace(u[0], u[-1], KNOTS)))]
    apart = np.diff(near) > 0.25 * (u[-1] - u[0]) / KNOTS  # rows may lie on either side of an even place
    near = near[[True, *apart[1:], True]]
    if near.size < 4:
        return values
    at = np.delete(near, [1, -2])  # no more coefficients than rows
    spline = BSpline(np.concatenate([at[[0] * 3], at, at[[-1] * 3]]), np.eye(at.size + 2), 3)
    # Products of second derivatives are squares between two knots, which two nodes of Gauss integrate exactly.
    half = np.tile(0.5 * np.diff(at), 2)
    nodes = np.tile(0.5 * (at[1:] + at[:-1]), 2) + half * np.repeat([-1.0, 1.0], at.size - 1) / np.sqrt(3.0)
    bent = spline.derivative(2)(nodes) * np.sqrt(half)[:, None]
    basis = spline(u)
    weighted = basis / variance[:, None]
    information = basis.T @ weighted
    # In these axes the noise of every coefficient is 1; the first two are those of lines, which do not bend.
    bends, axes = eigh(bent.T @ bent, information)
    found, bends = axes.T @ (weighted.T @ values), np.maximum(bends[2:], 1e-300)

    def unlikelihood(factor: float) -> float:
        spread = 1.0 + factor / bends
        return float((found[2:] ** 2 / spread + np.log(spread)).sum())

    factor = min(np.median(bends) * FACTORS, key=unlikelihood)
    share = np.concatenate([np.ones(2), factor / (factor + bends)])
    beside, reach = basis @ (axes @ (share * found)) - values, FURTHEST * np.sqrt(variance)
    if (np.abs(beside) > reach).mean() > FEW:
        return values
    return np.asarray(values + np.clip(beside, -reach, reach))
