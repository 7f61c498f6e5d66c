"""Distributions whose every conditional is known: all sequences are listed with their probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpstride import MaskedDenoiser

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Joint:
    """All ``sequences`` [S, n] of ``vocabulary`` tokens with their probabilities [S]."""

    sequences: npt.NDArray[np.int64]
    probabilities: Array
    vocabulary: int

    @classmethod
    def of(cls, log_probability: Callable[[npt.NDArray[np.int64]], Array], vocabulary: int, n: int) -> Joint:
        sequences = np.array(list(itertools.product(range(vocabulary), repeat=n)))
        weights = np.exp(log_probability(sequences))
        return cls(sequences, weights / weights.sum(), vocabulary)

    @property
    def n(self) -> int:
        return self.sequences.shape[1]

    @property
    def entropy(self) -> float:
        return float(-(self.probabilities * np.log(self.probabilities)).sum())

    def marginal_entropy(self, places: tuple[int, ...]) -> float:
        """Entropy of the tokens at ``places``, by adding up probabilities."""
        keys = self.sequences[:, list(places)] @ self.vocabulary ** np.arange(len(places))
        sums = np.bincount(keys.astype(np.int64), self.probabilities)
        sums = sums[sums > 0.0]
        return float(-(sums * np.log(sums)).sum())

    def c(self) -> Array:
        """c_t for t = 0 … n by its definition: the mean of H(x_l given the known) over masks of t positions and their l."""
        found = np.zeros(self.n + 1)
        for t in range(1, self.n + 1):
            terms = []
            for masked in itertools.combinations(range(self.n), t):
                known = tuple(place for place in range(self.n) if place not in masked)
                terms += [self.marginal_entropy((*known, place)) - self.marginal_entropy(known) for place in masked]
            found[t] = np.mean(terms)
        return found

    def draw(self, count: int, seed: int = 0) -> npt.NDArray[np.int64]:
        chosen = np.random.default_rng(seed).choice(len(self.sequences), size=count, p=self.probabilities)
        return self.sequences[chosen]

    def network(self) -> Callable[[Tensor], Tensor]:
        """Logits of exact conditionals; ``vocabulary`` itself is the mask token."""
        sequences = torch.from_numpy(self.sequences)
        weights = torch.from_numpy(self.probabilities)
        one_hot = torch.nn.functional.one_hot(sequences, self.vocabulary).double().flatten(1)

        def conditionals(tokens: Tensor) -> Tensor:
            known = tokens != self.vocabulary
            agree = ((tokens[:, None] == sequences) | ~known[:, None]).all(dim=2)
            sums = (agree * weights) @ one_hot
            return sums.reshape(len(tokens), self.n, self.vocabulary).clamp(min=1e-300).log()

        return conditionals

    def denoiser(self) -> MaskedDenoiser:
        return MaskedDenoiser(self.network(), self.vocabulary, self.vocabulary, self.n)


def independent(n: int = 6) -> Joint:
    p = np.log([0.5, 0.3, 0.2])
    return Joint.of(lambda x: p[x].sum(axis=1), 3, n)


def markov(n: int = 6) -> Joint:
    """A chain of letters that seldom change."""
    A = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]])
    return Joint.of(lambda x: math.log(1 / 3) + np.log(A[x[:, :-1], x[:, 1:]]).sum(axis=1), 3, n)


def topics(n: int = 6) -> Joint:
    """One of four topics, each with letters of its own."""
    p = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9], [1 / 3, 1 / 3, 1 / 3]])
    return Joint.of(lambda x: np.log(np.mean(np.prod(p[:, x], axis=2), axis=0)), 3, n)


JOINTS = {"independent": independent, "markov": markov, "topics": topics}
