"""Everything that determines the result of a training run, besides the data and the process."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpstride.options import DEFAULT_TRAINING_OBJECTIVE, TrainingObjective
from dpstride.training.objectives import setting_of


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Settings of any run.

    Args:
        steps: total optimiser steps; may be changed when a run is resumed.
        batch_size: samples per step.
        learning_rate: peak learning rate, after the warm-up.
        warmup: steps of linear warm-up.
        cooldown: if None, the rate falls along half a cosine over the whole run. Otherwise it stays at its peak and falls
            linearly over the last ``cooldown`` steps, so a run can be ended at any time: resume it with ``steps`` set to the
            current step plus ``cooldown``.
        ema_decay: decay of the average of the weights.
        clip_norm: largest norm of the gradient.
        seed: random seed of weights, samples, and noise.
    """

    steps: int = 10_000
    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup: int = 500
    cooldown: int | None = None
    ema_decay: float = 0.999
    clip_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}.")
        if not 0.0 <= self.ema_decay < 1.0:
            raise ValueError(f"ema_decay must lie in [0, 1), not {self.ema_decay}. Use 0 for no averaging.")
        if self.warmup < 0:
            raise ValueError(f"warmup must be a number of steps, 0 or more, not {self.warmup}.")
        if self.cooldown is not None and self.cooldown < 1:
            raise ValueError(f"cooldown must be a number of steps, 1 or more, or None, not {self.cooldown}.")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(LoopSettings):
    """Settings of a run on images, besides those of any run.

    Args:
        objective: simple, hybrid, vlb, continuous or flow.
        channels: width of every level; None chooses by image size (`default_channels`).
        layers_per_block: residual blocks per level.
        attention: heights of the levels with attention; None is only the coarsest.
        flip: mirror every image left to right with probability ½.
        classes: number of classes of a class-conditional model; 0 is unconditional.
        loss_aware: importance sampling of t by its losses, weighted so that the objective is unchanged; always on for vlb.
    """

    objective: TrainingObjective = DEFAULT_TRAINING_OBJECTIVE
    channels: tuple[int, ...] | None = None
    layers_per_block: int = 1
    loss_aware: bool = False
    attention: tuple[int, ...] | None = None
    flip: bool = False
    classes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_aware and setting_of(self.objective).kind == "continuous":
            raise ValueError(
                f"loss_aware draws grid indices, and {self.objective!r} trains in continuous time. Leave it out."
            )
        setting_of(self.objective)
        if not self.layers_per_block > 0:
            raise ValueError(f"layers_per_block must be above 0, not {self.layers_per_block}.")
        if self.classes < 0:
            raise ValueError(f"classes must be a number of classes, or 0 for none, not {self.classes}.")


def learning_rate_at(step: int, settings: LoopSettings) -> float:
    """Learning rate of a step: linear warm-up, then the decay given by ``settings.cooldown``, to 0 at the last step."""
    if step < settings.warmup:
        return settings.learning_rate * (step + 1) / settings.warmup
    if settings.cooldown is not None:
        return settings.learning_rate * min(1.0, max(0.0, (settings.steps - step) / settings.cooldown))
    share = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return settings.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(1.0, share)))
