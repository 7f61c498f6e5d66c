"""Descriptions are compared by the area between their error curves, whatever noise levels their grids happen to have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dpstride.checking.compare import area, difference

DRAWS = 8


def curve(log_snr: Any) -> Any:
    """Error of the implied noise of a usual network."""
    return 1.0 / (1.0 + np.exp(2.0 - log_snr))


def measured(log_snr: Any, few: Any, worse: float = 0.0, errors: Any = None) -> Any:
    """A description with the same error curve, and ``worse`` of it, seen at these levels; draws differ a little."""
    errors = (curve(log_snr) + worse if errors is None else errors)[:, None] * (1.0 + 0.01 * np.arange(DRAWS))
    return SimpleNamespace(
        levels=np.arange(len(log_snr)),
        few=np.array(few),
        meter=SimpleNamespace(data=range(DRAWS), square=None, targets=log_snr[::-1]),
        of=lambda reading, levels, draws: (log_snr[levels], errors[levels][:, :draws]),
    )


def test_the_same_curve_at_other_levels_costs_the_same() -> None:
    """Chords of a bent curve from other places differ by 0.04 bits/dim here, twice what matters."""
    at = np.linspace(-5.0, 7.0, 10)
    shifted = at + np.where(np.arange(10) % 3 == 1, 0.5, 0.0)
    declared, other = measured(at, [1, 4, 7]), measured(shifted, [1, 4, 7])
    nodes = np.unique(np.concatenate([at[[1, 4, 7]], shifted[[1, 4, 7]]]))[1:-1]
    chords = [area(x[[1, 4, 7]], curve(x[[1, 4, 7]])[:, None], nodes) for x in (at, shifted)]
    assert abs(chords[1] - chords[0]) > 0.04
    found = difference((declared, 0), (other, 0), DRAWS, beside=(declared, 0), few=True)
    assert found is not None
    assert abs(found.mean) < 0.01


def test_a_network_that_is_worse_than_none_at_little_noise_costs_the_same_at_other_levels() -> None:
    """Of x̂_0 off by 0.1 whatever the noise, the implied noise is off as the SNR grows; beyond 1 nothing counts."""
    levels = np.linspace(-3.0, 8.0, 10)
    shifted = levels - np.where(levels > 4.0, 0.2, 0.0)
    declared, other = (measured(at, [1, 4, 7], errors=np.exp(0.7 * (at - 4.5))) for at in (levels, shifted))
    found = difference((declared, 0), (other, 0), DRAWS, beside=(declared, 0))
    assert found is not None
    assert abs(found.mean) < 0.005


def test_a_worse_curve_costs_the_area_between_them() -> None:
    at = np.linspace(-5.0, 3.0, 10)
    declared, other = measured(at, [1, 4, 7]), measured(at, [1, 4, 7], worse=0.05)
    found = difference((declared, 0), (other, 0), DRAWS, beside=(declared, 0))
    assert found is not None
    draws = 1.0 + 0.01 * np.arange(DRAWS)
    assert np.isclose(found.mean, 0.5 * 8.0 * 0.05 * draws.mean() / np.log(2.0))


def test_a_first_look_sees_all_levels_of_what_was_measured_at_all() -> None:
    """Data declared 127 times too large: the right scale shares but the noisiest levels with it, which a third has not."""
    declared = np.linspace(-5.5, 5.5, 10)
    other = np.linspace(-9.0, -4.0, 5)
    at = measured(declared, [1, 4, 7], errors=np.full(10, 1.0)), measured(other, [2, 3, 4], errors=np.full(5, 0.5))
    found = difference((at[0], 0), (at[1], 0), DRAWS, beside=(at[0], 0), few=True)
    assert found is not None
    assert found.mean < -0.3
