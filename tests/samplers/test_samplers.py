"""Every sampler's step against its definition: closed forms between any two indices, on arrays and tensors alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import ForwardProcess, samplers
from dpstride.options import ODE_SAMPLERS, SAMPLERS
from dpstride.samplers import Move, ddim, dpmpp_2m, heun

PROCESSES = [ForwardProcess.cosine(30), ForwardProcess.rectified_flow(30), ForwardProcess.vp_linear(30)]
RNG = np.random.default_rng(0)
X, X0, LAST = RNG.normal(size=(3, 4, 5))


def move(process: ForwardProcess, **changes: Any) -> Move:
    given: dict[str, Any] = {"process": process, "t": 21, "s": 9, "before": 26, "x": X, "x0_hat": X0, "last": LAST}
    return Move(**{**given, "variance": 0.3, **changes})


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_ancestral_steps_have_the_mean_and_variance_of_the_reverse_process(process: ForwardProcess) -> None:
    x, variance = samplers.find("ancestral").step(move(process))
    # E[x_s given x_t, x_0] by conditioning the joint Gaussian of x_s and x_t.
    f, g, t, s = process.f, process.g, 21, 9
    ratio = f[t] / f[s]
    gain = ratio * g[s] ** 2 / g[t] ** 2
    assert np.allclose(x, f[s] * X0 + gain * (X - f[t] * X0), rtol=1e-12)
    assert variance == 0.3


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_ddim_goes_from_no_noise_to_the_posterior(process: ForwardProcess) -> None:
    rule = samplers.find("ddim")
    a, b = ddim.coefficients(process, 21, 9)
    x, variance = rule.step(move(process))
    assert variance is None
    assert np.allclose(x, a * X + b * X0, rtol=1e-12)
    x, variance = rule.step(move(process, eta=1.0))
    mean, _ = samplers.find("ancestral").step(move(process))
    assert np.allclose(x, mean, rtol=1e-12)
    assert variance == pytest.approx(float(process.posterior_variance(21, 9)), rel=1e-14)
    # Marginals are kept at every eta: x_s given x_0 has variance g_s² if x_t has g_t².
    x, variance = rule.step(move(process, x=process.f[21] * X0 + process.g[21] * X, eta=0.4))
    slope = (x - process.f[9] * X0) / X
    assert np.allclose(slope**2 + variance, process.g[9] ** 2, rtol=1e-12)


def test_the_direction_of_ddim_may_come_from_another_estimate() -> None:
    process = PROCESSES[0]
    x, _ = samplers.find("ddim").step(move(process, towards=LAST))
    noise = (X - process.f[21] * LAST) / process.g[21]
    assert np.allclose(x, process.f[9] * X0 + process.g[9] * noise, rtol=1e-12)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_second_order_steps_extrapolate_in_half_log_snr(process: ForwardProcess) -> None:
    rule = samplers.find("dpmpp_2m")
    first, _ = rule.step(move(process, before=None, last=None))
    assert np.allclose(first, samplers.find("ddim").step(move(process))[0], rtol=1e-12)
    x, variance = rule.step(move(process))
    assert variance is None
    # Lu et al. 2022, Algorithm 2: D = x̂_0(t) + (h_s / 2 h_t) (x̂_0(t) − x̂_0(r)) takes the place of x̂_0(t).
    lam = np.log(process.f[1:-1] / process.g[1:-1])
    h = (lam[8] - lam[20]) / (2.0 * (lam[20] - lam[25]))
    a, b = ddim.coefficients(process, 21, 9)
    assert np.allclose(x, a * X + b * (X0 + h * (X0 - LAST)), rtol=1e-10)
    assert dpmpp_2m.coefficients(process, None, 21, 9)[2] == 0.0


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_heun_takes_the_mean_of_two_slopes(process: ForwardProcess) -> None:
    rule, f, g = samplers.find("heun"), process.f, process.g
    assert rule.correct is not None
    start = move(process)
    x, variance = rule.step(start)
    assert variance is None
    flow = process.name == "rectified_flow"
    # dz/dℓ along z = x/h: the noise in x_t over f's σ = g/f, or noise − x̂_0 over a flow's time.
    (h_t, l_t), (h_s, l_s) = ((1.0, g[i]) if flow else (f[i], g[i] / f[i]) for i in (21, 9))
    noise, again = (X - f[21] * X0) / g[21], (x - f[9] * LAST) / g[9]
    slopes = (noise - X0, again - LAST) if flow else (noise, again)
    expected = h_s * (X / h_t + (l_s - l_t) * (slopes[0] + slopes[1]) / 2.0)
    assert np.allclose(rule.correct(start, x, LAST), expected, rtol=1e-10)


def test_heun_begins_at_pure_noise_without_dividing_by_it() -> None:
    process = ForwardProcess.from_functions(lambda t: np.cos(t), lambda t: np.sin(t), np.linspace(0.0, np.pi / 2, 31))
    f = process.f.copy()
    f[-1] = 0.0
    assert heun.coefficient(replace(process, f=f), 30, 20) == 0.0


@pytest.mark.parametrize("name", SAMPLERS)
def test_steps_are_pure_and_take_arrays_and_tensors(name: str) -> None:
    rule, given = samplers.find(name), move(PROCESSES[0], eta=0.5 if samplers.find(name).takes_eta else 0.0)
    x, variance = rule.step(given)
    again, _ = rule.step(given)
    tensors = {part: torch.tensor(getattr(given, part)) for part in ("x", "x0_hat", "last")}
    by_tensors, other = rule.step(move(PROCESSES[0], eta=given.eta, **tensors))
    assert np.array_equal(x, again)
    assert np.allclose(x, by_tensors.numpy(), rtol=1e-14)
    assert variance == other


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_says_what_it_needs(name: str) -> None:
    """Whatever a rule says that it does not read changes nothing; whatever it says that it reads does."""
    rule, process = samplers.find(name), PROCESSES[0]

    def result(**changes: Any) -> tuple[bytes, Any]:
        x, variance = rule.step(move(process, **changes))
        return x.tobytes(), variance

    same = result()
    assert (result(variance=0.7) != same) == rule.takes_variance
    assert (result(eta=0.5) != same) == rule.takes_eta
    assert (result(last=X) != same) == rule.remembers
    assert (name in ODE_SAMPLERS or rule.correct is not None) == (same[1] is None)


def test_unknown_samplers_and_noise_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sampler must be one of 'ancestral', .*, not 'runge'"):
        samplers.find("runge")
    with pytest.raises(ValueError, match=r"eta must lie in \[0, 1\], not 2"):
        samplers.check_eta(2)
    with pytest.raises(ValueError, match="eta is the noise of sampler='ddim', but the sampler is 'ancestral'"):
        samplers.check_eta(0.5, "ancestral")
    samplers.check_eta(0.5)
