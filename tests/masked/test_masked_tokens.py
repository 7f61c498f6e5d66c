"""Sequences, the roles of their positions, and what a network makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from joints import markov
from torch import Tensor

import dpstride
from dpstride import MaskedDenoiser, MaskedProcess, NonFiniteError, Tokens
from dpstride.masked.passes import fed, first_of
from dpstride.masked.process import scale_counts

MASK, PAD = 9, 8


def uniform_network(tokens: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.zeros(*tokens.shape, 10)


def denoiser(network: Callable[..., Tensor] = uniform_network, **options: Any) -> MaskedDenoiser:
    return MaskedDenoiser(network, **{"vocabulary": 10, "mask_token": MASK, "length": 6, "pad_token": PAD} | options)


# --- counts ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 200))
def test_shares_are_rounded_half_up_and_keep_both_ends(length: int, size: int) -> None:
    counts = np.arange(length + 1)
    scaled = scale_counts(counts, length, size)
    assert (scaled[0], scaled[-1]) == (0, size)
    assert (np.diff(scaled) >= 0).all()
    gaps = 2 * (scaled * length - counts * size)  # twice the distance from the exact share, in units of 1/length
    assert (gaps <= length).all()
    assert (gaps > -length).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0,), "length must be a whole number of tokens, at least 1, not 0"),
        ((4, [2, 3]), "counts must include 4"),
        ((4, [2, 5]), "from 0 to 4"),
        ((4, [2.5, 4]), "from 0 to 4"),
    ],
)
def test_impossible_grids_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedProcess(*arguments)


# --- sequences -----------------------------------------------------------------------------------------------------------


def test_roles_of_positions() -> None:
    tokens = Tokens.of([[1, 2, 3, 4, 5], [1, 2, 3]], prefixes=[2, 0], known=[[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]])
    assert tokens.free.tolist() == [[False, False, True, True, False], [False, True, True, False, False]]
    masked = np.array([[False, False, True, False, False], [False, True, True, False, False]])
    x, share, _ = fed(denoiser(), tokens, masked, np.array([0, 1]))
    assert x.tolist() == [[1, 2, MASK, 4, 5], [1, MASK, MASK, PAD, PAD]]
    assert share.tolist() == [1 / 5, 2 / 3]


def test_blocks_know_what_came_before_and_hide_what_comes_after() -> None:
    blocks = Tokens.of([[1, 2, 3, 4, 5, 6], [1, 2, 3]], prefixes=[1, 0]).blocks(2)
    assert blocks.sequence.tolist() == [0, 0, 0, 1, 1]
    assert blocks.sizes.tolist() == [2, 2, 1, 2, 1]
    x, _, _ = fed(denoiser(), blocks, blocks.free, np.arange(5))
    assert x.tolist() == [
        [1, MASK, MASK, MASK, MASK, MASK],
        [1, 2, 3, MASK, MASK, MASK],
        [1, 2, 3, 4, 5, MASK],
        [MASK, MASK, MASK, PAD, PAD, PAD],
        [1, 2, MASK, PAD, PAD, PAD],
    ]


def test_every_set_of_positions_is_as_likely() -> None:
    draws = np.random.default_rng(0).random((6000, 5))
    free = np.array([[True, True, False, True, True]]).repeat(6000, axis=0)
    sets = first_of(draws, free, np.full(6000, 2))
    assert (sets.sum(axis=1) == 2).all()
    kinds, counts = np.unique(sets, axis=0, return_counts=True)
    assert len(kinds) == 6
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(6000 * (1 / 6) * (5 / 6))


@pytest.mark.parametrize(
    "data, options, message",
    [
        (np.zeros((2, 3)), {}, "Tokenize text first"),
        (["text"], {}, "Tokenize text first"),
        (np.zeros((0, 3), dtype=int), {}, "There are no tokens"),
        (np.zeros((2, 3), dtype=int), {"prefixes": 3}, "Sequence 0 has no token to generate"),
        (np.zeros((2, 3), dtype=int), {"prefixes": [0, 4]}, "sequence 1 has 3 tokens and a prefix of 4"),
        (np.zeros((2, 3), dtype=int), {"lengths": [3, 4]}, "lengths must be 2 numbers of tokens from 1 to 3"),
        (np.zeros((2, 3), dtype=int), {"known": [[True]]}, "known must have the shape of the tokens"),
        (np.zeros((2, 3), dtype=int), {"conditioning": torch.zeros(3)}, "one entry per sample"),
    ],
)
def test_impossible_sequences_are_refused(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tokens.of(data, **options)


@pytest.mark.parametrize(
    "data, options, message",
    [
        ([[1, 2, 10]], {}, "ids must lie in 0 … 9, but sample 0 has 10 at position 2"),
        ([[1, -1]], {}, "sample 0 has -1 at position 1"),
        (
            [[1, 2], [3, MASK]],
            {},
            "must not contain the mask token, but sample 1 has 9 at position 1",
        ),
        ([[1] * 7], {}, "up to 6 tokens, but sample 0 has 7"),
        ([[1, 2], [3]], {"pad_token": None}, "Set pad_token= of MaskedDenoiser"),
    ],
)
def test_data_that_the_model_does_not_take_are_refused(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dpstride.estimate_masked(denoiser(**options), data, progress=False)


def test_a_mask_token_in_a_known_prompt_is_allowed() -> None:
    Tokens.of([[MASK, 1, 2]], prefixes=1).check(denoiser())


# --- networks ----------------------------------------------------------------------------------------------------------------


def costs_of(model: MaskedDenoiser, data: Any = ((1, 2, 3, 4),)) -> np.ndarray:
    return dpstride.estimate_masked(model, data if isinstance(data, Tokens) else list(data), progress=False).nats


def test_the_mask_token_has_no_probability() -> None:
    np.testing.assert_allclose(costs_of(denoiser())[1:], np.log(9.0))
    outside = denoiser(lambda tokens: torch.zeros(*tokens.shape, 10), mask_token=10)
    np.testing.assert_allclose(costs_of(outside)[1:], np.log(10.0))


def test_shifted_logits_are_put_back_in_their_places() -> None:
    right = torch.tensor([1, 2, 3, 4])

    def autoregressive(tokens: Tensor) -> Tensor:
        """At position l the logits of l + 1; position 0 has its own too."""
        logits = torch.full((*tokens.shape, 10), -30.0)
        for place, token in enumerate(right[1:]):
            logits[:, place, token] = 30.0
        logits[:, 0, right[0]] = 30.0
        return logits

    found = costs_of(denoiser(autoregressive, shifted=True))
    assert found.max() < 1.0
    assert costs_of(denoiser(autoregressive)).max() > 10.0


def test_time_is_the_share_of_masked_tokens() -> None:
    seen: set[float] = set()

    def network(tokens: Tensor, time: Tensor) -> Tensor:
        seen.update(time.tolist())
        return torch.zeros(*tokens.shape, 10)

    costs_of(denoiser(network, time_input="share"))
    assert seen == {0.25, 0.5, 0.75, 1.0}
    seen.clear()
    costs_of(denoiser(network, time_input=lambda share: 100.0 * share))
    assert seen == {25.0, 50.0, 75.0, 100.0}


def test_conditioning_goes_to_its_sample() -> None:
    def network(tokens: Tensor, bias: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, 10)
        logits[..., 5] = bias[:, None]
        return logits

    tokens = Tokens.of([[5, 5], [5, 5]], conditioning={"bias": torch.tensor([0.0, 50.0])})
    found = costs_of(denoiser(network), tokens)
    assert found[1:, 0] == pytest.approx(np.log(9.0))
    assert found[1:, 1].max() < 1e-9


@pytest.mark.parametrize(
    "network, message",
    [
        (lambda tokens: torch.zeros(len(tokens), 10, tokens.shape[1]), r"\(1, 4, 10\), but it returned \(1, 10, 4\)"),
        (lambda tokens: torch.zeros(*tokens.shape, 11), "last dimension must be the vocabulary. Check vocabulary=10"),
        (lambda tokens: {"logits": tokens}, "must return a tensor of logits, not dict"),
        (lambda tokens: torch.rand(*tokens.shape, 10), "draws random numbers"),
        (lambda tokens: tokens.double().mean() + torch.zeros(*tokens.shape, 10), "depends on the other samples"),
        (lambda tokens, time: torch.zeros(*tokens.shape, 10), "missing 1 required positional argument: 'time'"),
    ],
)
def test_what_is_no_network_of_tokens_is_refused(network: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        costs_of(denoiser(network), [[1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 2, 2], [3, 1, 3, 1]])


def test_nan_is_named_with_its_count_and_sample() -> None:
    def network(tokens: Tensor) -> Tensor:
        masked = (tokens == MASK).sum(dim=1)
        odd = (tokens[:, 0] == 2) & (masked == 3)
        return torch.where(odd, torch.nan, 0.0)[:, None, None] + torch.zeros(*tokens.shape, 10)

    data = Tokens.of([[1, 1, 1, 1], [2, 1, 1, 1]], prefixes=1)
    with pytest.raises(NonFiniteError, match="sample 1 at t = 3 masked tokens"):
        dpstride.estimate_masked(denoiser(network), data, progress=False)
    with pytest.raises(NonFiniteError, match=r"sample 1 at t = 3 masked tokens \(round 1\)"):
        dpstride.bits_per_token(denoiser(network), data, dpstride.even_unmasking(3, 3))


def test_a_token_without_any_chance_is_named() -> None:
    def network(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, 10)
        logits[..., 3] = -torch.inf
        return logits

    with pytest.raises(NonFiniteError, match=r"probability 0\. It happened for sample 0 at t = "):
        costs_of(denoiser(network))


def test_large_vocabularies_are_turned_into_probabilities_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    joint = markov()
    data = joint.draw(3)
    whole = costs_of(joint.denoiser(), data)
    monkeypatch.setattr("dpstride.masked.denoiser.NUMBERS", 4)
    assert np.array_equal(costs_of(joint.denoiser(), data), whole)
