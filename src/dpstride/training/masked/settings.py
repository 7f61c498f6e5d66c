"""Everything that determines the result of a training run on text, besides the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpstride.training.settings import LoopSettings
from dpstride.zoo.characters import Architecture


@dataclass(frozen=True, kw_only=True)
class MaskedTrainingSettings(LoopSettings):
    """Settings of a run on passages of text; ``architecture`` has the sizes of the network."""

    steps: int = 20_000
    batch_size: int = 32
    learning_rate: float = 2e-3
    warmup: int = 200
    architecture: Architecture = field(default_factory=Architecture)
