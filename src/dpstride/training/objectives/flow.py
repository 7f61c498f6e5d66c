"""Rectified flow: the squared error of the velocity ε − x_0."""

from __future__ import annotations

from torch import Tensor

from .terms import NoisedBatch, Setting, squared_error


def losses(output: Tensor, batch: NoisedBatch) -> Tensor:
    """Mean square of the velocity's error."""
    return squared_error(output, batch.eps - batch.x0)


SETTING = Setting(
    title="rectified flow: squared error of ε − x_0 at t uniform on (0, 1)",
    predicts="flow",
    learned_variance=False,
    kind="continuous",
    process="rectified_flow",
    T=1000,
    losses=losses,
)
