"""Stage 3. Network passes: the masked positions of a (count, sample), and −ln p of the tokens there.

Masks are determined by (seed, sample), so no number depends on batches, order of work or interruption. Each sample has one
order in which its tokens are masked, for all counts: so c_t of neighbouring counts have correlated noise, and the best path
is not attracted by counts where c_t is small by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..calling import NonFiniteError
from ..runs.execution import Execution
from ..runs.storage import Arrays
from ..statistics.data import slice_conditioning
from ..statistics.noise import uniform
from ..statistics.probes import COUNT, Probed, check_unchanged, probe
from ..statistics.units import Unit, batches, sample_ranges
from .denoiser import MaskedDenoiser
from .process import scale_counts
from .tokens import Tokens

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class MaskedPasses:
    """Passes of one network over one data set."""

    def __init__(self, denoiser: MaskedDenoiser, tokens: Tokens, how: Execution) -> None:
        tokens.check(denoiser)
        self.denoiser, self.tokens, self.how = denoiser, tokens, how
        self.ranges = sample_ranges(len(tokens))
        self.sizes = tokens.sizes

    def probe(self) -> Probed:
        """Run the probes: refuse a network that is random or mixes samples, and record its behaviour."""
        spread = np.linspace(0, len(self.tokens) - 1, COUNT).round().astype(int).tolist()
        return probe(self.denoiser, self._probe_inputs, spread, self.how.batch_size)

    def check_unchanged(self, probed: Probed) -> None:
        """Repeat four of the probes after the work; raise ValueError if the network has changed."""
        check_unchanged(self.denoiser, self._probe_inputs, probed)

    def run(self, unit: Unit) -> Arrays:
        """Mean −ln p of the masked tokens of every sample of a unit, one array for each of its counts."""
        samples = np.array(self.ranges[unit.range])
        t, who = np.repeat(unit.steps, len(samples)), np.tile(samples, len(unit.steps))
        found = np.concatenate([self.means(t[part], who[part]) for part in batches(len(t), self.how.batch_size)])
        counts = self.denoiser.process.counts[list(unit.steps)]
        return {str(count): row for count, row in zip(counts, found.reshape(len(counts), -1), strict=True)}

    def masked(self, t: Integers, samples: Integers) -> Booleans:
        """Positions masked at grid indices ``t`` of ``samples``: [B, n]."""
        process, tokens = self.denoiser.process, self.tokens
        counts = process.counts[t]
        draws = uniform(self.how.seed, "mask", 0, samples.tolist(), numbers=tokens.ids.shape[1])
        return first_of(draws, tokens.free[samples], scale_counts(counts, process.length, self.sizes[samples]))

    def nats(self, masked: Booleans, asked: Booleans, samples: Integers) -> npt.NDArray[np.float64]:
        """−ln p of the tokens at the positions ``asked``, given all but the ``masked`` ones; [B, n]."""
        ids = torch.from_numpy(self.tokens.ids[samples])
        x, share, conditioning = fed(self.denoiser, self.tokens, masked, samples)
        return self.denoiser.nats(ids, x, torch.from_numpy(asked), share, conditioning=conditioning).numpy()

    def means(self, t: Integers, samples: Integers) -> npt.NDArray[np.float64]:
        """Mean −ln p of the masked tokens of each (t, sample), in one network pass."""
        masked = self.masked(t, samples)
        try:
            nats = self.nats(masked, masked, samples)
        except NonFiniteError as error:
            raise named(error, [f"t = {self.denoiser.process.counts[i]} masked tokens" for i in t], samples) from error
        return np.asarray(nats.sum(axis=1) / np.maximum(masked.sum(axis=1), 1))  # short samples may have none masked

    def _probe_inputs(self, t: Integers, samples: Integers) -> tuple[Tensor, Any]:
        x, _, conditioning = fed(self.denoiser, self.tokens, self.masked(t, samples), samples)
        return x, conditioning


def fed(denoiser: MaskedDenoiser, tokens: Tokens, masked: Booleans, samples: Integers) -> tuple[Tensor, Tensor, Any]:
    """The network's input for ``samples``: tokens with masks and padding, the share of masks, conditioning."""
    masked = masked | tokens.hidden[samples]
    lengths = tokens.lengths[samples]
    x = np.where(masked, denoiser.mask_token, tokens.ids[samples])
    if denoiser.pad_token is not None:
        x = np.where(np.arange(x.shape[1]) < lengths[:, None], x, denoiser.pad_token)
    share = torch.from_numpy(masked.sum(axis=1) / lengths)
    return torch.from_numpy(x), share, slice_conditioning(tokens.conditioning, samples.tolist())


def first_of(draws: npt.NDArray[np.float64], free: Booleans, counts: Integers) -> Booleans:
    """The ``counts`` [B] free positions with the smallest ``draws`` [B, n]."""
    return np.asarray(ranks_of(draws, free) < counts[:, None])


def ranks_of(draws: npt.NDArray[np.float64], free: Booleans) -> Integers:
    """Ranks of free positions by ``draws`` [B, n], from 0; n for positions that are not free."""
    order = np.argsort(np.where(free, draws, np.inf), axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(draws.shape[1])[None, :], axis=1)
    return np.where(free, ranks, draws.shape[1])


def named(error: NonFiniteError, where: list[str], samples: Integers) -> NonFiniteError:
    """The error, with the samples and counts where it occurred."""
    found = [f"sample {samples[i]} at {where[i]}" for i in error.positions[:3]]
    more = len(error.positions) - len(found)
    return NonFiniteError(
        f"{error} It happened for {', '.join(found)}{f' and {more} more' if more else ''}. Check the network's weights and "
        "precision, and that vocabulary and mask_token are those of its tokenizer.",
        error.positions,
    )
