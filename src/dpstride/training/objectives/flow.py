"""Rectified flow: the squared error of the velocity ε − x_0."""

from __future__ import annotations

from .terms import Setting, squared_error

SETTING = Setting(
    title="rectified flow: squared error of ε − x_0 at t uniform on (0, 1)",
    predicts="flow",
    learned_variance=False,
    kind="continuous",
    process="rectified_flow",
    T=1000,
    losses=lambda output, batch: squared_error(output, batch.eps - batch.x0),
)
