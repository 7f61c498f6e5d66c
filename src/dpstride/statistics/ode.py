"""Stage 3. One step of the deterministic samplers, DDIM and DPM-Solver++ 2M, as coefficients of states and outputs.

Both solve the probability-flow equation. With σ = g/f and z = x/f it reads dz/dσ = ε(z, σ), and DDIM is Euler's method for
it; for rectified flow that is Euler's method along dx/dt. Nothing divides by f_t, so a process may end in pure noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess

Array = npt.NDArray[np.float64]
Index = int | npt.NDArray[np.int64]


def ddim_coefficients(process: ForwardProcess, t: Index, s: Index) -> tuple[Array, Array]:
    """(a, b) of the step x_s = a x_t + b x̂_0(x_t, t) (Song et al. 2021, Eq. 12 without noise)."""
    a = process.g[s] / process.g[t]
    return np.asarray(a), np.asarray(process.f[s] - process.f[t] * a)


def multistep_coefficients(process: ForwardProcess, r: Index | None, t: Index, s: Index) -> tuple[Any, Any, Any]:
    """(a, b, c) of x_s = a x_t + b x̂_0(t) + c (x̂_0(t) − x̂_0(r)): DPM-Solver++ 2M (Lu et al. 2022, Algorithm 2), s > 0.

    With λ = ln(f/g), c = b (λ_s − λ_t) / (2 (λ_t − λ_r)). There is no r at the first step, and none that counts where f_r is
    0: c is 0 and the step is DDIM's.
    """
    a, b = ddim_coefficients(process, t, s)
    if r is None:
        return a, b, np.zeros_like(b)
    half_log_snr = 0.5 * process.log_snr
    with np.errstate(invalid="ignore"):
        ratio = (half_log_snr[s] - half_log_snr[t]) / (2.0 * (half_log_snr[t] - half_log_snr[r]))
    return a, b, np.asarray(b * np.where(process.f[r] == 0.0, 0.0, ratio))
