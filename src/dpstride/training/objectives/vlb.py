"""L_vlb (Nichol and Dhariwal 2021): the variational bound itself, with importance sampling of t."""

from __future__ import annotations

from torch import Tensor

from .terms import NoisedBatch, Setting, vlb_terms


def losses(output: Tensor, batch: NoisedBatch) -> Tensor:
    """T times the bound's term at t, in bits/dim."""
    eps_hat, v = output.chunk(2, dim=1)
    return batch.T * vlb_terms(eps_hat, v, batch)


SETTING = Setting(
    title="L_vlb with loss-aware importance sampling of t (Nichol and Dhariwal 2021)",
    predicts="eps",
    learned_variance=True,
    kind="discrete",
    process="cosine",
    T=4000,
    losses=losses,
    loss_aware=True,
)
