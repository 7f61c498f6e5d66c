"""Sampling of t in training: uniform, or by the size of the losses.

Both samplers invert a cumulative distribution at stratified points ``(i + u)/B``, with one u per batch. Each t keeps its
exact marginal probability, so every estimate stays unbiased, and a batch covers all noise levels (Kingma et al. 2021,
appendix I.1).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

HISTORY = 10  # Nichol and Dhariwal (2021), section 3.3
UNIFORM_SHARE = 0.001


def stratified(batch_size: int, generator: torch.Generator) -> Tensor:
    """Points in (0, 1], one in each of B equal intervals, float64, [B], in random order."""
    offset = torch.rand((), generator=generator, dtype=torch.float64)
    order = torch.randperm(batch_size, generator=generator)
    return 1.0 - (order + offset) / batch_size


def uniform_indices(T: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Grid indices 1..T, each with probability 1/T, [B]."""
    return torch.ceil(stratified(batch_size, generator) * T).long().clamp(1, T)


class LossAwareSampler:
    """Importance sampling of t: ``p_t ∝ sqrt(E[L_t²])`` (Nichol and Dhariwal 2021, Eq. 18), uniform at first.

    The expectation runs over the last 10 losses at each t; until every t has 10, t is uniform. A share of 0.001 of the
    probability is always uniform, so that no t is neglected. ``draw`` returns weights ``1/(T p_t)``, with which the weighted
    mean of the losses is an unbiased estimate of their mean over uniform t.
    """

    def __init__(self, T: int) -> None:
        self.T = T
        self.losses: npt.NDArray[np.float64] = np.zeros((T, HISTORY))
        self.counts: npt.NDArray[np.int64] = np.zeros(T, dtype=np.int64)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """Probability of t = 1..T, [T]."""
        uniform = np.full(self.T, 1.0 / self.T)
        if (self.counts < HISTORY).any():
            return uniform
        size = np.sqrt((self.losses**2).mean(axis=1))
        if size.sum() == 0.0:
            return uniform
        return np.asarray((1.0 - UNIFORM_SHARE) * size / size.sum() + UNIFORM_SHARE * uniform)

    def draw(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw grid indices [B] and the weights of their losses [B]."""
        p = self.probabilities
        cumulative = np.cumsum(p)
        index = np.searchsorted(cumulative / cumulative[-1], stratified(batch_size, generator).numpy(), side="left")
        index = np.minimum(index, self.T - 1)
        return torch.from_numpy(index + 1), torch.from_numpy(1.0 / (self.T * p[index])).float()

    def update(self, t: Tensor, losses: Tensor) -> None:
        """Record the unweighted losses at indices t; the latest 10 of each t are kept."""
        for i, loss in zip((t - 1).tolist(), losses.detach().double().tolist(), strict=True):
            self.losses[i, self.counts[i] % HISTORY] = loss
            self.counts[i] += 1

    def state_dict(self) -> dict[str, Tensor]:
        """State for the checkpoint."""
        return {"losses": torch.from_numpy(self.losses.copy()), "counts": torch.from_numpy(self.counts.copy())}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore `state_dict`."""
        losses, counts = state["losses"].numpy(), state["counts"].numpy()
        if (losses.shape, counts.shape) != (self.losses.shape, self.counts.shape) or counts.dtype != np.int64:
            raise ValueError(
                f"The sampler's history has shapes {losses.shape} and {counts.shape}, not those of this grid."
            )
        if (counts < 0).any() or not np.isfinite(losses).all():
            raise ValueError("The sampler's history holds a negative count or a loss that is not finite.")
        self.losses, self.counts = losses.astype(np.float64), counts.copy()
