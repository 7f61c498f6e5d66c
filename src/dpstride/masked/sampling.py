"""Stage 7. Samples: starting from masks, each round reveals as many tokens as the schedule says; deterministic by seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..options import DEFAULT_ORDER, ORDERS, Order, check_choice
from ..runs.arguments import check_names, spelt_out
from ..runs.bars import progress_bar
from ..runs.numbers import check_batch_size, check_seed, whole_number
from ..statistics.noise import uniform
from .denoiser import MaskedDenoiser
from .orders import RULES
from .passes import Booleans, Integers, fed, ranks_of
from .schedule import BinomialSchedule, MaskedSchedule
from .tokens import Tokens

DECIMALS = 4  # of the scores that order tokens


@dataclass(frozen=True)
class Revealing:
    """The order in which tokens are revealed, their temperature, and the block size; see `sample_masked`."""

    order: Order = DEFAULT_ORDER
    temperature: float = 1.0
    block: int | None = None

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        if not self.temperature >= 0.0:
            raise ValueError(f"temperature must be 0 or more, not {self.temperature!r:.40}.")
        if self.block is not None:
            whole_number(self.block, "block must be a whole number of tokens")


@spelt_out(Revealing)
def sample_masked(
    denoiser: MaskedDenoiser,
    schedule: MaskedSchedule | BinomialSchedule,
    n: int = 64,
    seed: int = 0,
    *,
    prompts: Tokens | None = None,
    batch_size: int = 64,
    progress: bool = False,
    **revealing: Any,
) -> Tensor:
    """``n`` samples, int64 [n, length] on the CPU: K network passes per batch.

    Args:
        denoiser: the model.
        schedule: numbers of tokens that are masked after each round. In samples of other lengths the same share is masked,
            rounded half up.
        n: number of samples, if there are no prompts.
        seed: random seed; a sample depends on it and on its own index, not on batches.
        order: "random", for which the bound holds; or "confidence", "margin" or "entropy", the most certain tokens first
            (`masked.orders`), with the schedule's numbers.
        temperature: temperature of the distribution that tokens are drawn from; 0 takes the most likely token.
        prompts: sequences with known and free tokens, one sample for each; ids at free positions are ignored.
        block: tokens per block, to generate block by block with the schedule in each; all at once when None.
        batch_size: samples per network pass.
        progress: show a progress bar (only ever on a terminal).
    """
    check_batch_size(batch_size)
    check_seed(seed)
    check_names(sample_masked, revealing, Revealing)
    rules = Revealing(**revealing)
    if rules.order != DEFAULT_ORDER and isinstance(schedule, BinomialSchedule):
        raise ValueError(f"A BinomialSchedule needs order='random', not {rules.order!r}. Give a MaskedSchedule.")
    if prompts is None:
        whole_number(n, "n must be a whole number of samples, at least 1")
        prompts = Tokens.of(np.full((n, _length(denoiser, schedule)), 1 if denoiser.mask_token == 0 else 0))
    prompts.check(denoiser)
    starts = range(0, len(prompts), batch_size)
    results = []
    with progress_bar(len(starts), "sample", " batches", progress) as bar:
        for first in starts:
            who = np.arange(first, min(first + batch_size, len(prompts)))
            chain = _Chain(denoiser, schedule, seed, rules)
            results.append(chain.generate(prompts.take(who.tolist()), who))
            bar.update()
    return torch.from_numpy(np.concatenate(results))


class _Chain:
    def __init__(
        self, denoiser: MaskedDenoiser, schedule: MaskedSchedule | BinomialSchedule, seed: int, revealing: Revealing
    ) -> None:
        self.denoiser, self.schedule, self.seed = denoiser, schedule, seed
        self.rule, self.temperature, self.block = RULES[revealing.order], revealing.temperature, revealing.block

    def generate(self, tokens: Tokens, who: Integers) -> Integers:
        """Ids [B, n] with every free position filled in."""
        place = np.where(tokens.free, tokens.free.cumsum(axis=1) - 1, -1)
        size = int(tokens.sizes.max()) if self.block is None else self.block
        for number in range(-(-int(tokens.sizes.max()) // size)):
            current = place // size
            part = replace(tokens, free=current == number, hidden=tokens.hidden | (current > number))
            tokens = replace(tokens, ids=self._fill(part, who, number))
        ids = tokens.ids
        if self.denoiser.pad_token is not None:
            ids = np.where(np.arange(ids.shape[1]) < tokens.lengths[:, None], ids, self.denoiser.pad_token)
        return ids

    def _fill(self, tokens: Tokens, who: Integers, block: int) -> Integers:
        """Ids after all rounds of one block."""
        free, rounds = tokens.free, self.schedule.budget
        draws = np.where(free, uniform(self.seed, "mask", block, who.tolist(), numbers=free.shape[1]), np.inf)
        ranks = ranks_of(draws, free)
        counts = self.schedule.masked_counts(tokens.sizes, draws)
        masked = ranks < counts[0][:, None]
        for number in range(rounds):
            left = counts[number + 1]
            if (masked.sum(axis=1) == left).all():
                continue
            drawn, scores = self._draw(tokens, masked, who, block * rounds + number)
            if self.rule.score is None:
                still = ranks < left[:, None]
            else:
                # The lowest scores wait. Scores that differ only by rounding count as equal, or batches would matter.
                settled = scores.round(DECIMALS) + 0.1**DECIMALS * 0.5 * draws
                still = ranks_of(np.where(masked, settled, np.inf), masked) < left[:, None]
            tokens = replace(tokens, ids=np.where(masked & ~still, drawn, tokens.ids))
            masked = still
        return tokens.ids

    def _draw(
        self, tokens: Tokens, masked: Booleans, who: Integers, number: int
    ) -> tuple[Integers, npt.NDArray[np.float64]]:
        """A token for every masked position, drawn from its own distribution, and its score."""
        chance = torch.from_numpy(uniform(self.seed, "reveal", number, who.tolist(), numbers=masked.shape[1]))
        drawn, scores = torch.zeros(masked.shape, dtype=torch.int64), torch.zeros(masked.shape, dtype=torch.float64)
        x, share, conditioning = fed(self.denoiser, tokens, masked, np.arange(len(who)))
        for rows, logs in self.denoiser.probabilities(x, torch.from_numpy(masked), share, conditioning):
            sample, place = rows.cpu().unbind(dim=1)
            logs = logs.cpu()
            found = self._tokens(logs, chance[sample, place])
            drawn[sample, place] = found
            if self.rule.score is not None:
                scores[sample, place] = self.rule.score(logs, found)
        return drawn.numpy(), scores.numpy()

    def _tokens(self, logs: Tensor, chance: Tensor) -> Tensor:
        if self.temperature == 0.0:
            return logs.argmax(dim=1)
        sums = (logs / self.temperature).softmax(dim=1).cumsum(dim=1)
        # The last sum may be below 1 by rounding; the draw is scaled so that it cannot exceed it.
        return torch.searchsorted(sums, (chance * sums[:, -1])[:, None], right=True)[:, 0]


def _length(denoiser: MaskedDenoiser, schedule: Any) -> int:
    """Tokens of a sample without a prompt: the schedule's length, if it has one."""
    return min(denoiser.length, getattr(schedule, "length", denoiser.length))
