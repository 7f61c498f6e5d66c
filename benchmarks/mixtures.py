"""Points, signals and tables as mixtures of Gaussians, with their ideal denoisers in closed form, for `other_data.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpstride import Denoiser, ForwardProcess

T = 1000
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """A mixture of equally likely Gaussians with any covariances: means [J, dims] and covariances [J, dims, dims]."""

    means: Array
    covariances: Array

    def draw(self, count: int, seed: int) -> Array:
        """Samples [count, dims]."""
        rng = np.random.default_rng(seed)
        mode = rng.integers(len(self.means), size=count)
        roots = np.linalg.cholesky(self.covariances)
        return self.means[mode] + np.einsum(
            "nij,nj->ni", roots[mode], rng.standard_normal((count, self.means.shape[1]))
        )

    def denoiser(self) -> Denoiser:
        """The ideal denoiser on the linear process: E[x_0 given x_t], in the principal axes of each mode."""
        process = ForwardProcess.linear(T)
        f, g = torch.tensor(process.f), torch.tensor(process.g)
        means = torch.tensor(self.means)[:, None]  # [J, 1, dims]
        variances, axes = (torch.tensor(part) for part in np.linalg.eigh(self.covariances))
        variances = variances[:, None].clamp(min=0.0)

        def network(x: Tensor, time: Tensor) -> Tensor:
            f_t, g_t = f[time[0] + 1], g[time[0] + 1]
            along = (x.double() - f_t * means) @ axes  # [J, B, dims]
            spread = f_t**2 * variances + g_t**2
            log_weight = -0.5 * (along**2 / spread + spread.log()).sum(2)
            centred = (f_t * variances / spread * along) @ axes.transpose(1, 2)
            return (torch.softmax(log_weight, dim=0)[:, :, None] * (means + centred)).sum(0).to(x.dtype)

        return Denoiser(network, process, predicts="x0", clip=None, shape=(self.means.shape[1],))


def points() -> GaussianMixture:
    """Eight narrow modes on a circle, in two dimensions."""
    angle = 2.0 * np.pi * np.arange(8) / 8
    return GaussianMixture(np.stack([np.cos(angle), np.sin(angle)], axis=1), np.tile(0.05**2 * np.eye(2), (8, 1, 1)))


def signals(length: int = 64) -> GaussianMixture:
    """A tone at one of eight frequencies, with random phase and amplitude, in noise correlated over about four samples."""
    time = np.arange(length)
    noise = 0.1**2 * 0.8 ** np.abs(time[:, None] - time)
    tones = []
    for periods in range(1, 9):
        angle = 2.0 * np.pi * periods * time / length
        waves = np.stack([np.cos(angle), np.sin(angle)])
        tones.append(0.5**2 * waves.T @ waves + noise)
    return GaussianMixture(np.zeros((8, length)), np.stack(tones))


def columns(count: int = 10, groups: int = 3) -> GaussianMixture:
    """Rows in three groups, with means from N(0, 1) and columns correlated by two factors per group (seed 3)."""
    rng = np.random.default_rng(3)
    loadings = 0.4 * rng.standard_normal((groups, count, 2))
    means = rng.standard_normal((groups, count))
    return GaussianMixture(means, loadings @ loadings.transpose(0, 2, 1) + 0.1**2 * np.eye(count))
