"""Sets of schedules for tests."""

from __future__ import annotations

import dataclasses

from dpstride import (
    ForwardProcess,
    ScheduleSet,
    even_stride,
)

# --- sets -------------------------------------------------------------------------------------------------------------


def set_of(bpd: dict[int, float | None], T: int = 10) -> ScheduleSet:
    process = ForwardProcess.linear(T)
    return ScheduleSet.of([dataclasses.replace(even_stride(process, K), bpd=value) for K, value in bpd.items()])
