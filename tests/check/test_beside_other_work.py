"""The check inside `estimate` and `optimise`: a warning where the description is wrong, silence where it is right."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact import T, Truth, images

import dpstride
from dpstride import ForwardProcess
from dpstride.checking.outcome import Check

RIGHT = Truth(ForwardProcess.linear(T), "eps")
FEW: dict[str, Any] = {"progress": False, "indices": [1, T]}
BETTER = r"predicts='eps' would explain this network better.*check=False"


@pytest.fixture(autouse=True)
def small_work_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpstride.checking.notice.LEAST", 24 * T)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A check that accuses whatever is declared as v; the list says what it was asked."""
    asked: list[str] = []

    def check(denoiser: dpstride.Denoiser, *_: Any, **__: Any) -> Check:
        asked.append(denoiser.predicts)
        verdict: Any = "better" if denoiser.predicts == "v" else "fits"
        return Check(verdict, denoiser.name, "as declared", changes=("predicts='eps'",))

    monkeypatch.setattr("dpstride.checking.notice.check", check)
    return asked


def test_a_wrong_description_is_warned_about() -> None:
    with pytest.warns(UserWarning, match=BETTER):
        dpstride.estimate(RIGHT.denoiser(predicts="v"), images("cifar-test"), 24, **FEW)


def test_optimise_warns_too_unless_it_is_told_not_to(judged: list[str]) -> None:
    def optimise(predicts: str, **options: Any) -> None:
        denoiser, data = RIGHT.denoiser(predicts=predicts), images("cifar-test")
        dpstride.optimise(denoiser, data, 24, max_budget=4, progress=False, tolerance=50.0, budgets=(4,), **options)

    with pytest.warns(UserWarning, match=BETTER):
        optimise("v")
    optimise("v", check=False)  # warnings are errors here
    optimise("eps")
    assert judged == ["v", "eps"]


def test_small_work_and_work_that_goes_on_are_not_checked(
    judged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, data = RIGHT.denoiser(predicts="v"), images("cifar-test")
    dpstride.estimate(wrong, data, 23, **FEW)
    with pytest.warns(UserWarning, match=BETTER):
        found = dpstride.estimate(wrong, data, 24, checkpoint=tmp_path / "s", **FEW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = dpstride.estimate(wrong, data, 24, checkpoint=tmp_path / "s", **FEW)
    assert np.array_equal(found.squared_error, again.squared_error)
    assert judged == ["v"]
