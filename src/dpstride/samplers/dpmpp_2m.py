"""DPM-Solver++ 2M (Lu et al. 2022, Algorithm 2): deterministic, of second order from two x̂_0; its first step is DDIM's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..process import ForwardProcess
from . import InDiffusers, Move, SamplerRule, ddim
from .ddim import Index


def coefficients(process: ForwardProcess, r: Index | None, t: Index, s: Index) -> tuple[Any, Any, Any]:
    """(a, b, c) of x_s = a x_t + b x̂_0(t) + c (x̂_0(t) − x̂_0(r)), s > 0.

    With λ = ln(f/g), c = b (λ_s − λ_t) / (2 (λ_t − λ_r)). At the first step, which has no r, and where f_r = 0, c is 0 and the
    step is DDIM's.
    """
    a, b = ddim.coefficients(process, t, s)
    if r is None:
        return a, b, np.zeros_like(b)
    half_log_snr = 0.5 * process.log_snr
    with np.errstate(invalid="ignore"):
        ratio = (half_log_snr[s] - half_log_snr[t]) / (2.0 * (half_log_snr[t] - half_log_snr[r]))
    return a, b, np.asarray(b * np.where(process.f[r] == 0.0, 0.0, ratio))


def step(move: Move) -> tuple[Any, Any]:
    """x_s; no noise."""
    before = None if move.last is None else move.before
    a, b, c = map(float, coefficients(move.process, before, move.t, move.s))
    x = a * move.x + b * move.x0_hat
    return (x if move.last is None else x + c * (move.x0_hat - move.last)), None


RULE = SamplerRule(
    words="DPM-Solver++ 2M",
    step=step,
    remembers=True,
    in_diffusers=InDiffusers(
        scheduler="DPMSolverMultistepScheduler",
        takes="timesteps",
        settings={
            "algorithm_type": '"dpmsolver++"',
            "solver_order": "2",
            "solver_type": '"midpoint"',
            "final_sigmas_type": '"zero"',
            "euler_at_final": "False",
            "use_karras_sigmas": "False",
            "use_exponential_sigmas": "False",
            "use_beta_sigmas": "False",
            "use_lu_lambdas": "False",
            "use_flow_sigmas": "False",
        },
    ),
)
