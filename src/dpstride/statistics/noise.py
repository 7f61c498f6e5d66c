"""Stage 3. Counter-based noise: one independent stream per (seed, purpose, training step, sample).

A number depends on its purpose and never on what was drawn before it, so results do not depend on batch size, the order of
work, the number of workers or interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .philox import fill_normal

Purpose = Literal["forward", "prior", "reverse", "probe", "mask", "reveal"]
_PURPOSES: dict[Purpose, int] = {"forward": 0, "prior": 1, "reverse": 2, "probe": 3, "mask": 4, "reveal": 5}


def standard_normal(
    seed: int,
    purpose: Purpose,
    step: int,
    first_sample: int,
    count: int,
    shape: tuple[int, ...],
) -> Tensor:
    """Standard normal noise [count, *shape] in float64 for samples first_sample, first_sample + 1, …

    ``step`` is the training step (`ForwardProcess.origin`), so a thinned grid draws the same noise as the full one.
    """
    noise = np.empty((count, math.prod(shape)))
    fill_normal(noise, seed, step, purpose=_PURPOSES[purpose], first_sample=first_sample)
    return torch.from_numpy(noise.reshape(count, *shape))


def uniform(seed: int, purpose: Purpose, step: int, samples: Sequence[int], numbers: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1), float64 [len(samples), numbers], one stream per sample."""
    draws = np.empty((len(samples), numbers))
    for row, generator in zip(draws, _streams(seed, purpose, step, samples), strict=True):
        generator.random(out=row)
    return draws


def _streams(seed: int, purpose: Purpose, step: int, samples: Iterable[int]) -> Iterator[np.random.Generator]:
    """One generator, set to the beginning of each sample's stream in turn."""
    bits = np.random.Philox(
        key=np.array([seed, step], dtype=np.uint64)
    )  # a list would make floats of seeds above 2**63
    generator = np.random.Generator(bits)
    state: Any = bits.state  # setting it is ten times faster than a new bit generator per sample
    for sample in samples:
        # Philox 4x64: the key names the stream, and the low words of the counter are left to the draws.
        state["state"]["counter"][:] = (0, 0, _PURPOSES[purpose], sample)
        bits.state = state
        yield generator
