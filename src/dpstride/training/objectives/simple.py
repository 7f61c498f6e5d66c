"""L_simple (Ho et al. 2020, Eq. 14): the squared error of the noise."""

from __future__ import annotations

from torch import Tensor

from .terms import NoisedBatch, Setting, squared_error


def losses(output: Tensor, batch: NoisedBatch) -> Tensor:
    """Mean square of ε − ε̂."""
    return squared_error(output, batch.eps)


SETTING = Setting(
    title="L_simple (Ho et al. 2020)",
    predicts="eps",
    learned_variance=False,
    kind="discrete",
    process="linear",
    T=1000,
    losses=losses,
)
