"""The whole method on tokens: denoiser, data → statistics → costs → solution → schedules."""

from __future__ import annotations

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
    max_budget: int | None = None,
    **estimation: Any,
) -> MaskedScheduleSet:
    """The best unmasking schedule of every number of rounds for ``denoiser``, chosen on ``data``.

    One network pass per (count, batch) gives c_t, a round t → s costs (t − s) c_t, and exact dynamic programming finds the
    schedule of least cost for every K. ``estimation`` (batch_size, counts, progress, checkpoint) is passed to
    `estimate_masked`.
    """
    return masked_schedules(estimate_masked(denoiser, data, samples, seed, **estimation), max_budget)
