"""The note that choosing and held-out data do not agree: when it comes, when it does not, and what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpstride import schedules_from
from dpstride.evaluate.comparison import compare
from dpstride.evaluate.disagreement import disagreement, disagreement_note
from dpstride.statistics.artefact import DataRange
from flawed import LAWS, Flawed

MODEL = Flawed(LAWS["linear"](40), "x0", None, DataRange.parse("continuous"), np.array([1.0, 0.3, 0.1, 0.03]))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    "apart, errors, samples, told",
    [
        (0.30, (0.03, 0.03), (128, 128), True),  # seven standard errors of the difference
        (0.15, (0.03, 0.03), (128, 128), False),  # three and a half
        (0.30, (0.03, 0.03), (4, 4), False),  # standard errors of four samples are guesses
        (0.04, (0.001, 0.001), (1000, 1000), False),  # certain, and no news
        (0.06, (0.0, 0.0), (100, 100), True),
        (9.00, (math.nan, 0.01), (1, 100), False),  # one sample has no standard error
        (math.nan, (0.01, 0.01), (100, 100), False),
    ],
)
def test_data_disagree_when_chance_does_not_explain_it(
    sign: float, apart: float, errors: tuple[float, float], samples: tuple[int, int], told: bool
) -> None:
    chosen, heldout = {8: (3.0, errors[0])}, {8: (3.0 + sign * apart, errors[1])}
    assert disagreement(chosen, heldout, samples, [8]) == (8 if told else None)


def test_the_budget_that_disagrees_most_is_named() -> None:
    chosen, heldout = {8: (6.26, 0.02), 16: (3.3, 0.02)}, {8: (3.48, 0.03), 16: (3.0, 0.03)}
    assert disagreement(chosen, heldout, (200, 200), [8, 16]) == 8
    worse = disagreement_note(8, chosen, heldout, filled_in=True)
    assert "fitted worse than the held-out data by 2.780 bits/dim at 8 steps (6.260 against 3.480)" in worse
    assert "`--every-step`" in worse
    better = disagreement_note(8, heldout, chosen, filled_in=False)
    assert "fitted better than the held-out data by 2.780" in better
    assert "memorised" in better
    assert "every-step" not in better


def test_draws_of_the_same_data_agree_and_other_data_do_not() -> None:
    """Twenty comparisons of two draws, few and many: none is noted. The same draws with larger errors are, either way."""
    for seed in range(20):
        few = (8, 64)[seed % 2]
        assert not notes(MODEL.drawn(few, seed), MODEL.drawn(64, 1000 + seed)), seed
    one, other = MODEL.drawn(64, 1), MODEL.drawn(64, 2)
    [better] = notes(one, replace(other, squared_error=8.0 * other.squared_error))
    [worse] = notes(replace(one, squared_error=8.0 * one.squared_error), other)
    assert "fitted better" in better
    assert "fitted worse" in worse


def notes(choosing: Any, heldout: Any) -> list[str]:
    choosing = replace(choosing, data=choosing.data | {"fingerprint": "one"})
    heldout = replace(heldout, data=heldout.data | {"fingerprint": "other"})
    warnings = compare(schedules_from(choosing, max_budget=16, progress=False), heldout).warnings
    return [note for note in warnings if "data that chose the path are fitted" in note]
