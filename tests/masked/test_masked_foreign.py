"""Networks in the conventions of MDLM and SEDD: with exact conditionals they have the bits/token that the law itself has."""

from __future__ import annotations

import pytest
import torch
from joints import topics
from torch import Tensor

import dpstride

JOINT = topics()
VOCABULARY = JOINT.vocabulary + 1  # both count the mask, which is their last token
MASK = JOINT.vocabulary


def noise_level(share: Tensor) -> Tensor:
    """Total noise of log-linear noise at the time that is the share."""
    return -torch.log1p(-(1 - 1e-3) * share)


def _log_probabilities(tokens: Tensor) -> Tensor:
    return JOINT.denoiser().network(tokens).double().log_softmax(dim=-1)


def mdlm(tokens: Tensor, sigma: Tensor) -> Tensor:
    """Log-probabilities, with the mask's at -1e6, and tokens that are known carried over."""
    assert sigma.shape == (len(tokens),)
    logs = torch.full((*tokens.shape, VOCABULARY), -1e6, dtype=torch.float64)
    logs[..., :MASK] = _log_probabilities(tokens)
    known = tokens != MASK
    logs[known] = -1e6
    logs[known, tokens[known]] = 0.0
    return logs


def sedd(tokens: Tensor, sigma: Tensor) -> Tensor:
    """Log scores: ln p(y)/p(mask) = ln p(y given the known) - ln(e^sigma - 1) where masked; 0 at the token that is there."""
    scores = torch.full((*tokens.shape, VOCABULARY), 3.7, dtype=torch.float64)
    scores[..., :MASK] = _log_probabilities(tokens)
    scores = scores - torch.expm1(sigma.double()).log()[:, None, None]
    return scores.scatter(-1, tokens[..., None], 0.0)


@pytest.mark.parametrize("network", [mdlm, sedd])
def test_conventions_of_others_give_the_same_bits(network) -> None:
    texts = JOINT.draw(24)
    denoiser = dpstride.MaskedDenoiser(network, VOCABULARY, MASK, JOINT.n, time_input=noise_level)
    for schedule in (dpstride.even_unmasking(JOINT.n, 2), dpstride.linear_times(3)):
        found = dpstride.bits_per_token(denoiser, texts, schedule, seed=2)
        exact = dpstride.bits_per_token(JOINT.denoiser(), texts, schedule, seed=2)
        assert found.bits == pytest.approx(exact.bits, rel=1e-12)
    samples = dpstride.sample_masked(denoiser, dpstride.even_unmasking(JOINT.n, 3), n=8, seed=1)
    assert samples.equal(dpstride.sample_masked(JOINT.denoiser(), dpstride.even_unmasking(JOINT.n, 3), n=8, seed=1))
