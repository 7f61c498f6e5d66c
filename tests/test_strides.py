"""Published noise levels on grids, against their formulas; distances of end points against their definition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpstride import ForwardProcess, ScheduleSet
from dpstride.evaluate.endpoints import endpoint_distance
from dpstride.options import COMPARED_STRIDES, STRIDES
from dpstride.strides import (
    AYS,
    ays_stride,
    beside,
    even_stride,
    find,
    karras_stride,
    log_snr_stride,
    quadratic_stride,
)

LEVELS = np.concatenate([[0.0], np.geomspace(0.002, 80.0, 4000)])
FINE = ForwardProcess.ve(LEVELS)  # σ = g/f are the levels themselves, dense in ln σ


@pytest.mark.parametrize("K", [2, 5, 10, 18])
def test_noise_levels_are_those_of_the_formulas(K: int) -> None:
    wanted = {
        # Karras et al. (2022), Eq. 5; Lu et al. (2022), even in λ = −ln σ; AYS: every level of 10 steps is published
        karras_stride: [(80 ** (1 / 7) + i / (K - 1) * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7 for i in range(K)],
        log_snr_stride: [math.exp(math.log(80) + i / (K - 1) * math.log(0.002 / 80)) for i in range(K)],
    }
    for stride, sigmas in wanted.items():
        schedule = stride(FINE, K)
        assert schedule.budget == K
        assert np.allclose(np.log(LEVELS[list(schedule.steps[:-1])]), np.log(sigmas), atol=0.002)


def test_align_your_steps_is_the_published_schedule_and_interpolates_its_logarithm() -> None:
    levels = np.concatenate([[0.0], np.geomspace(AYS[-1], AYS[0], 4000)])  # a grid with the ends of Stable Diffusion's
    grid = ForwardProcess.ve(levels)
    ten = levels[list(ays_stride(grid, 10).steps[:-1])]
    assert np.allclose(np.log(ten), np.log(AYS[:-1]), atol=0.002)
    twenty = levels[list(ays_stride(grid, 20).steps[:-1])]
    assert np.allclose(np.log(twenty[1::2]), 0.5 * (np.log(AYS[:-1]) + np.log(AYS[1:])), atol=0.002)
    # On a wider grid ln σ is stretched: the middle of the range stays the middle.
    wide = np.log(LEVELS[list(ays_stride(FINE, 10).steps[:-1])])
    expected = np.log(0.002) + (np.log(AYS[:-1]) - np.log(AYS[-1])) * np.log(80 / 0.002) / np.log(AYS[0] / AYS[-1])
    assert np.allclose(wide, expected, atol=0.004)


@pytest.mark.parametrize("stride", [karras_stride, log_snr_stride, ays_stride])
@pytest.mark.parametrize(
    "process", [ForwardProcess.linear(30), ForwardProcess.rectified_flow(20), ForwardProcess.cosine(25)]
)
def test_any_grid_has_room_for_any_budget(stride: object, process: ForwardProcess) -> None:
    for K in range(1, process.T + 1):
        schedule = stride(process, K)  # type: ignore[operator]
        assert schedule.steps[0] == process.T
        assert schedule.budget == K  # Schedule itself checks that steps fall
    with pytest.raises(ValueError, match="from 1 to T"):
        stride(process, process.T + 1)  # type: ignore[operator]


def test_distance_of_end_points() -> None:
    rng = np.random.default_rng(0)
    teacher, noise = rng.standard_normal((500, 2, 3)), rng.standard_normal((500, 2, 3))
    found = endpoint_distance(teacher + 0.2 * noise, teacher)
    assert found.value == pytest.approx(0.2 * math.sqrt((noise**2).mean()), rel=1e-12)
    # |noise|² of 6 dims has variance 12, so the mean square per dim has standard error 0.04 sqrt(12/500)/6.
    assert found.standard_error == pytest.approx(0.04 * math.sqrt(12 / 500) / 6 / (2 * 0.2), rel=0.1)
    assert endpoint_distance(teacher, teacher).value == 0.0
    with pytest.raises(ValueError, match="must have the same shape"):
        endpoint_distance(teacher, teacher[:4])


# --- records --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRIDES)
def test_every_named_stride_has_a_record_that_makes_it(name: str) -> None:
    process = ForwardProcess.cosine(60)
    schedule = find(name).make(process, 7)
    assert (schedule.stride, schedule.budget, schedule.process) == (name, 7, process)
    assert find(name).words


def test_strides_stand_beside_the_best_paths_with_their_options() -> None:
    process = ForwardProcess.cosine(60)
    best = ScheduleSet.of(
        [replace(even_stride(process, K), stride="dp", options={"variance": "upper"}) for K in (4, 6)]
    )
    assert beside(best, "dp", 4).steps == best[4].steps
    quadratic = beside(best, "quadratic", 6)
    assert (quadratic.steps, quadratic.stride) == (quadratic_stride(process, 6).steps, "quadratic")
    assert quadratic.options == {"variance": "upper"}
    with pytest.raises(ValueError, match=r"stride must be one of 'even', .*, not 'cubic'"):
        beside(best, "cubic", 6)


def test_strides_that_are_compared_look_different() -> None:
    rules = [find(name) for name in COMPARED_STRIDES]
    for part in ("words", "colour", "line", "marker"):
        assert len({getattr(rule, part) for rule in rules}) == len(rules)
