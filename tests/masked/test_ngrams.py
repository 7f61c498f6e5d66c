"""The n-gram judge: a distribution after every history, entropy in the limit, and divergences of known values."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from dpstride import NgramModel, ngram_divergence

CHAIN = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]])


def chain_text(count: int, seed: int) -> npt.NDArray[np.int64]:
    draws = np.random.default_rng(seed).random(count)
    sums = CHAIN.cumsum(axis=1)
    text = np.zeros(count, dtype=np.int64)
    for i in range(1, count):
        text[i] = np.searchsorted(sums[text[i - 1]], draws[i] * sums[text[i - 1], -1], side="right")
    return text


def by_definition(text: list[int], vocabulary: int, history: list[int], token: int) -> float:
    """Witten and Bell's rule, word by word."""
    p = 1.0 / vocabulary
    for size in range(len(history) + 1):
        h = tuple(history[len(history) - size :])
        follows = Counter(text[i] for i in range(size, len(text)) if tuple(text[i - size : i]) == h)
        if follows:
            p = (follows[token] + len(follows) * p) / (follows.total() + len(follows))
    return p


@settings(max_examples=40, deadline=None)
@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    history=st.lists(st.integers(0, 3), max_size=6),
    order=st.integers(1, 5),
)
def test_probabilities_add_up_to_1_after_any_history_and_follow_the_rule(
    text: list[int], history: list[int], order: int
) -> None:
    found = NgramModel.of(np.array(text), 4, order).probabilities(history)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found > 0.0).all()
    used = history[len(history) - min(order - 1, len(history)) :]
    assert found == pytest.approx([by_definition(text, 4, used, token) for token in range(4)], rel=1e-12)


def test_the_cross_entropy_of_a_chain_tends_to_its_entropy() -> None:
    """Against the chain's own −ln p of the same held-out text, so that only what the model lacks is left."""
    heldout = chain_text(20_000, 1)
    own = np.mean([-np.log(CHAIN[a, b]) for a, b in pairwise(heldout)])
    excess = [
        NgramModel.of(chain_text(count, 0), 3, order=2).nats(heldout)[1:].mean() - own for count in (50, 1000, 50_000)
    ]
    assert excess[0] > excess[1] > excess[2]
    # Nine probabilities estimated from N tokens cost some 6/(2 N) nats; as much again for smoothing, and the held-out draw.
    assert abs(excess[2]) < 1e-3
    assert NgramModel.of(chain_text(50_000, 0), 3, order=1).nats(heldout).mean() > own + 0.2  # tokens alone know less


def test_sequences_are_counted_apart_and_scored_with_what_they_hold() -> None:
    rows = np.array([[0, 1, 2], [2, 1, 0]])
    model = NgramModel.of(rows, 3, order=9)
    assert model.probabilities([2, 0]) == pytest.approx(model.probabilities([0]))  # 2 and 0 are never neighbours
    bits, error = model.bits_per_token(rows)
    nats = model.nats(rows)
    assert bits == pytest.approx(nats.mean() / np.log(2.0))
    assert error == pytest.approx(nats.mean(axis=1).std(ddof=1) / np.sqrt(2) / np.log(2.0))
    assert np.isnan(model.bits_per_token(rows[0])[1])
    assert "up to 9 of 3 token ids, from 6 tokens" in repr(model)


def test_divergences_of_known_values() -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(0, 4, (20, 30))
    assert ngram_divergence(text, text[::-1], 3) == pytest.approx(0.0, abs=1e-12)
    assert ngram_divergence(text, text + 4, 2) == pytest.approx(1.0)
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])  # H(3/4, 1/4) − H(1/2)/2
    m = (p + q) / 2
    wanted = -(m * np.log2(m)).sum() - 0.5
    assert ngram_divergence([[0, 1, 0, 1]], [[0, 0, 0, 0]], 1) == pytest.approx(wanted)
    large = rng.integers(0, 4, (200, 30)), rng.integers(0, 4, (200, 30))
    assert 0.0 < ngram_divergence(*large) < ngram_divergence(large[0][:20], large[1][:20])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: NgramModel.of([0, 3], 3), "must lie in 0 … 2, but 3 is among them"),
        (lambda: NgramModel.of([], 3), "There are no tokens to count"),
        (lambda: NgramModel.of([0.5], 3), "Tokens must be whole numbers"),
        (lambda: NgramModel.of([0, 1], 1), "vocabulary must be a whole number of token ids, at least 2"),
        (lambda: NgramModel.of([0, 1], 2, 0), "order must be a whole number of tokens, at least 1"),
        (lambda: NgramModel.of([0, 1], 2).nats([[2]]), "must lie in 0 … 1, but 2 is among them"),
        (lambda: ngram_divergence([[0, 1]], [[0, 1, 2]], 3), "at least n = 3 tokens"),
    ],
)
def test_bad_input_is_refused_by_its_rule(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
