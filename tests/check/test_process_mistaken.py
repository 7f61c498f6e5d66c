"""alpha_bar or 1 − betas given for betas are refused, and betas of every usual law are not."""

from __future__ import annotations

import numpy as np
import pytest

from dpstride import ForwardProcess

PROCESSES = [ForwardProcess.linear(1000), ForwardProcess.cosine(50), ForwardProcess.cosine(4000)]
IDS = ["linear", "cosine", "long cosine"]


@pytest.mark.parametrize("process", PROCESSES, ids=IDS)
def test_alpha_bar_is_not_taken_for_betas(process: ForwardProcess) -> None:
    alpha_bar = process.f[1:] ** 2
    with pytest.raises(ValueError, match=r"fall from 0\.9.* to .*alpha_bar.*Give them to from_alpha_bar"):
        ForwardProcess.from_betas(alpha_bar)
    betas = 1.0 - alpha_bar / np.append(1.0, alpha_bar[:-1])
    assert np.allclose(ForwardProcess.from_betas(betas).f, process.f)


@pytest.mark.parametrize("process", PROCESSES, ids=IDS)
def test_one_minus_betas_are_told_from_both(process: ForwardProcess) -> None:
    alpha_bar = process.f[1:] ** 2
    with pytest.raises(ValueError, match=r"1 - betas \(alphas\).*1 minus these"):
        ForwardProcess.from_betas(alpha_bar / np.append(1.0, alpha_bar[:-1]))


def test_alpha_bar_of_few_steps_rounded_or_with_its_clean_point_is_recognised_too() -> None:
    alpha_bar = ForwardProcess.cosine(4000).f ** 2  # begins with 1, the clean point
    with pytest.raises(ValueError, match="without the clean point to from_alpha_bar"):
        ForwardProcess.from_betas(alpha_bar)
    for few in (alpha_bar[[500, 2000, 3900]], np.round(alpha_bar[1:], 3)[100:]):
        with pytest.raises(ValueError, match="from_alpha_bar"):
            ForwardProcess.from_betas(few)
