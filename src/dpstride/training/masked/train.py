"""The training loop of masked diffusion on characters, resumable bit for bit.

The loss of a passage is the mean −ln p of its masked characters: t of n, with t uniform on 1 … n. Its expectation is the bound
for revealing one character at a time, in nats per character.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpstride.denoiser import NonFiniteError
from dpstride.training.checkpoint import FILE, load_checkpoint, save_checkpoint
from dpstride.training.loop import (
    HELD_OUT_STREAM,
    Pace,
    TrainingRun,
    advance,
    descend,
    export_last,
    generator_of,
    record,
    restore,
    run_folder,
    state_of,
)
from dpstride.training.masked.settings import MaskedTrainingSettings
from dpstride.training.masked.text import Ids, split_text
from dpstride.zoo.characters import ALPHABET, CharacterTransformer, save_characters

HELD_OUT = 512  # passages for the held-out loss
MASK = len(ALPHABET)
PACE = Pace(evaluate_every=250, checkpoint_every=50)


def train_masked(
    text: str,
    folder: str | Path,
    settings: MaskedTrainingSettings | None = None,
    *,
    command: str | None = None,
    pace: Pace | None = None,
) -> Path:
    """Train a `CharacterTransformer` on ``text``, and return the folder it is saved in.

    After an interruption, call it again with the same arguments: it resumes from the last checkpoint, and the result is bit for
    bit that of an uninterrupted run on the same machine.
    """
    settings, folder = settings or MaskedTrainingSettings(), Path(folder)
    with run_folder(folder):
        run = MaskedRun(text, folder, settings, command)
        advance(run, pace or PACE)
        return folder if run.step < settings.steps else run.finish()


def export_masked(
    text: str, folder: str | Path, settings: MaskedTrainingSettings | None = None, *, command: str | None = None
) -> Path:
    """Save the network of the last checkpoint without further training, and return its folder."""
    chosen, home = settings or MaskedTrainingSettings(), Path(folder)
    return export_last(home, lambda steps: MaskedRun(text, home, replace(chosen, steps=steps), command))


class MaskedRun(TrainingRun):
    """A training run on passages of text."""

    settings: MaskedTrainingSettings

    def __init__(self, text: str, folder: Path, settings: MaskedTrainingSettings, command: str | None = None) -> None:
        self.ids, self.held_out = split_text(text, settings.architecture.length)
        torch.manual_seed(settings.seed)
        network = CharacterTransformer(settings.architecture)
        optimiser = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=0.01)
        super().__init__(folder, settings, network, optimiser, command=command)
        if (state := load_checkpoint(folder, self.identity())) is not None:
            restore(self, state, folder / FILE)

    def advance(self) -> None:
        """One optimiser step."""
        started = time.perf_counter()
        settings = self.settings
        tokens, masked = self._batch(self.ids, settings.batch_size, generator_of(settings.seed, self.step))
        self.network.train()
        loss = masked_losses(self.network, tokens, masked).mean()
        if not bool(torch.isfinite(loss)):
            raise NonFiniteError(
                f"The loss is {loss.item()} at step {self.step}. Start again with a lower learning rate."
            )
        descend(self, loss)
        self.seconds += time.perf_counter() - started

    def evaluate(self) -> dict[str, Any]:
        """Add a record to the log, with bits per character."""
        found = record(self, self._held_out_loss)
        found["held_out_bits"] = found["held_out_loss"] / math.log(2.0)
        return found

    def save(self) -> None:
        """Write the checkpoint."""
        save_checkpoint(self.folder, {"settings": self.identity(), **state_of(self), "sampler": None})

    @property
    def title(self) -> str:
        """Heading of the loss curve."""
        return "masked characters"

    def export(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the averaged network."""
        del facts["architecture"]  # stored by the network
        facts |= {"characters": len(self.ids), "held_out_bits": self.log[-1]["held_out_bits"]}
        network = self.ema.module
        assert isinstance(network, CharacterTransformer)
        save_characters(network, folder, facts)

    def _batch(self, ids: Ids, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random passages [B, n], and the mask of their characters."""
        n = self.settings.architecture.length
        starts = torch.randint(len(ids) - n + 1, (count,), generator=generator)
        tokens = torch.from_numpy(ids).long()[starts[:, None] + torch.arange(n)]
        # Counts are stratified, one in each of B equal parts of 1 … n.
        share = (torch.arange(count) + torch.rand(count, generator=generator)) / count
        masked_count = (1 + (share * n).floor().long()).clamp(max=n)
        ranks = torch.rand(count, n, generator=generator).argsort(dim=1).argsort(dim=1)
        return tokens, ranks < masked_count[:, None]

    @torch.no_grad()
    def _held_out_loss(self, batch_size: int = 64) -> float:
        """Mean loss of the averaged network on passages and masks that are the same at every call."""
        network = self.ema.module
        network.eval()
        tokens, masked = self._batch(self.held_out, HELD_OUT, generator_of(self.settings.seed, HELD_OUT_STREAM))
        losses = [
            masked_losses(network, tokens[i : i + batch_size], masked[i : i + batch_size])
            for i in range(0, HELD_OUT, batch_size)
        ]
        return float(torch.cat(losses).double().mean())

    def identity(self) -> dict[str, Any]:
        """Settings that must be the same for a checkpoint to be continued."""
        settings = asdict(self.settings)
        sizes = settings.pop("architecture")
        return {**settings, **sizes, "objective": "masked", "text": hashlib.sha256(self.ids.tobytes()).hexdigest()[:16]}


def masked_losses(network: Callable[[Tensor], Tensor], tokens: Tensor, masked: Tensor) -> Tensor:
    """Mean −ln p of the masked characters of each passage [B]."""
    logits = network(torch.where(masked, MASK, tokens))
    nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
    return (nats.reshape(tokens.shape) * masked).sum(dim=1) / masked.sum(dim=1)
