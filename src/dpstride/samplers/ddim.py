"""DDIM (Song et al. 2021, Eq. 12), deterministic at eta = 0 and with the posterior variance at eta = 1.

Without noise it is Euler's method for the probability-flow equation: with σ = g/f and z = x/f it reads dz/dσ = ε(z, σ); for
rectified flow that is Euler's method along dx/dt. Nothing divides by f_t, so a process may end in pure noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..process import ForwardProcess
from . import InDiffusers, Move, SamplerRule

Array = npt.NDArray[np.float64]
Index = int | npt.NDArray[np.int64]


def coefficients(process: ForwardProcess, t: Index, s: Index) -> tuple[Array, Array]:
    """(a, b) of the step without noise, x_s = a x_t + b x̂_0(x_t, t)."""
    a = process.g[s] / process.g[t]
    return np.asarray(a), np.asarray(process.f[s] - process.f[t] * a)


def step(move: Move) -> tuple[Any, Any]:
    """x̂_0 at the noise level of s, plus the remaining noise of x_t."""
    f, g, t, s = move.process.f, move.process.g, move.t, move.s
    variance = move.eta**2 * float(move.process.posterior_variance(t, s))
    towards = move.x0_hat if move.towards is None else move.towards
    direction = (move.x - float(f[t]) * towards) / float(g[t])
    x = float(f[s]) * move.x0_hat + math.sqrt(float(g[s]) ** 2 - variance) * direction
    return x, variance if move.eta > 0.0 else None


RULE = SamplerRule(
    words="DDIM",
    step=step,
    takes_eta=True,
    # Euler's steps are DDIM's; its first noise is that of x_T only with "leading" spacing, whose timesteps the list replaces.
    in_diffusers=InDiffusers(
        scheduler="EulerDiscreteScheduler",
        takes="sigmas",
        settings={
            "timestep_spacing": '"leading"',
            "final_sigmas_type": '"zero"',
            "use_karras_sigmas": "False",
            "use_exponential_sigmas": "False",
            "use_beta_sigmas": "False",
        },
    ),
)
