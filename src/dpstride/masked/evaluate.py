"""Stage 7. Bits/token of a schedule by following its chain: a random order for each sequence, K network passes.

Deliberately independent of the costs: these multiply the mean over all masked tokens by their number, whereas this reveals the
tokens of each round and sums −ln p of exactly those. Tests check that the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..calling import NonFiniteError
from ..runs.bars import progress_bar
from ..runs.execution import Execution
from ..statistics.noise import uniform
from .costs import LN2, mean_bits
from .denoiser import MaskedDenoiser
from .passes import MaskedPasses, named, ranks_of
from .process import MaskedProcess
from .schedule import BinomialSchedule, MaskedSchedule
from .tokens import Tokens

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TokenLikelihood:
    """Bits/token of a schedule: an upper bound on −log2 p per generated token, with its standard error.

    ``rounds`` are the bits/token of each round, from all masked down; they add up to ``bits``.
    """

    bits: float
    standard_error: float
    rounds: tuple[float, ...]
    samples: int
    tokens: int


def bits_per_token(
    denoiser: MaskedDenoiser,
    heldout: Any,
    schedule: MaskedSchedule | BinomialSchedule,
    seed: int = 1,
    *,
    samples: int | None = None,
    batch_size: int = 64,
    progress: bool = False,
) -> TokenLikelihood:
    """Bits/token of ``schedule`` on ``heldout`` tokens by direct evaluation: K network passes per batch.

    Tokens are revealed in random order, for which the bound holds; an order by confidence has none. In sequences of other
    lengths than the schedule's the same share is masked, rounded half up. Probes come first, as in `estimate_masked`.
    """
    how, tokens = Execution(seed, batch_size, progress), Tokens.read(heldout, samples)
    tokens.check(denoiser)
    passes = MaskedPasses(denoiser.on_grid(MaskedProcess(int(tokens.sizes.max()))), tokens, how)
    passes.probe()
    starts = range(0, len(tokens), batch_size)
    nats = np.zeros((len(tokens), schedule.budget))
    with progress_bar(len(starts) * schedule.budget, "evaluate", shown=progress) as bar:
        for first in starts:
            who = np.arange(first, min(first + batch_size, len(tokens)))
            for column, found in enumerate(_rounds(passes, schedule, who)):
                nats[who, column] = found
                bar.update()
    return _likelihood(nats, tokens)


def _rounds(passes: MaskedPasses, schedule: MaskedSchedule | BinomialSchedule, who: npt.NDArray[np.int64]) -> Any:
    """Yield the nats [B] of the tokens that each round reveals in the samples ``who``."""
    free = passes.tokens.free[who]
    draws = np.where(free, uniform(passes.how.seed, "mask", 0, who.tolist(), numbers=free.shape[1]), np.inf)
    ranks = ranks_of(draws, free)
    counts = schedule.masked_counts(passes.sizes[who], draws)
    for number in range(schedule.budget):
        masked = ranks < counts[number][:, None]
        revealed = masked & (ranks >= counts[number + 1][:, None])
        found = np.zeros(len(who))
        if (some := revealed.any(axis=1)).any():
            try:
                found[some] = passes.nats(masked[some], revealed[some], who[some]).sum(axis=1)
            except NonFiniteError as error:
                where = [f"t = {count} masked tokens (round {number + 1})" for count in counts[number][some]]
                raise named(error, where, who[some]) from error
        yield found


def _likelihood(nats: Array, tokens: Tokens) -> TokenLikelihood:
    count = int(tokens.sizes.sum())
    bits, error = mean_bits(nats.sum(axis=1), tokens.sizes, tokens.sequence)
    rounds = nats.sum(axis=0) / (count * LN2)
    return TokenLikelihood(bits, error, tuple(rounds.tolist()), len(tokens), tokens=count)
