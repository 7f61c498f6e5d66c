"""Stage 7. Measures of generated tokens without a network: an n-gram model, and the divergence of the n-grams of two texts.

The model counts n-grams of every order up to its own and interpolates them by the rule of Witten and Bell (1991): with counts
c, and N(h) the number of different tokens seen after the history h,

    p(w given h) = (c(hw) + N(h) p(w given h')) / (c(h) + N(h)),    h' = h without its oldest token,

down to 1/vocabulary. It is a proper distribution for every history, seen or not, and of any length, so passages may begin
anywhere without padding. N-grams are numbered order by order, by (number of the n-gram without its last token, last token), so
that any vocabulary fits into 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.numbers import whole_number
from .tokens import whole_tokens

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
NONE = -1  # number of an n-gram that was never seen, or that would start before its sequence


@dataclass(frozen=True, eq=False)
class _Level:
    """N-grams of one order.

    Attributes:
        keys: number of the history · vocabulary + last token, ascending; the index of a key is the number of its n-gram.
        counts: occurrences of each n-gram.
        totals: occurrences of each history before any token.
        kinds: number of different tokens after each history.
    """

    keys: Integers
    counts: Integers
    totals: Integers
    kinds: Integers


@dataclass(frozen=True, eq=False)
class NgramModel:
    """An interpolated n-gram model of tokens; make one with `NgramModel.of`."""

    vocabulary: int
    order: int
    tokens: int
    _levels: tuple[_Level, ...] = field(repr=False)

    @classmethod
    def of(cls, sequences: Any, vocabulary: int, order: int = 6) -> NgramModel:
        """Fit a model to ``sequences``, one row of tokens or [N, n]; n-grams of up to ``order`` tokens are counted."""
        whole_number(vocabulary, "vocabulary must be a whole number of token ids, at least 2", 2)
        whole_number(order, "order must be a whole number of tokens, at least 1")
        x = _rows(sequences, vocabulary)
        levels: list[_Level] = []
        histories, before = np.zeros_like(x), 1
        for _ in range(order):
            if not (found := histories != NONE).any():
                break  # all sequences are shorter
            keys, counts = np.unique(histories[found] * vocabulary + x[found], return_counts=True)
            parents = keys // vocabulary
            totals = np.bincount(parents, counts, minlength=before).astype(np.int64)
            levels.append(_Level(keys, counts, totals, np.bincount(parents, minlength=before)))
            histories, before = _after(_numbers(levels[-1], histories, x, vocabulary)), len(keys)
        return cls(vocabulary, order, int(x.size), tuple(levels))

    def __repr__(self) -> str:
        return f"<NgramModel of up to {self.order} of {self.vocabulary} token ids, from {self.tokens:,} tokens>"

    def nats(self, sequences: Any) -> Array:
        """−ln p of every token given those before it in its row, [N, n] (or [n] of one row)."""
        x = _rows(sequences, self.vocabulary)
        p, histories = np.full(x.shape, 1.0 / self.vocabulary), np.zeros_like(x)
        for level in self._levels:
            numbers = _numbers(level, histories, x, self.vocabulary)
            # A history that was never followed by a token has no row of its own.
            totals, kinds = (_looked_up(each, histories) for each in (level.totals, level.kinds))
            known = totals > 0
            p[known] = ((_looked_up(level.counts, numbers) + kinds * p) / np.maximum(totals + kinds, 1))[known]
            histories = _after(numbers)
        found = -np.log(p)
        return np.asarray(found[0] if np.ndim(sequences) == 1 else found)

    def bits_per_token(self, sequences: Any) -> tuple[float, float]:
        """Cross-entropy of ``sequences`` [N, n] in bits/token, and its standard error over sequences (NaN for one)."""
        per_sequence = np.atleast_2d(self.nats(sequences)).mean(axis=1) / np.log(2.0)
        count = len(per_sequence)
        error = float(per_sequence.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
        return float(per_sequence.mean()), error

    def probabilities(self, history: Sequence[int] = ()) -> Array:
        """The distribution of the token after ``history``, [vocabulary]."""
        rows = np.tile(np.asarray([*history, 0], dtype=np.int64), (self.vocabulary, 1))
        rows[:, -1] = np.arange(self.vocabulary)
        return np.asarray(np.exp(-self.nats(rows)[:, -1]))


def ngram_divergence(first: Any, second: Any, n: int = 3) -> float:
    """Jensen–Shannon divergence, in bits, of the distributions of ``n``-grams in two sets of sequences [N, m].

    0 for the same distribution, 1 if no n-gram is in both. For finite texts it is above 0 even if both have the same source,
    and larger for smaller texts: compare it with that of real text of the same size.
    """
    whole_number(n, "n must be a whole number of tokens, at least 1")
    rows = [_rows(each, None) for each in (first, second)]
    if min(each.shape[1] for each in rows) < n:
        raise ValueError(f"Sequences must have at least n = {n} tokens. Lower n.")
    windows = [np.lib.stride_tricks.sliding_window_view(each, n, axis=1).reshape(-1, n) for each in rows]
    _, place = np.unique(np.concatenate(windows), axis=0, return_inverse=True)
    place = place.reshape(-1)
    kinds = int(place.max()) + 1
    p, q = (np.bincount(part, minlength=kinds) / part.size for part in np.split(place, [len(windows[0])]))
    return _entropy((p + q) / 2.0) - (_entropy(p) + _entropy(q)) / 2.0


def _entropy(p: Array) -> float:
    p = p[p > 0.0]
    return float(-(p * np.log2(p)).sum())


def _rows(sequences: Any, vocabulary: int | None) -> Integers:
    """Tokens [N, n], checked against the vocabulary if there is one."""
    x = np.atleast_2d(whole_tokens(sequences, (1, 2)))
    if x.size == 0:
        raise ValueError("There are no tokens to count. Give at least one sequence of one token.")
    if vocabulary is not None and (x.min() < 0 or x.max() >= vocabulary):
        wrong = int(x[(x < 0) | (x >= vocabulary)][0])
        raise ValueError(f"Token ids must lie in 0 … {vocabulary - 1}, but {wrong} is among them. Check vocabulary.")
    return x


def _numbers(level: _Level, histories: Integers, x: Integers, vocabulary: int) -> Integers:
    """Numbers of the n-grams that end at each token; NONE for unseen ones, and without a known history."""
    wanted = np.where(histories == NONE, NONE, histories * vocabulary + x)
    place = np.minimum(np.searchsorted(level.keys, wanted), len(level.keys) - 1)
    return np.where(level.keys[place] == wanted, place, NONE)


def _after(numbers: Integers) -> Integers:
    """Histories of the next order: at each token, the n-gram that ends at the one before it."""
    shifted = np.full_like(numbers, NONE)
    shifted[:, 1:] = numbers[:, :-1]
    return shifted


def _looked_up(values: Integers, numbers: Integers) -> Integers:
    return np.where(numbers == NONE, 0, values[np.maximum(numbers, 0)])
