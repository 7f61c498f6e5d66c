"""What a page shows, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpstride import ScheduleSet
from dpstride.evaluate.comparison import Comparison


@pytest.fixture(scope="module")
def schedules(demo: Path) -> ScheduleSet:
    return ScheduleSet.load(demo / "schedules.json")


@pytest.fixture(scope="module")
def comparison(demo: Path) -> Comparison:
    return Comparison.load(demo / "comparison.json")


def as_shown(comparison: Comparison, K: int) -> dict[str, list[str]]:
    """Bits/dim and standard error of each stride, as the page writes them."""
    return {stride: [f"{number:.3f}" for number in curve[K]] for stride, curve in comparison.curves.items()}
