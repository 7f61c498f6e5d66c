"""The whole method on tokens: denoiser, data → statistics → costs → solution → schedules."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from .costs import masked_schedules
from .denoiser import MaskedDenoiser
from .estimate import estimate_masked
from .schedule import MaskedScheduleSet


def optimise_masked(
    denoiser: MaskedDenoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    *,
    batch_size: int = 64,
    counts: Iterable[int] | None = None,
    max_budget: int | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> MaskedScheduleSet:
    """The best unmasking schedule of every number of rounds for ``denoiser``, chosen on ``data``.

    One network pass per (count, batch) gives c_t, a round t → s costs (t − s) c_t, and exact dynamic programming gives the
    numbers of least nats for every K. See `estimate_masked` and `solve` for the arguments.
    """
    statistics = estimate_masked(
        denoiser, data, samples, seed, batch_size=batch_size, counts=counts, progress=progress, checkpoint=checkpoint
    )
    return masked_schedules(statistics, max_budget)
