"""Parts of a training loop that do not depend on what is trained: advancing, averaging weights, random numbers of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from dpstride.training.settings import Lasting

HELD_OUT_STREAM = 2**31  # a step number that no run reaches: held-out noise is its own stream


class Advancing(Protocol):
    """A run as `advance` sees it: of images, or of anything else that is trained step by step."""

    @property
    def settings(self) -> Lasting:
        """Its settings."""

    @property
    def step(self) -> int:
        """Steps done."""

    def advance(self) -> None:
        """One step."""

    def evaluate(self) -> dict[str, Any]:
        """A record of the log."""

    def save(self) -> None:
        """Write the checkpoint."""


@dataclass(frozen=True)
class Pace:
    """Stops along a run, which do not change its result.

    Attributes:
        stop_at: leave after this step with a checkpoint, without finishing (the schedule stays that of ``steps``).
        evaluate_every: steps between held-out losses.
        checkpoint_every: steps between checkpoints.
        progress: show a bar; None shows it on a terminal only.
        report: called with every record of the log.
    """

    stop_at: int | None = None
    evaluate_every: int = 500
    checkpoint_every: int = 100
    progress: bool | None = None
    report: Callable[[dict[str, Any]], None] | None = None


def advance(run: Advancing, pace: Pace) -> None:
    """Advance a run to its end, or where the pace says, with records of its loss and checkpoints on the way."""
    from tqdm import tqdm

    steps = run.settings.steps
    last = steps if pace.stop_at is None else min(pace.stop_at, steps)
    hidden = None if pace.progress is None else not pace.progress
    with tqdm(total=steps, initial=run.step, desc="train", unit=" steps", disable=hidden, dynamic_ncols=True) as bar:
        while run.step < last:
            run.advance()
            bar.update()
            if run.step % pace.evaluate_every == 0 or run.step == steps:
                record = run.evaluate()
                bar.set_postfix(held_out=record["held_out_loss"], train=record["train_loss"])
                if pace.report is not None:
                    pace.report(record)
            if run.step % pace.checkpoint_every == 0 or run.step == last:
                run.save()


def average_with(decay: float) -> Callable[[Any, Any, Any], None]:
    """Exponential moving average whose memory grows to ``decay``, so that early weights are soon forgotten."""

    @torch.no_grad()
    def update(averaged: Any, current: Any, count: Any) -> None:
        torch._foreach_lerp_(averaged, current, 1.0 - min(decay, (1.0 + int(count)) / (10.0 + int(count))))

    return update


def generator_of(seed: int, step: int, stream: int = 0) -> torch.Generator:
    """The random numbers of a step."""
    state = np.random.SeedSequence([seed, step, stream]).generate_state(1, dtype=np.uint64)[0]
    return torch.Generator().manual_seed(int(state) & (2**63 - 1))
