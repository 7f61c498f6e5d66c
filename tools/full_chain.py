"""Held-out bits/dim of the full chain for a model card, from a few network passes per image instead of T.

Every image is scored at the decoder's step and at a few t, stratified over all images, from a proposal distribution on 2..T
that favours low noise, where the terms are largest. Weighted by the inverse of its probability each draw is an unbiased
estimate of the sum over t, and totals per image give the standard error. The terms are those of `bits_per_dim` over all steps
with the model's own variance and decoder `upper`.

``python tools/full_chain.py checkpoints/cifar-hybrid cifar-10-batches-bin/test_batch.bin --images 512``
"""

from __future__ import annotations

import math
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor

from dpstride import variances
from dpstride.denoiser import Denoiser
from dpstride.fitted import Fitted
from dpstride.statistics.decoder import decoder_nats, signed_residual

HALF_BIN = 1.0 / 255.0


def full_chain_bpd(
    denoiser: Denoiser,
    images: Tensor,
    draws: int = 4,
    seed: int = 1,
    batch_size: int = 128,
) -> tuple[float, float]:
    """Bits/dim of the chain through every grid step on uint8 ``images`` [N, C, H, W], and its standard error."""
    T = denoiser.process.T
    generator = torch.Generator().manual_seed(seed)
    N, dims = len(images), math.prod(images.shape[1:])
    t = np.arange(2, T + 1)
    # Approximately the decay of the terms of trained models; the estimate is unbiased for any p.
    p = 0.1 / t.size + 0.9 * t**-1.3 / (t**-1.3).sum()
    points = (torch.randperm(N * draws, generator=generator) + torch.rand((), generator=generator)) / (N * draws)
    drawn = np.minimum(np.searchsorted(np.cumsum(p), points.double().numpy()), t.size - 1).reshape(N, draws)
    totals = np.zeros(N)
    with torch.no_grad():
        for first in range(0, N, batch_size):
            rows = slice(first, first + batch_size)
            x = images[rows].double() / 127.5 - 1.0
            nats = _prior_nats(denoiser, x) + _decoder_nats(denoiser, x, generator)
            for column in drawn[rows].T:
                nats += _step_nats(denoiser, x, t[column], generator) / torch.from_numpy(p[column] * draws)
            totals[rows] = nats.numpy()
    bits = totals / (dims * math.log(2.0))
    return float(bits.mean()), float(bits.std(ddof=1) / math.sqrt(N))


def _noised(denoiser: Denoiser, x: Tensor, t: np.ndarray[tuple[int], np.dtype[np.int64]], noise: Tensor) -> Tensor:
    f, g = (torch.from_numpy(array[t]).reshape(-1, 1, 1, 1) for array in (denoiser.process.f, denoiser.process.g))
    return f * x + g * noise


def _step_nats(
    denoiser: Denoiser, x: Tensor, t: np.ndarray[tuple[int], np.dtype[np.int64]], generator: torch.Generator
) -> Tensor:
    """Cost of the step t → t − 1 of every image, t >= 2, [B]."""
    process = denoiser.process
    x_t = _noised(denoiser, x, t, torch.randn(x.shape, generator=generator, dtype=torch.float64))
    prediction = denoiser(x_t, torch.from_numpy(t))
    q_variance, b = (
        torch.from_numpy(each).reshape(-1, 1, 1, 1)
        for each in (process.posterior_variance(t, t - 1), process.posterior_mean(t, t - 1)[1])
    )
    # KL(q(x_s given x_t, x_0) ‖ p(x_s given x_t)) for two Gaussians whose means differ by b (x_0 − x̂_0).
    of = variances.find(denoiser.variance).value
    fractions = [None] * len(x) if prediction.fraction is None else prediction.fraction.double()
    p_variance = torch.stack(
        [
            torch.as_tensor(of(process, int(at), int(at) - 1, fraction, Fitted())).expand(x.shape[1:])
            for at, fraction in zip(t, fractions, strict=True)
        ]
    )
    gap = b * (x - prediction.x0_hat.double())
    nats = 0.5 * ((p_variance / q_variance).log() + (q_variance + gap.square()) / p_variance - 1.0)
    return nats.flatten(1).sum(dim=1)


def _decoder_nats(denoiser: Denoiser, x: Tensor, generator: torch.Generator) -> Tensor:
    """−ln p(x_0 given x_1) with variance g_1², [B]."""
    first = np.ones(len(x), dtype=np.int64)
    x_1 = _noised(denoiser, x, first, torch.randn(x.shape, generator=generator, dtype=torch.float64))
    error = x - denoiser(x_1, 1).x0_hat.double()
    low_edge, edge = x < -1.0 + HALF_BIN, x.abs() > 1.0 - HALF_BIN
    q = signed_residual(error, low_edge, edge)
    nats: Tensor = decoder_nats(q, edge, HALF_BIN, float(denoiser.process.g[1]))
    return nats.flatten(1).sum(dim=1)


def _prior_nats(denoiser: Denoiser, x: Tensor) -> Tensor:
    """KL(q(x_T given x_0) ‖ N(0, I)), [B]."""
    f, variance = float(denoiser.process.f[-1]), float(denoiser.process.g[-1] ** 2)
    return 0.5 * ((f * x).square() + (variance - 1.0 - math.log(variance))).flatten(1).sum(dim=1)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data")
@click.option("--images", type=click.IntRange(2), default=2048, show_default=True, help="Images to score on.")
@click.option("--draws", type=click.IntRange(1), default=8, show_default=True, help="Values of t per image.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
def main(folder: Path, data: str, images: int, draws: int, threads: int) -> None:
    """Print the held-out bits/dim of the model in FOLDER, which `dpstride train` wrote, on the first images of DATA."""
    from dpstride import read_data
    from dpstride.zoo.models import load_folder

    torch.set_num_threads(threads)
    chosen = torch.as_tensor(read_data(data))[:images]
    bpd, standard_error = full_chain_bpd(load_folder(folder), chosen, draws)
    click.echo(f"{folder}: {bpd:.3f} ± {standard_error:.3f} bits/dim, {len(chosen):,} images at {draws} t each, seed 1")


if __name__ == "__main__":
    main()
