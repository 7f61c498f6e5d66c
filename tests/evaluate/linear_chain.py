"""Gaussian data whose ideal denoiser makes every chain linear."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpstride import (
    Denoiser,
    ForwardProcess,
)
from dpstride.fitted import Fitted
from gaussian import Array, gaussian_denoiser, ideal_statistics

MEAN, VARIANCE = np.array([0.4, -0.8, 0.0]), np.array([0.25, 1.0, 0.05])
V = np.array([-0.6, 0.3, 1.4])  # a network's constant v, so φ = (v + 1)/2 is 0.2, 0.65 and 1.2


def assert_moments(samples: Tensor, mean: Array, variance: Array, dtype: torch.dtype = torch.float32) -> None:
    """Mean and covariance within 5 of their own standard errors; dimensions are independent."""
    x, n = samples.double().numpy(), len(samples)
    assert samples.dtype == dtype
    assert (np.abs(x.mean(axis=0) - mean) < 5.0 * np.sqrt(variance / n)).all()
    # Of Gaussian samples, cov[i, j] has variance (v_i v_j + cov²)/n, where cov² is v_i² on the diagonal and 0 elsewhere.
    error = np.sqrt(np.outer(variance, variance) * (1.0 + np.eye(len(variance))) / n)
    assert (np.abs(np.cov(x.T) - np.diag(variance)) < 5.0 * error).all()


def ideal(process: ForwardProcess, **options: Any) -> Denoiser:
    return gaussian_denoiser(process, MEAN, VARIANCE, **options)


def fitted_to(process: ForwardProcess) -> Fitted:
    """The numbers that `optimal` would fit on infinitely many samples."""
    return Fitted(ideal_statistics(process, MEAN, VARIANCE).mean_squared_error)
