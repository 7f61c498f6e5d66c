"""Squared error of v in continuous time.

v and not eps: with f(1) = 0 the clean image cannot be computed from eps.
"""

from __future__ import annotations

from torch import Tensor

from .terms import NoisedBatch, Setting, squared_error


def losses(output: Tensor, batch: NoisedBatch) -> Tensor:
    """Mean square of v − v̂, v = f ε − g x_0."""
    return squared_error(output, batch.f * batch.eps - batch.g * batch.x0)


SETTING = Setting(
    title="squared error of v at t uniform on (0, 1)",
    predicts="v",
    learned_variance=False,
    kind="continuous",
    process="vp_cosine",
    T=1000,
    losses=losses,
)
