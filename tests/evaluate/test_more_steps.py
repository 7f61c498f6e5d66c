"""More steps that hurt are told only where they do so beyond the error and by more than the answer leaves open."""

from __future__ import annotations

import pytest

from dpstride import compare, schedules_from
from dpstride.evaluate.comparison import _warnings
from dpstride.options import STRIDES
from small_network import denoiser_of, run


@pytest.mark.parametrize(
    ("worse", "error", "said"),
    [(0.5, 0.01, True), (0.11, 0.01, True), (0.09, 0.001, False), (0.03, 0.001, False), (0.5, 0.3, False)],
)
def test_more_steps_hurt_only_where_it_matters(worse: float, error: float, said: bool) -> None:
    denoiser = denoiser_of()
    schedules, heldout = schedules_from(run(denoiser=denoiser)), run(denoiser=denoiser, seed=5)
    curve = {K: (3.0 + 1.0 / K, error) for K in schedules.budgets}
    curve[schedules.budgets[-1]] = (curve[schedules.budgets[-2]][0] + worse, error)
    curves = dict.fromkeys((*STRIDES, *compare(schedules, heldout).curves), curve)
    notes = _warnings(curves, curve, schedules, heldout)
    assert any("More steps hurt" in note for note in notes) == said


def test_clipping_is_named_as_why_more_steps_hurt() -> None:
    """Two moons with the default clip had 323 bits/dim along all steps, and that was blamed on the network."""
    denoiser = denoiser_of()
    schedules, heldout = schedules_from(run(denoiser=denoiser)), run(denoiser=denoiser, seed=5)
    curve = dict.fromkeys(schedules.budgets, (3.0, 0.01)) | {schedules.budgets[-1]: (9.0, 0.01)}
    curves = dict.fromkeys((*STRIDES, *compare(schedules, heldout).curves), curve)
    for clipping, cause in (
        ("", "Either the network is poor"),
        ("x0_hat is clipped.", "The likely cause: x0_hat is clipped."),
    ):
        notes = _warnings(curves, curve, schedules, heldout, clipping)
        [note] = [note for note in notes if note.startswith("More steps hurt")]
        assert cause in note
