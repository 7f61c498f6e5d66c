"""Everything that decides the result of a training run on text, besides the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpstride.zoo.characters import Architecture


@dataclass(frozen=True)
class MaskedTrainingSettings:
    """Settings of a run.

    Args:
        steps: optimiser steps in all; may be changed when a run is gone on with.
        batch_size: passages of a step.
        learning_rate: the peak, after the warm-up.
        warmup: steps of linear warm-up.
        cooldown: None lets the rate fall along half a cosine; a number keeps the peak until so many steps before the end.
        ema_decay: decay of the average of the weights.
        clip_norm: largest norm of the gradient.
        seed: seed of weights, passages and masks.
        architecture: sizes of the network.
    """

    steps: int = 20_000
    batch_size: int = 32
    learning_rate: float = 2e-3
    warmup: int = 200
    cooldown: int | None = None
    ema_decay: float = 0.999
    clip_norm: float = 1.0
    seed: int = 0
    architecture: Architecture = field(default_factory=Architecture)

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}.")
        if not 0.0 <= self.ema_decay < 1.0:
            raise ValueError(f"ema_decay must lie in [0, 1), not {self.ema_decay}. 0 keeps no average.")
