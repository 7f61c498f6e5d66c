"""LLaDA: the table of tokens per step that its sampler takes.

Its ``generate`` calls ``get_num_transfer_tokens(mask_index, steps)`` for a table int64 [batch, steps], whose rows add up to the
masked tokens of each sample (or of each block, in block-wise generation), and reveals that many in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ..masked.schedule import MaskedSchedule


def num_transfer_tokens(schedule: MaskedSchedule, masked: Sequence[int] | None = None) -> npt.NDArray[np.int64]:
    """Return the table [B, K] for samples with ``masked`` [B] tokens to generate; None is one row of the schedule's length."""
    counts = schedule.counts_for([schedule.length] if masked is None else masked)
    return np.ascontiguousarray(-np.diff(counts, axis=0).T)
