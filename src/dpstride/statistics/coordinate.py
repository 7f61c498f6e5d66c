"""Stage 3. The coordinate along which statistics are smooth, what is smooth along it, and where the process itself is not.

A network's error is smooth as the error of its own output: that of x̂_0 contains the process's coefficients, and with
them every jump and kink of f and g. So errors are interpolated for the network's output and converted back with the exact
coefficients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess

if TYPE_CHECKING:
    from scipy.interpolate import CubicHermiteSpline

Array = npt.NDArray[np.float64]
FLAT_BELOW = 0.1  # of the snr at which the data's whole square equals the noise; nothing changes at lower snr
MIXED = 1e-4  # the largest such snr if the network predicts a mixture of noise and data
WINDOW = 4  # grid indices on either side that a change is compared with
OUT_OF_LINE = 1.5  # factor by which a step in log-SNR changes to the next, relative to the changes around it
SPREADS = 6.0  # and as many of their median deviations
MOST_BREAKS = 8


def noise_coordinate(process: ForwardProcess, data_square: float, predicts: str = "x0", learned: bool = False) -> Array:
    """u = −ln(snr + c) at every grid index from 1, in which statistics are smooth; u[0] = −inf. ``data_square``: E Σ x_0².

    c = 0.1 / E Σ x_0² compresses the far noise end, where nothing of the data is visible and x̂_0 stops changing. That of an
    eps network does not: it is divided by f, so the network's error grows without bound, and c is 0. v and flow are mixtures
    of noise and data whose proportions keep changing with f until only noise is left, so c is small. It is also small if the
    network has ``learned`` a variance, which may change at any time.
    """
    u = np.full(process.T + 1, -np.inf)
    snr = (process.f[1:] / process.g[1:]) ** 2
    square = max(data_square, 1e-12)
    match predicts:
        case "eps":
            flat = 0.0
        case "v" | "flow":
            flat = FLAT_BELOW * min(1.0 / square, square, MIXED)
        case _:
            flat = FLAT_BELOW * min(1.0 / square, MIXED) if learned else FLAT_BELOW / square
    # The second term keeps u rising where snr is so far below c that it is lost in rounding.
    u[1:] = -np.log(snr + flat) + 1e-9 * np.arange(process.T)
    return u


def monotone_cubic(u: Array, values: Array) -> CubicHermiteSpline:
    """The curve through ``values`` [n, ...] at ``u`` [n], n > 1: cubic, and monotone between any two of them (Steffen 1990).

    Slopes are those of the parabola through three neighbours, limited so that no value is overshot. Unlike PCHIP's they are
    accurate to second order where a gap is far wider than the next, as beside a jump.
    """
    from scipy.interpolate import CubicHermiteSpline

    h = np.diff(u).reshape(-1, *[1] * (values.ndim - 1))
    secant = np.diff(values, axis=0) / h
    slope = np.repeat(secant[:1], len(values), axis=0)  # of two values: a line
    if len(values) > 2:
        left, right = secant[:-1], secant[1:]
        bend = (right - left) / (h[:-1] + h[1:])  # half the second derivative of the parabola
        slope[0], slope[-1] = left[0] - h[0] * bend[0], right[-1] + h[-1] * bend[-1]
        slope[1:-1] = left + h[:-1] * bend
    before, after = np.concatenate([secant[:1], secant]), np.concatenate([secant, secant[-1:]])
    most = np.where(before * after > 0.0, 2.0 * np.minimum(np.abs(before), np.abs(after)), 0.0)
    slope = np.where(slope * before > 0.0, np.sign(before) * np.minimum(np.abs(slope), most), 0.0)
    return CubicHermiteSpline(u, values, slope)


def output_gain(process: ForwardProcess, predicts: str) -> Array:
    """Squared error of the network's output over that of x̂_0 (before clipping) at every grid index; 1 at 0."""
    f, g = process.f[1:], process.g[1:]
    gain = np.ones(process.T + 1)
    match predicts:
        case "eps":
            gain[1:] = (f / g) ** 2
        case "v":
            gain[1:] = ((f**2 + g**2) / g) ** 2
        case "flow":
            gain[1:] = ((f + g) / g) ** 2
    return gain


def breaks(process: ForwardProcess) -> npt.NDArray[np.int64]:
    """Grid indices on both sides of the jumps and kinks of log-SNR: of steps far longer than those next to them.

    A process may clip its last beta, end in pure noise, change its betas abruptly, or be thinned unevenly. A network's
    statistics on one side of such a place say little about the other.
    """
    if process.T < 2 * WINDOW:
        return np.zeros(0, dtype=np.int64)
    step = np.abs(np.diff(process.log_snr[1:]))  # from grid index i + 1 to i + 2
    change = np.diff(np.log(step))  # at grid index i + 2
    if process.f[-1] == 0.0:  # pure noise is infinitely far in log-SNR, so the step's length is taken in angle
        change[-1] = np.diff(np.log(np.diff(np.arctan2(process.g, process.f)[-3:])))[0]
    beyond = np.array([_beyond_others(change, i) for i in range(change.size)])
    strongest = np.argsort(-beyond, kind="stable")[:MOST_BREAKS]
    at = strongest[beyond[strongest] > 0.0]
    low = np.where(change[at] > 0.0, at + 2, at + 1)  # the longer of the two steps that meet there begins here
    return np.union1d(low, low + 1)


def cuts(process: ForwardProcess) -> npt.NDArray[np.int64]:
    """Grid indices just above the jumps and kinks of log-SNR; curves on the two sides are separate."""
    known = breaks(process)
    return np.asarray(known[1:][np.diff(known) == 1])


def _beyond_others(change: Array, i: int) -> float:
    """Return by how much a change exceeds the normal range of those around it; 0 or less if it does not."""
    around = np.delete(change[max(i - WINDOW, 0) : i + WINDOW + 1], min(i, WINDOW))
    middle = np.median(around)
    spread = np.median(np.abs(around - middle))
    return float(abs(change[i] - middle) - max(np.log(OUT_OF_LINE), SPREADS * spread))
