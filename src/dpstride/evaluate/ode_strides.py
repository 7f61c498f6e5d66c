"""Stage 7. Hand-made and published schedules for deterministic samplers, on any grid, to compare with.

They are given as noise levels σ = g/f and put on the nearest grid indices in ln σ. Every one starts at T, so that all start
from the same noise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess
from ..schedule import Schedule

Array = npt.NDArray[np.float64]
EDM_RANGE = (0.002, 80.0)  # Karras et al. (2022), Table 1
# Sabour, Fidler and Kreis (2024), Align Your Steps: the 10-step schedule of Stable Diffusion 1.5, from the authors' quick
# start guide (as ComfyUI's nodes_align_your_steps.py carries it); other numbers of steps by interpolating ln σ, as they say.
AYS = (14.6146412293, 6.4745760956, 3.8636745985, 2.6946151520, 1.8841921177, 1.3943805092,
       0.9642583904, 0.6523686016, 0.3977456272, 0.1515232662, 0.0291671582)  # fmt: skip


def karras_stride(process: ForwardProcess, budget: int, rho: float = 7.0) -> Schedule:
    """σ_i = (σ_max^(1/ρ) + i/(K − 1) (σ_min^(1/ρ) − σ_max^(1/ρ)))^ρ, the grid's range cut to EDM's (Karras et al. 2022)."""
    low, high = _range(process)
    return _nearest(process, np.linspace(high ** (1.0 / rho), low ** (1.0 / rho), budget) ** rho, "karras")


def log_snr_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Even in log-SNR over the same range (Lu et al. 2022)."""
    low, high = _range(process)
    return _nearest(process, np.geomspace(high, low, budget), "log_snr")


def ays_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Align Your Steps' schedule of Stable Diffusion 1.5, interpolated in ln σ to K steps; its last level becomes 0.

    Its levels begin at that model's noise end and finish at its first step, so on another grid ln σ is stretched to have the
    same two ends there; as published it would begin a grid that goes to σ = 157 at 14.6.
    """
    low, high = _range(process)
    at = np.linspace(0.0, len(AYS) - 1.0, budget + 1)[:-1]
    share = (np.log(AYS) - np.log(AYS[-1])) / (np.log(AYS[0]) - np.log(AYS[-1]))
    levels = np.log(low) + share * (np.log(high) - np.log(low))
    return _nearest(process, np.exp(np.interp(at, np.arange(len(AYS)), levels)), "ays")


def _range(process: ForwardProcess) -> tuple[float, float]:
    with np.errstate(divide="ignore"):
        sigma = process.g[1:] / process.f[1:]
    finite = sigma[np.isfinite(sigma)]
    return max(float(finite[0]), EDM_RANGE[0]), min(float(finite[-1]), EDM_RANGE[1])


def _nearest(process: ForwardProcess, sigmas: Array, name: str) -> Schedule:
    """The path through the grid points nearest to falling ``sigmas`` in ln σ, the first at T, none visited twice."""
    T, K = process.T, sigmas.size
    if not 1 <= K <= T:
        raise ValueError(f"The budget must be a whole number of steps from 1 to T = {T}, not {K}.")
    nearest = 1 + np.abs(-0.5 * process.log_snr[None, 1:] - np.log(sigmas)[:, None]).argmin(axis=1)
    nearest[0] = T
    place = np.arange(K)[::-1]  # so many points must still fit below each
    rising = np.maximum(nearest, place + 1)[::-1]
    rising = np.maximum.accumulate(rising - np.arange(K)) + np.arange(K)
    falling = np.minimum(rising[::-1], T - np.arange(K))
    return Schedule(process, (*map(int, falling), 0), stride=name)
