"""Models that are given some elements and predict the others: a smooth one with errors of every kind, and an exact one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpstride import Denoiser, ForwardProcess

Array = NDArray[Any]
NAMES = {"mask": "mask", "observed": "observed"}


def told(x_0: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """The conditioning of a model that is given ``x_0`` where ``mask`` is 0."""
    return {"mask": mask.double(), "observed": torch.where(mask, 0.0, x_0)}


def erring(x: Tensor, time: Tensor, truth: Tensor, size: Tensor | float = 1.0, **given: Tensor) -> Tensor:
    """x̂_0 and φ that depend on the clean value of each element alone, so that they are the same in fewer dimensions.

    Errors have a ``size``, one for all or one for each sample. Elements that are given are far off, and their φ is not what
    any network says: none of it may count.
    """
    clock = 1.0 + time.double().reshape(-1, *[1] * (x.ndim - 1))
    x0_hat = truth + 0.02 * size * clock**0.5 * torch.sin(7.0 * truth + clock)
    v = 0.9 * torch.sin(5.0 * truth + clock)
    if given:
        x0_hat = torch.where(given["mask"] == 1, x0_hat, 50.0)
        v = torch.where(given["mask"] == 1, v, 700.0)
    return torch.cat([x0_hat, v], dim=1)


class ConditionalGaussian:
    """The exact denoiser of x ~ N(0, covariance) where some elements are known: E[x_0 given x_t and the known ones].

    By conditioning on y = x_0 + noise, whose noise has variance (g/f)² where x_t is looked at and 0 where x_0 is known.
    """

    def __init__(self, covariance: Array, process: ForwardProcess) -> None:
        self.covariance = torch.from_numpy(covariance)
        self.process = process

    def __call__(self, x: Tensor, time: Tensor, mask: Tensor, observed: Tensor) -> Tensor:
        index = (time + 1).long().numpy()
        f, g = (torch.from_numpy(each[index])[:, None] for each in (self.process.f, self.process.g))
        y = torch.where(mask == 1, x / f, observed)
        noise = torch.where(mask == 1, (g / f) ** 2, 0.0)
        weights = torch.linalg.solve(self.covariance + torch.diag_embed(noise), y[..., None])
        return (self.covariance @ weights)[..., 0]

    def denoiser(self, **options: Any) -> Denoiser:
        """The model."""
        shape = (len(self.covariance),)
        return Denoiser(self, self.process, predicts="x0", clip=None, shape=shape, **NAMES, **options)

    def of_predicted(self, known: Array, values: Array) -> tuple[Array, Array]:
        """Mean and covariance of the other elements given the ``known`` ones, by the textbook."""
        C = self.covariance.numpy()
        cross = C[np.ix_(~known, known)]
        gain = cross @ np.linalg.inv(C[np.ix_(known, known)])
        return gain @ values, C[np.ix_(~known, ~known)] - gain @ cross.T

    def nats(self, x_0: Array, mask: Array) -> float:
        """−ln p(predicted given known) of one sample."""
        mean, covariance = self.of_predicted(~mask, x_0[~mask])
        e = x_0[mask] - mean
        log_det = float(np.linalg.slogdet(2.0 * math.pi * covariance)[1])
        return 0.5 * float(e @ np.linalg.solve(covariance, e) + log_det)
