"""Squared error of v in continuous time.

v instead of eps, because with f(1) = 0 the clean image cannot be computed from eps.
"""

from __future__ import annotations

from .terms import Setting, squared_error

SETTING = Setting(
    title="squared error of v at t uniform on (0, 1)",
    predicts="v",
    learned_variance=False,
    kind="continuous",
    process="vp_cosine",
    T=1000,
    losses=lambda output, batch: squared_error(output, batch.f * batch.eps - batch.g * batch.x0),
)
