"""The coordinate, the curve and the breaks of the process on which interpolation rests, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.interpolate import PchipInterpolator

from dpstride import Denoiser, ForwardProcess
from dpstride.adaptive.loop import opening_steps
from dpstride.statistics.coordinate import breaks, monotone_cubic, noise_coordinate, output_gain
from flawed import LAWS, almost_zero_terminal, jumping, kinked, zero_terminal


def sudden_noise(T: int) -> ForwardProcess:
    """A law that still has half its signal at T − 1, and none at T."""
    return ForwardProcess.from_functions(
        lambda t: np.where(t < 1.0, 1.0 - 0.5 * t, 0.0), lambda t: t, np.arange(T + 1) / T
    )


@pytest.mark.parametrize("predicts", ["eps", "x0", "v", "flow"])
def test_the_gain_is_what_turns_the_networks_error_into_that_of_x0(predicts: str) -> None:
    """A network that errs by 1 in what it predicts, on a process whose f and g have nothing to do with each other."""
    process = ForwardProcess.from_functions(lambda t: 1.0 - 0.7 * t**2, lambda t: 1.3 * t, np.linspace(0.0, 1.0, 9))
    gain = output_gain(process, predicts)
    for t in range(1, 9):
        hats = [
            Denoiser(lambda x, time, to=to: torch.full_like(x, to), process, predicts=predicts, clip=None)(  # type: ignore[misc,arg-type]
                torch.ones(1, 1, dtype=torch.float64), t
            ).x0_hat.item()
            for to in (0.0, 1.0)
        ]
        assert (hats[1] - hats[0]) ** 2 * gain[t] == pytest.approx(1.0, rel=1e-12)


def test_the_far_noise_end_of_eps_is_not_drawn_together() -> None:
    process = ForwardProcess.cosine(100)
    np.testing.assert_allclose(noise_coordinate(process, 4.0, "eps")[1:], -process.log_snr[1:], atol=1e-6)
    u = noise_coordinate(process, 4.0, "x0")
    assert u[100] - u[98] < 0.1 < process.log_snr[98] - process.log_snr[100]
    for predicts in ("v", "flow"):  # followed further, and yet to an end
        u = noise_coordinate(ForwardProcess.rectified_flow(100), 4.0, predicts)
        assert u[100] == pytest.approx(np.log(1e5), abs=1e-5)


# --- the curve --------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0.01, 10.0), min_size=1, max_size=9),
    st.lists(st.floats(-5.0, 5.0), min_size=10, max_size=10),
)
def test_the_curve_goes_through_every_value_and_beyond_none(gaps: list[float], numbers: list[float]) -> None:
    u = np.cumsum([0.0, *gaps])
    values = np.array(numbers[: u.size])
    curve = monotone_cubic(u, values)
    np.testing.assert_allclose(curve(u), values, atol=1e-12)
    for i in range(u.size - 1):
        inside = curve(np.linspace(u[i], u[i + 1], 30))
        low, high = sorted(values[i : i + 2])
        assert low - 1e-9 <= inside.min() <= inside.max() <= high + 1e-9


def test_a_parabola_is_recovered_beside_a_gap_of_any_width() -> None:
    """PCHIP is not: beside a jump of the process it would miss what the others predict by its width."""
    u = np.array([3.0, 3.5, 4.0, 9.0, 9.4, 10.0])
    at = np.linspace(3.0, 10.0, 40)
    np.testing.assert_allclose(monotone_cubic(u, u**2)(at), at**2, rtol=1e-12)
    assert np.abs(PchipInterpolator(u, u**2)(at) - at**2).max() > 0.01


def test_columns_are_curves_of_their_own() -> None:
    u, values = np.array([0.0, 1.0, 4.0, 5.0]), np.random.default_rng(0).standard_normal((4, 3))
    each = np.stack([monotone_cubic(u, column)(2.5) for column in values.T])
    np.testing.assert_allclose(monotone_cubic(u, values)(2.5), each, rtol=1e-12)


# --- jumps and kinks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "process, expected",
    [
        (ForwardProcess.cosine(1000), [999, 1000]),
        (ForwardProcess.cosine(4000), [3999, 4000]),
        (almost_zero_terminal(1000), [999, 1000]),
        (kinked(1000), [401, 402, 700, 701]),
        (jumping(1000), [500, 501]),
        (ForwardProcess.linear(1000).subset([*range(1, 101), *range(200, 1001, 100)]), [100, 101]),
        (sudden_noise(100), [99, 100]),
    ],
    ids=["cosine", "long cosine", "almost zero", "kinked", "jumping", "thinned", "sudden noise"],
)  # fmt: skip
def test_both_sides_of_a_break_are_found(process: ForwardProcess, expected: list[int]) -> None:
    assert breaks(process).tolist() == expected


@pytest.mark.parametrize(
    "process",
    [
        ForwardProcess.linear(1000),
        ForwardProcess.linear(100),
        ForwardProcess.vp_linear(1000),
        ForwardProcess.vp_cosine(1000),
        ForwardProcess.sub_vp(1000),
        ForwardProcess.rectified_flow(1000),
        ForwardProcess.ve(np.append(0.0, np.geomspace(0.01, 50.0, 200))),
        ForwardProcess.from_betas(np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2),
        ForwardProcess.linear(1000).subset(range(10, 1001, 10)),
        zero_terminal(1000),
        ForwardProcess.linear(5),
    ],
    ids=lambda process: f"{process.name} {process.T}",
)
def test_smooth_laws_have_no_breaks(process: ForwardProcess) -> None:
    assert breaks(process).size == 0


def test_a_grid_that_is_irregular_everywhere_is_not_all_breaks() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        process = ForwardProcess.linear(1000).subset(np.unique(rng.integers(1, 1001, 300)))
        assert breaks(process).size <= 16


@pytest.mark.parametrize("law", LAWS)
def test_the_first_round_sees_both_sides_of_every_break_and_leaves_no_wide_gap(law: str) -> None:
    process = LAWS[law](400)
    u, along = noise_coordinate(process, 2.0), noise_coordinate(process, 2.0, "eps" if process.f[-1] else "v")
    steps = opening_steps(process, u, along, process.T)
    assert set(breaks(process).tolist()) | {1, process.T} <= set(steps.tolist())
    assert (np.diff(along[steps])[np.diff(steps) > 1] <= 6.0).all()
    assert steps.size <= 26
    for limit in (4, 7, 13):
        assert opening_steps(process, u, along, limit).size <= limit
