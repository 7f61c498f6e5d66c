"""Heun's method (Karras et al. 2022, Algorithm 1 without churn): of second order from two evaluations in every step.

It integrates z = x/h over a level ℓ in which paths of constant x̂_0 are straight: h = f and ℓ = σ = g/f as in the paper; for a
flow (f + g = 1) h = 1 and ℓ = g, as in flow-match schedulers. The trapezoidal rule from ℓ_t to ℓ_s is then DDIM's x_s plus a
multiple of the difference of the two x̂_0, so the last step, to clean data, takes one evaluation.
"""

from __future__ import annotations

from typing import Any

from ..process import ForwardProcess
from . import Move, SamplerRule, ddim

STRAIGHT = 1e-9  # by which f + g of a flow may differ from 1


def coefficient(process: ForwardProcess, t: int, s: int) -> float:
    """c of x_s = x_s' + c (x̂_0(x_s', s) − x̂_0(x_t, t)), with x_s' of DDIM: h_s (ℓ_t/ℓ_s − 1)/2; 0 where ℓ_t is infinite."""
    f, g = process.f, process.g
    if abs(f[t] + g[t] - 1.0) < STRAIGHT and abs(f[s] + g[s] - 1.0) < STRAIGHT:
        return 0.5 * (float(g[t] / g[s]) - 1.0)
    if f[t] == 0.0:
        return 0.0
    return 0.5 * float(f[s]) * (float(g[t] * f[s] / (f[t] * g[s])) - 1.0)


def step(move: Move) -> tuple[Any, Any]:
    """DDIM's x_s, where the second evaluation takes place; no noise."""
    a, b = map(float, ddim.coefficients(move.process, move.t, move.s))
    return a * move.x + b * move.x0_hat, None


def correct(move: Move, x: Any, x0_hat: Any) -> Any:
    """x_s by the trapezoidal rule."""
    return x + coefficient(move.process, move.t, move.s) * (x0_hat - move.x0_hat)


RULE = SamplerRule(words="Heun", step=step, correct=correct)
