"""The stochastic differential equation of a process, its fingerprint, and input that is refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from dpstride import ForwardProcess

SIGMAS = np.concatenate([[0.0], np.geomspace(0.002, 80.0, 40)])


# --- the SDE ----------------------------------------------------------------------------------------------------------


def sde_truth() -> dict[str, tuple[ForwardProcess, Any, Any]]:
    """Drift f'/f and squared diffusion (g²)' − 2 (f'/f) g², by hand.

    VP: f = exp(−B/2), g² = 1 − f², B' = beta: drift −beta/2; (g²)' = beta f², so diffusion² = beta f² + beta g² = beta.
    sub-VP: same drift, g = 1 − f²: (g²)' = 2 g beta f², diffusion² = beta g (2 f² + g) = beta (1 − f²)(1 + f²) = beta (1 − f⁴).
    Rectified flow: f = 1 − t: drift −1/(1 − t); diffusion² = 2t + 2t²/(1 − t) = 2t/(1 − t).
    cosine: f = cos(a)/c, a' = π/2/1.008: drift −a' tan a; variance preserving, so diffusion² = −2 drift.
    VE rescaled: f² = 1/(1 + σ²) is variance preserving: drift −σ/(1 + σ²), diffusion² = 2σ/(1 + σ²).
    """

    def beta(t: Any) -> Any:
        return 0.1 + 19.9 * t

    def B(t: Any) -> Any:
        return 0.1 * t + 19.9 * t**2 / 2

    rate = math.pi / 2 / 1.008
    return {
        "vp_linear": (ForwardProcess.vp_linear(10), lambda t: -beta(t) / 2, beta),
        "sub_vp": (ForwardProcess.sub_vp(10), lambda t: -beta(t) / 2, lambda t: beta(t) * -np.expm1(-2 * B(t))),
        "rectified_flow": (ForwardProcess.rectified_flow(10), lambda t: -1 / (1 - t), lambda t: 2 * t / (1 - t)),
        "vp_cosine": (
            ForwardProcess.vp_cosine(10),
            lambda t: -rate * np.tan(rate * (t + 0.008)),
            lambda t: 2 * rate * np.tan(rate * (t + 0.008)),
        ),
        "ve": (ForwardProcess.ve(SIGMAS), lambda t: -t / (1 + t**2), lambda t: 2 * t / (1 + t**2)),
    }


TRUTH = sde_truth()


@pytest.mark.parametrize("name", TRUTH)
def test_sde_coefficients_are_the_analytic_ones(name: str) -> None:
    """1e-7 of the scale: numerical derivatives reach 1e-9 inside and lose two digits where they are one-sided."""
    process, drift, diffusion2 = TRUTH[name]
    t = np.concatenate([[0.0, 1e-5], np.linspace(0.001, 0.999, 41), [0.9999]]) * process.times[-1]
    found_drift, found_diffusion = process.sde(t)
    np.testing.assert_allclose(found_drift, drift(t), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found_diffusion**2, diffusion2(t), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", TRUTH)
def test_sde_coefficients_are_finite_differences_of_f_and_g(name: str) -> None:
    """Eq. 12 as printed: f'/f and sqrt(2 g (g' − f' g / f)), by central differences of step h.

    h² times a third derivative (at most about 1e4 here) and 1e-16/h are both below 1e-4 of the scale at h = 1e-5.
    """
    process, _, _ = TRUTH[name]
    t, h = np.linspace(0.1, 0.9, 17) * process.times[-1], 1e-5 * float(process.times[-1])
    f, g = process.f_function, process.g_function
    assert f is not None
    assert g is not None
    f_slope, g_slope = ((np.asarray(u(t + h)) - np.asarray(u(t - h))) / (2 * h) for u in (f, g))
    drift, diffusion = process.sde(t)
    np.testing.assert_allclose(drift, f_slope / f(t), rtol=1e-4)
    np.testing.assert_allclose(diffusion, np.sqrt(2 * g(t) * (g_slope - f_slope * g(t) / f(t))), rtol=1e-4)


@pytest.mark.parametrize("name", TRUTH)
def test_the_sde_moves_the_moments_of_the_marginal(name: str) -> None:
    """The moment equations m' = drift m and v' = 2 drift v + diffusion² have solutions, from a to b,
    f_b/f_a = exp(∫ drift) and g_ba² = ∫ (f_b/f_u)² diffusion²(u) du: transitions and SDE are one process.
    """
    process, _, _ = TRUTH[name]
    end = float(process.times[-1])
    a, b = 0.02 * end, 0.7 * end
    f, g = process.f_function, process.g_function
    assert f is not None
    assert g is not None
    nodes, weights = np.polynomial.legendre.leggauss(80)
    u, weights = a + (b - a) * (nodes + 1) / 2, weights * (b - a) / 2
    drift, diffusion = process.sde(u)
    pair = ForwardProcess.from_functions(f, g, [0.0, a, b])
    np.testing.assert_allclose(math.exp(weights @ drift), pair.f_ts(2, 1), rtol=1e-8)
    np.testing.assert_allclose(weights @ ((f(np.array(b)) / f(u)) ** 2 * diffusion**2), pair.g2_ts(2, 1), rtol=1e-8)


def test_sde_takes_one_time_and_scalar_functions() -> None:
    process = ForwardProcess.from_functions(
        lambda t: math.exp(-float(t)), lambda t: math.sqrt(-math.expm1(-2.0 * float(t))), [0.0, 1.0]
    )
    drift, diffusion = process.sde(0.5)  # Ornstein-Uhlenbeck: −1 and sqrt(2)
    np.testing.assert_allclose([drift[0], diffusion[0]], [-1.0, math.sqrt(2.0)], rtol=1e-8)


@pytest.mark.parametrize(
    ("process", "times", "message"),
    [
        (ForwardProcess.linear(10), 0.5, r"'linear' process is known only at its grid points.*vp_linear and vp_cosine"),
        (ForwardProcess.vp_linear(10), [0.5, 1.5], r"times must lie in \[0, 1\.0\], but they span \[0\.5, 1\.5\]"),
        (ForwardProcess.vp_linear(10), [float("nan")], r"times must lie in \[0, 1\.0\]"),
        (ForwardProcess.rectified_flow(10), [0.5, 1.0], r"f'/f is not defined where f = 0 \(time 1\.0\)"),
    ],
)
def test_sde_refuses_where_it_is_not_defined(process: ForwardProcess, times: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        process.sde(times)


# --- fingerprint ------------------------------------------------------------------------------------------------------


def test_fingerprint_differs_when_anything_differs() -> None:
    """A whole discrete grid has origin_T = T and its first pair in f and g, so these are varied on a thinned one."""
    process = ForwardProcess.linear(20).subset([1, 5, 20])
    changed = {
        "f": process.f * [1.0, 1.0, 1.0 - 2e-16, 1.0],
        "g": process.g * [1.0, 1.0, 1.0 + 3e-16, 1.0],
        "times": process.times * 2.0,
        "origin": [0, 1, 6, 20],
        "origin_T": 21,
        "input_scale": [1.0, 1.0, 1.0, 2.0],
        "kind": "continuous",
        "first_pair_variance": 0.5,
    }
    prints = {key: dataclasses.replace(process, **{key: value}).fingerprint for key, value in changed.items()}
    assert len({process.fingerprint, *prints.values()}) == 1 + len(changed), prints
    assert ForwardProcess.linear(20).subset([1, 5, 20]).fingerprint == process.fingerprint
    assert dataclasses.replace(process, name="other").fingerprint == process.fingerprint  # a name is no number


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ForwardProcess.from_alpha_bar([0.9, 0.0]), r"strictly between 0 and 1, but alpha_bar\[1\] = 0\.0\."),
        (lambda: ForwardProcess.from_alpha_bar([1.0, 0.5]), r"alpha_bar\[0\] = 1\.0\. Leave out the clean point"),
        (lambda: ForwardProcess.from_alpha_bar([0.9, -0.1]), r"alpha_bar\[1\] = -0\.1"),
        (
            lambda: ForwardProcess.from_alpha_bar([0.5, 0.9]),
            r"strictly decreasing, but alpha_bar\[0\] = 0\.5 and alpha_bar\[1\] = 0\.9\. Give it from least",
        ),
        (lambda: ForwardProcess.from_alpha_bar([0.5, 0.5]), r"strictly decreasing.*without repeated values"),
        (lambda: ForwardProcess.from_alpha_bar([]), r"alpha_bar must be a non-empty vector, not .* shape \(0,\)"),
        (lambda: ForwardProcess.from_alpha_bar([[0.5]]), r"non-empty vector, not an array of shape \(1, 1\)"),
        (lambda: ForwardProcess.from_alpha_bar([0.5, math.nan]), r"must be finite, but alpha_bar\[1\] = nan"),
        (lambda: ForwardProcess.from_betas([0.1, 1.0]), r"betas\[1\] = 1\.0\..*from_functions"),
        (
            lambda: ForwardProcess.from_betas([0.0, 0.1]),
            r"betas must lie strictly between 0 and 1, but betas\[0\] = 0\.0",
        ),
        (lambda: ForwardProcess.from_betas([0.999] * 200), r"alpha_bar underflows to 0; use fewer or smaller"),
        (lambda: ForwardProcess.linear(0), r"T must be a whole number of steps, at least 1, not 0"),
        (lambda: ForwardProcess.cosine(2.5), r"T must be a whole number of steps, at least 1, not 2\.5"),
        (lambda: ForwardProcess.rectified_flow(True), r"T must be a whole number of steps, at least 1, not True"),
        (
            lambda: ForwardProcess.rectified_flow(times=[0.1, 1.0]),
            r"start at time 0, but times\[0\] = 0\.1\. Prepend 0",
        ),
        (lambda: ForwardProcess.rectified_flow(times=[0.0]), r"same length, at least 2"),
        (
            lambda: ForwardProcess.rectified_flow(times=[0.0, 0.5, 0.5]),
            r"strictly increasing, but times\[1\] = 0\.5 and times\[2\] = 0\.5\. Sort them and drop repeats",
        ),
        (
            lambda: ForwardProcess.rectified_flow(times=[0.0, 1.5]),
            r"f must not be negative, but its least value is -0\.5",
        ),
        (lambda: ForwardProcess.ve([0.01, 1.0]), r"start at time 0, but times\[0\] = 0\.01\. Prepend 0"),
        (
            lambda: ForwardProcess.from_functions(lambda t: 1 - t, lambda t: t + 0.1, [0.0, 0.5]),
            r"clean data \(g\[0\] == 0\), but g\[0\] = 0\.1\. Prepend a clean point",
        ),
        (
            lambda: ForwardProcess.from_functions(lambda t: 0.9 - t, lambda t: t, [0.0, 0.5]),
            r"clean data \(f\[0\] == 1\), but f\[0\] = 0\.9\..*divide f and g by f\(0\)",
        ),
        (
            lambda: ForwardProcess.from_functions(lambda t: 1 + t, lambda t: t, [0.0, 0.5]),
            r"f must not rise along the grid, but f\[0\] = 1\.0 and f\[1\] = 1\.5\. The grid runs from clean data",
        ),
        (
            lambda: ForwardProcess.from_functions(lambda t: 1 - t, lambda t: t * (1 - t), [0.0, 0.5, 0.9]),
            r"g must not fall along the grid, but g\[1\] = 0\.25",
        ),
        (
            lambda: ForwardProcess.from_functions(lambda t: 1 - t, lambda t: 0 * t, [0.0, 0.5]),
            r"Only grid point 0 may be clean, but g\[1\] = 0\.0\. Drop that point",
        ),
        (
            lambda: ForwardProcess.from_functions(lambda t: 1 + 0 * t, lambda t: np.minimum(t, 0.5), [0.0, 0.5, 0.9]),
            r"signal-to-noise ratio must strictly fall .* points 1 and 2 have .* Drop one of them",
        ),
        (
            lambda: ForwardProcess.from_functions(lambda t: 1 - t, lambda t: t / (0.5 - t), [0.0, 0.5]),
            r"g must be finite, but g\[1\] = inf\. Move the grid off that point",
        ),
        (
            lambda: ForwardProcess.from_functions(0.5, lambda t: t, [0.0, 1.0]),
            r"f must be a function of time, not float",
        ),
    ],
)
def test_bad_input_names_rule_value_and_remedy(make: Any, message: str) -> None:
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("origin", [0, 2, 1], r"origin must rise strictly from 0 to at most origin_T = 2, but it is \[0 2 1\]"),
        ("origin", [0, 1], r"origin must rise strictly"),
        ("origin", [0, 1, 3], r"origin must rise strictly from 0 to at most origin_T = 2"),
        ("input_scale", [1.0, 0.0, 1.0], r"input_scale must be positive and finite"),
        ("input_scale", [1.0], r"input_scale must be positive and finite"),
    ],
)
def test_a_process_read_from_a_damaged_file_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(ForwardProcess.linear(2), **{field: value})
