"""The time that a dry run tells: what one process measured, shared by all of a launch."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from dpstride.finding import expected
from dpstride.runs import workers
from dpstride.statistics.data import Samples
from small_network import IMAGES, denoiser_of

TICK = 3.0  # seconds between any two looks at the clock


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_processes_share_the_time(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, TICK)
    monkeypatch.setattr(expected, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(workers, "current", lambda: SimpleNamespace(size=processes))
    denoiser = denoiser_of(shape=IMAGES.shape[1:])
    data = Samples.read(IMAGES, None, "uint8")
    # A pass of 16 samples, and 3 steps of 16 samples, are timed by two looks each.
    assert expected.seconds_to_estimate(denoiser, data, 16) == pytest.approx(TICK / 16 / processes)
    assert expected.seconds_to_sample(denoiser, 16) == pytest.approx(TICK / (3 * 16) / processes)
