"""Heun's method: of second order against the exact flow of Gaussian data, two passes in every step but the last."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpstride import ForwardProcess, even_stride, sample
from dpstride.samplers import ddim, find
from dpstride.samplers.heun import RULE
from dpstride.statistics.noise import standard_normal
from gaussian import GaussianNetwork, gaussian_denoiser

TIMES = (
    np.linspace(0.0, 1.0, 2049) ** 2
)  # small first steps: the last one of a path, of first order, then hides nothing
PROCESSES = [ForwardProcess.vp_linear(times=TIMES), ForwardProcess.rectified_flow(times=TIMES)]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_halved_steps_quarter_the_error(process: ForwardProcess) -> None:
    """The flow takes x_T to x_0 = x_T sqrt(v/(f_T² v + g_T²)) exactly, for data N(0, v)."""
    v = 0.3
    denoiser = gaussian_denoiser(process, np.zeros(1), np.full(1, v), time_input="time")
    x = standard_normal(0, "prior", 0, 0, 4, (1,)).numpy()
    exact = x * math.sqrt(v / (process.f[-1] ** 2 * v + process.g[-1] ** 2))

    def error(K: int, sampler: str) -> float:
        ends = sample(denoiser, even_stride(process, K), n=4, seed=0, sampler=sampler).numpy()  # type: ignore[arg-type]
        return float(np.abs(ends / exact - 1.0).max())

    first, second = error(32, "heun"), error(64, "heun")
    assert 3.0 < first / second < 5.5
    assert second < 0.1 * error(128, "ddim")  # as many evaluations


def test_it_takes_two_passes_in_every_step_but_the_last() -> None:
    process = ForwardProcess.cosine(12)
    denoiser = gaussian_denoiser(process, np.zeros(2), np.ones(2))
    sample(denoiser, even_stride(process, 5), n=3, sampler="heun")
    assert isinstance(denoiser.network, GaussianNetwork)
    assert denoiser.network.calls == 2 * 5 - 1


def test_euler_of_a_flow_is_ddim() -> None:
    """Euler's x_s = x_t + (t_s − t_t) (ε − x̂_0) along a flow, and along σ = g/f of any process, is DDIM's step."""
    x, x0 = np.random.default_rng(0).normal(size=(2, 5))
    for process in (ForwardProcess.rectified_flow(20), ForwardProcess.cosine(20)):
        f, g, t, s = process.f, process.g, 15, 6
        noise = (x - f[t] * x0) / g[t]
        a, b = ddim.coefficients(process, t, s)
        along_sigma = f[s] * (x / f[t] + (g[s] / f[s] - g[t] / f[t]) * noise)
        assert_allclose(along_sigma, a * x + b * x0, rtol=1e-12)
    flow = ForwardProcess.rectified_flow(20)
    velocity = (x - flow.f[15] * x0) / flow.g[15] - x0
    a, b = ddim.coefficients(flow, 15, 6)
    assert_allclose(x + (flow.times[6] - flow.times[15]) * velocity, a * x + b * x0, rtol=1e-12)


def test_its_rule_is_found_by_name() -> None:
    assert find("heun") is RULE
