"""alpha_bar given for betas is refused, and betas of every usual law are not."""

from __future__ import annotations

import numpy as np
import pytest

from dpstride import ForwardProcess


@pytest.mark.parametrize("process", [ForwardProcess.linear(1000), ForwardProcess.cosine(50)], ids=["linear", "cosine"])
def test_alpha_bar_is_not_taken_for_betas(process: ForwardProcess) -> None:
    alpha_bar = process.f[1:] ** 2
    with pytest.raises(ValueError, match="from_alpha_bar"):
        ForwardProcess.from_betas(alpha_bar)
    betas = 1.0 - alpha_bar / np.append(1.0, alpha_bar[:-1])
    assert np.allclose(ForwardProcess.from_betas(betas).f, process.f)
