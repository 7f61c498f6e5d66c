"""The time that a dry run tells: what one process measured, shared by all of a launch."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpstride import even_stride
from dpstride.cli import _run
from dpstride.evaluate.sampling import Chain
from dpstride.evaluate.stream import UNCONDITIONAL
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


def test_as_many_steps_as_fit_into_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, TICK)
    monkeypatch.setattr(expected, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    denoiser = denoiser_of(shape=IMAGES.shape[1:])
    chain = Chain.along(denoiser, even_stride(denoiser.process, 2))

    def fitting(seconds: float, count: int) -> expected.FittingSteps:
        budgets = [2, 3, 5, 8]
        return expected.fitting_steps(chain, budgets, seconds, count, batch_size=4, conditioning=UNCONDITIONAL)

    assert fitting(8 * TICK, 4).budget == 8  # exactly
    assert fitting(7.9 * TICK, 3).budget == 5
    found = fitting(9 * TICK, 9)  # three batches
    assert (found.budget, found.batches, found.seconds_per_pass) == (3, 3, TICK)
    assert str(found).startswith(
        "A pass of 4 samples takes 3 seconds and there are 3 batches: 3 steps fit into 27 seconds."
    )
    with pytest.raises(
        ValueError, match=r"2 steps of 4 samples would take about 6 seconds \(a pass of 4 takes 3\), more than 5"
    ):
        fitting(5.0, 4)


def test_sample_takes_steps_or_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "from small_network import IMAGES, denoiser_of\n\ndef model():\n    return denoiser_of(shape=IMAGES.shape[1:])\n"
    (tmp_path / "timed_model.py").write_text(model)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "schedules.json"
    even_stride(denoiser_of(shape=IMAGES.shape[1:]).process, 2).save(file)
    words = ["sample", "timed_model:model", str(file), "-n", "2", "-o", str(tmp_path / "s.npy"), "--json", "-q"]
    assert _run([*words, "--seconds", "600"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["budget"], found["shape"][0]) == (2, 2)
    assert 0.0 < 2 * found["seconds_per_pass"] < 600.0
    assert _run(words) == 2
    assert "Give either --budget (-k), a number of steps, or --seconds" in capsys.readouterr().err
    assert _run([*words, "-k", "2", "--seconds", "1"]) == 2
