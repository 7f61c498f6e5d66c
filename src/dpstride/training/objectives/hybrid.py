"""L_hybrid (Nichol and Dhariwal 2021, Eq. 16): L_simple for the mean, and a little of L_vlb for the variance."""

from __future__ import annotations

from torch import Tensor

from .terms import NoisedBatch, Setting, squared_error, vlb_terms

WEIGHT = 0.001  # lambda of Nichol and Dhariwal (2021), Eq. 16


def losses(output: Tensor, batch: NoisedBatch) -> Tensor:
    """L_simple + λ L_vlb, with the gradient of the mean stopped in L_vlb."""
    eps_hat, v = output.chunk(2, dim=1)
    vlb = batch.T * vlb_terms(eps_hat.detach(), v, batch)
    return squared_error(eps_hat, batch.eps) + WEIGHT * vlb


SETTING = Setting(
    title="L_hybrid = L_simple + 0.001 · L_vlb, the mean's gradient stopped in L_vlb (Nichol and Dhariwal 2021)",
    predicts="eps",
    learned_variance=True,
    kind="discrete",
    process="cosine",
    T=4000,
    losses=losses,
)
