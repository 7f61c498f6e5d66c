"""The forward process against Gaussian conditioning, the papers' own formulas, and calculus."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dpstride import ForwardProcess

Long = np.longdouble
SIGMAS = np.concatenate([[0.0], np.geomspace(0.002, 80.0, 40)])


def made() -> dict[str, ForwardProcess]:
    return {
        "linear": ForwardProcess.linear(1000),
        "cosine": ForwardProcess.cosine(400),
        "vp_linear": ForwardProcess.vp_linear(50),
        "vp_cosine": ForwardProcess.vp_cosine(50),
        "sub_vp": ForwardProcess.sub_vp(50),
        "rectified_flow": ForwardProcess.rectified_flow(50),
        "ve": ForwardProcess.ve(SIGMAS),
    }


MADE = made()


@st.composite
def processes(draw: st.DrawFn) -> ForwardProcess:
    """Any f that does not rise and any g that does not fall, the ratio falling by at least 1e-5 each step."""
    T = draw(st.integers(2, 12))
    shrink = draw(st.lists(st.floats(1e-3, 1.0), min_size=T, max_size=T))
    growth = draw(st.lists(st.floats(1.00001, 20.0), min_size=T - 1, max_size=T - 1))
    first = draw(st.floats(1e-4, 1.0))
    f = np.concatenate([[1.0], np.cumprod(shrink)])
    g = np.concatenate([[0.0], first * np.cumprod([1.0, *growth])])
    if draw(st.booleans()):
        f[-1] = 0.0  # pure noise at the end is allowed
    return ForwardProcess(
        f=f,
        g=g,
        times=np.arange(T + 1.0),
        kind="continuous",
        name="drawn",
        origin=np.arange(T + 1),
        origin_T=T,
        input_scale=np.ones(T + 1),
    )


any_process = st.one_of(st.sampled_from(sorted(MADE)).map(MADE.__getitem__), processes())


@st.composite
def process_and_pair(draw: st.DrawFn) -> tuple[ForwardProcess, int, int]:
    process = draw(any_process)
    s = draw(st.integers(0, process.T - 1))
    return process, draw(st.integers(s + 1, process.T)), s


# --- coefficients of a step -------------------------------------------------------------------------------------------


@given(process_and_pair())
def test_coefficients_are_those_of_gaussian_conditioning(drawn: tuple[ForwardProcess, int, int]) -> None:
    """From the joint covariance of (x_s, x_t) given x_0, in long double.

    x_t = f_ts x_s + noise of variance v, and Var x_t = g_t², so v = g_t² − f_ts² g_s² and Cov(x_s, x_t) = f_ts g_s².
    Conditioning a Gaussian: mean f_s x_0 + Cov/Var x_t (x_t − f_t x_0), variance g_s² − Cov²/Var x_t.
    Tolerance: steps whose f/g differ by 1e-5 lose five of sixteen digits to 1 − ratio; 1e-10 is the house rule.
    """
    process, t, s = drawn
    f_s, f_t, g_s, g_t = (Long(array[i]) for array in (process.f, process.g) for i in (s, t))
    f_ts = f_t / f_s
    covariance = f_ts * g_s**2
    a, b = process.posterior_mean(t, s)
    np.testing.assert_allclose(float(process.f_ts(t, s)), float(f_ts), rtol=1e-15)
    np.testing.assert_allclose(float(process.g2_ts(t, s)), float(g_t**2 - f_ts**2 * g_s**2), rtol=1e-10)
    np.testing.assert_allclose(float(a), float(covariance / g_t**2), rtol=1e-14)
    np.testing.assert_allclose(float(b), float(f_s - covariance / g_t**2 * f_t), rtol=1e-10)
    np.testing.assert_allclose(
        float(process.posterior_variance(t, s)), float(g_s**2 - covariance**2 / g_t**2), rtol=1e-10
    )


@given(any_process, st.data())
def test_two_steps_compose_to_one(process: ForwardProcess, data: st.DataObject) -> None:
    """x_r → x_s → x_t: means multiply, and variances add after being carried along."""
    r, s, t = sorted(data.draw(st.sets(st.integers(0, process.T), min_size=3, max_size=3)))
    np.testing.assert_allclose(process.f_ts(t, s) * process.f_ts(s, r), process.f_ts(t, r), rtol=1e-14)
    through_s = process.f_ts(t, s) ** 2 * process.g2_ts(s, r) + process.g2_ts(t, s)
    np.testing.assert_allclose(through_s, process.g2_ts(t, r), rtol=1e-10)


@pytest.mark.parametrize("name", MADE)
def test_coefficients_take_arrays_of_steps(name: str) -> None:
    process = MADE[name]
    t, s = np.arange(1, process.T + 1), np.arange(process.T)
    one_by_one = [float(process.posterior_variance(int(i), int(j))) for i, j in zip(t, s, strict=True)]
    np.testing.assert_array_equal(process.posterior_variance(t, s), one_by_one)
    np.testing.assert_array_equal(process.posterior_mean(t, s)[1][0], 1.0)  # 1 → 0: the mean is x̂_0 itself


@pytest.mark.parametrize("name", MADE)
def test_last_step_returns_clean_data_and_the_marginal_is_kept(name: str) -> None:
    """s = 0: mean exactly x_0, variance 0. Integrating the posterior over q(x_t given x_0) gives back q(x_s given x_0)."""
    process = MADE[name]
    for t in range(1, process.T + 1):
        assert [float(v) for v in process.posterior_mean(t, 0)] == [0.0, 1.0]
        assert float(process.posterior_variance(t, 0)) == 0.0
    t, s = process.T, np.arange(1, process.T)
    a, b = process.posterior_mean(t, s)
    np.testing.assert_allclose(a * process.f[t] + b, process.f[s], rtol=1e-13)
    np.testing.assert_allclose(
        a**2 * process.g[t] ** 2 + process.posterior_variance(t, s), process.g[s] ** 2, rtol=1e-13
    )


@pytest.mark.parametrize("name", ["f", "g", "times", "origin", "input_scale"])
def test_the_numbers_of_a_process_cannot_be_changed(name: str) -> None:
    given = np.linspace(0.1, 0.2, 5)
    process = ForwardProcess.from_betas(given)
    given[0] = 0.5  # the caller's own stay theirs
    for each in (process, process.subset([0, 2, 5])):
        with pytest.raises(ValueError, match="read-only"):
            getattr(each, name)[0] = 7


def test_snr_is_infinite_at_clean_data_and_zero_at_pure_noise() -> None:
    process = ForwardProcess.rectified_flow(4)  # f/g = (1 − t)/t: 3, 1, 1/3
    np.testing.assert_allclose(process.snr, [np.inf, 9.0, 1.0, 1.0 / 9.0, 0.0])
    np.testing.assert_allclose(process.log_snr, [np.inf, math.log(9.0), 0.0, -math.log(9.0), -np.inf], atol=1e-15)


def test_posterior_step_costs_do_not_change_when_ve_is_rescaled() -> None:
    """In VE's own coordinates y_t = x_0 + σ_t ε the posterior of y_s has mean r y_t + (1 − r) x_0 and variance
    σ_s² (1 − r), r = σ_s²/σ_t². An error e of x̂_0 costs KL = ((1 − r) e)² / (2 σ_s² (1 − r)) nats.
    """
    process = ForwardProcess.ve(SIGMAS)
    sigma = SIGMAS.astype(Long)
    for t in range(2, process.T + 1):
        s = np.arange(1, t)
        r = sigma[s] ** 2 / sigma[t] ** 2
        direct = (1 - r) ** 2 / (2 * sigma[s] ** 2 * (1 - r))
        b = process.posterior_mean(t, s)[1]
        np.testing.assert_allclose(b**2 / (2.0 * process.posterior_variance(t, s)), direct.astype(float), rtol=1e-10)
        rescaled = sigma[s] ** 2 * (1 - r) / (1 + sigma[s] ** 2)
        np.testing.assert_allclose(process.posterior_variance(t, s), rescaled.astype(float), rtol=1e-10)


def test_ve_feeds_the_network_its_own_coordinates_and_ends_near_the_unit_prior() -> None:
    process = ForwardProcess.ve(SIGMAS)
    np.testing.assert_allclose(process.input_scale * process.f, 1.0, rtol=1e-15)
    np.testing.assert_allclose(process.input_scale * process.g, SIGMAS, rtol=1e-15)
    np.testing.assert_allclose(process.f**2 + process.g**2, 1.0, rtol=1e-15)  # so that the prior is N(0, I)


# --- the papers' processes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [1000, 4000, 250, 10, 1])
def test_linear_is_ho_et_al_scaled_by_1000_over_T(T: int) -> None:
    """betas from 1e-4·(1000/T) to 0.02·(1000/T) (Ho et al. 2020 at T = 1000), at most 0.999."""
    scale = Long(1000) / T
    betas = np.minimum(np.linspace(Long(0.0001) * scale, Long(0.02) * scale, T, dtype=Long), Long(0.999))
    alpha_bar = np.cumprod(1 - betas)
    process = ForwardProcess.linear(T)
    assert (process.T, process.kind, process.origin_T) == (T, "discrete", T)
    np.testing.assert_allclose(process.f[1:] ** 2, alpha_bar.astype(float), rtol=1e-12)
    np.testing.assert_allclose(process.g[1:] ** 2, (1 - alpha_bar).astype(float), rtol=1e-12)


@pytest.mark.parametrize("T", [4000, 1000, 50])
def test_cosine_is_nichol_and_dhariwal_with_their_clip(T: int) -> None:
    """alpha_bar(u) = cos²((u + 0.008)/1.008 · π/2); beta_i = min(1 − alpha_bar((i + 1)/T)/alpha_bar(i/T), 0.999).

    1e-9: the library forms each beta in float64, and the first of T = 4000 are 4e-5.
    """
    half_pi = Long("3.14159265358979323846264338327950288") / 2
    alpha_bar = np.cos((np.arange(T + 1, dtype=Long) / T + Long("0.008")) / Long("1.008") * half_pi) ** 2
    betas = np.minimum(1 - alpha_bar[1:] / alpha_bar[:-1], Long("0.999"))
    assert betas[-1] == Long("0.999")
    expected = np.cumprod(1 - betas)
    process = ForwardProcess.cosine(T)
    np.testing.assert_allclose(process.f[1:] ** 2, expected.astype(float), rtol=1e-9)
    np.testing.assert_allclose(process.g[1:] ** 2, (1 - expected).astype(float), rtol=1e-9)
    assert process.f[-1] > 0.0  # the clip is what keeps eps prediction defined at T


def test_continuous_forms_follow_their_definitions() -> None:
    t = np.linspace(0.0, 1.0, 51)[1:]
    integral = 0.1 * t + (20.0 - 0.1) * t**2 / 2  # of beta(t) = 0.1 + 19.9 t
    vp, sub, flow, cosine = (MADE[name] for name in ("vp_linear", "sub_vp", "rectified_flow", "vp_cosine"))
    np.testing.assert_allclose(vp.f[1:] ** 2, np.exp(-integral), rtol=1e-14)
    np.testing.assert_allclose(vp.f**2 + vp.g**2, 1.0, rtol=1e-15)
    np.testing.assert_array_equal(sub.f, vp.f)
    np.testing.assert_allclose(sub.g, vp.g**2, rtol=1e-15)
    np.testing.assert_array_equal([flow.f[1:], flow.g[1:]], [1.0 - t, t])
    angle = (t + 0.008) / 1.008 * math.pi / 2
    np.testing.assert_allclose(
        cosine.f[1:], np.cos(angle) / math.cos(0.008 / 1.008 * math.pi / 2), rtol=1e-13, atol=1e-16
    )
    np.testing.assert_allclose(cosine.f**2 + cosine.g**2, 1.0, rtol=1e-14)
    assert (cosine.f[-1], cosine.g[-1], flow.f[-1]) == (0.0, 1.0, 0.0)


def test_discrete_linear_tends_to_continuous_vp() -> None:
    """Song et al. (2021): betas linear in the step become beta(t) linear in time, with an error of order 1/T."""
    gaps = [float(np.abs(ForwardProcess.linear(T).f - ForwardProcess.vp_linear(T).f).max()) for T in (1000, 2000, 4000)]
    slope = np.polyfit(np.log([1000, 2000, 4000]), np.log(gaps), 1)[0]
    assert -1.05 < slope < -0.95


# --- ways to make one -------------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 0.9), st.lists(st.floats(1e-6, 0.999), max_size=39))
def test_betas_and_alpha_bar_and_functions_make_one_process(first: float, others: list[float]) -> None:
    """Any betas but those that fall from above 0.9, which are taken for alpha_bar."""
    betas = [first, *others]
    by_betas = ForwardProcess.from_betas(betas)
    alpha_bar = np.cumprod(1 - np.asarray(betas, dtype=Long))
    np.testing.assert_allclose(by_betas.f[1:] ** 2, alpha_bar.astype(float), rtol=1e-13)
    np.testing.assert_allclose(by_betas.g[1:] ** 2, (1 - alpha_bar).astype(float), rtol=1e-12)
    by_functions = ForwardProcess.from_functions(
        lambda i: by_betas.f[i.astype(int)], lambda i: by_betas.g[i.astype(int)], np.arange(len(betas) + 1)
    )
    np.testing.assert_array_equal([by_functions.f, by_functions.g], [by_betas.f, by_betas.g])
    if (np.diff(alpha_bar.astype(float)) < 0.0).all() and alpha_bar[-1] > 1e-300:
        by_alpha_bar = ForwardProcess.from_alpha_bar(alpha_bar.astype(float))
        np.testing.assert_allclose(by_alpha_bar.f, by_betas.f, rtol=1e-13)
        # alpha_bar as a float64 has lost 1e-16/(1 − alpha_bar) of g² before the library sees it.
        np.testing.assert_allclose(by_alpha_bar.g, by_betas.g, rtol=1e-9)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_discrete_process_equals_the_continuous_formulas_on_its_own_grid(name: str) -> None:
    discrete = MADE[name]
    continuous = ForwardProcess.from_functions(
        lambda i: discrete.f[i.astype(int)], lambda i: discrete.g[i.astype(int)], np.arange(discrete.T + 1)
    )
    t = np.arange(2, discrete.T + 1)
    for s in (t - 1, t // 2, np.ones_like(t)):
        for method in ("f_ts", "g2_ts", "posterior_variance", "posterior_mean"):
            np.testing.assert_array_equal(getattr(discrete, method)(t, s), getattr(continuous, method)(t, s))
    assert continuous.first_pair_variance is None


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_first_pair_variance_is_that_of_training_step_2_to_1(name: str) -> None:
    """Analytic-DPM's decoder: beta_2 (1 − alpha_bar_1)/(1 − alpha_bar_2), Ho et al.'s posterior variance; kept by subset."""
    process = MADE[name]
    g2 = process.g**2
    expected = (1.0 - process.f[2] ** 2 / process.f[1] ** 2) * g2[1] / g2[2]
    assert process.first_pair_variance == pytest.approx(expected, rel=1e-10)
    assert process.subset([7, 300]).first_pair_variance == process.first_pair_variance
    assert ForwardProcess.from_betas([0.5]).first_pair_variance is None


def test_functions_may_take_one_time_only() -> None:
    """A user's f and g are often written with `math` and `if`."""
    process = ForwardProcess.from_functions(
        lambda t: math.exp(-float(t)), lambda t: 0.0 if t == 0 else math.sqrt(-math.expm1(-2.0 * t)), [0.0, 0.5, 2.0]
    )
    np.testing.assert_allclose(process.f, np.exp([0.0, -0.5, -2.0]), rtol=1e-15)
    constant = ForwardProcess.from_functions(lambda t: 1.0, lambda t: t, [0.0, 1.0, 3.0])
    np.testing.assert_array_equal(constant.f, 1.0)


def test_torch_tensors_and_lists_are_taken() -> None:
    import torch

    alpha_bar = [0.9, 0.5, 0.1]
    by_list = ForwardProcess.from_alpha_bar(alpha_bar)
    by_tensor = ForwardProcess.from_alpha_bar(torch.tensor(alpha_bar, dtype=torch.float64))
    assert by_list.fingerprint == by_tensor.fingerprint


def test_a_process_keeps_its_own_copy_of_what_it_was_made_from() -> None:
    times = np.array([0.0, 0.5, 1.0])
    process = ForwardProcess.rectified_flow(times=times)
    times[:] = 7.0
    np.testing.assert_array_equal(process.times, [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(process.g, [0.0, 0.5, 1.0])  # g is the identity here, so it could be the same array
    assert not np.shares_memory(process.subset([2]).f, process.f)


# --- subset -----------------------------------------------------------------------------------------------------------


def test_subset_keeps_the_training_step_of_every_point() -> None:
    process = ForwardProcess.linear(100)
    coarse = process.subset([80, 20, 40, 20])
    np.testing.assert_array_equal(coarse.origin, [0, 20, 40, 80])
    np.testing.assert_array_equal(coarse.times, [0, 20, 40, 80])
    np.testing.assert_array_equal(coarse.f, process.f[[0, 20, 40, 80]])
    assert (coarse.T, coarse.origin_T, coarse.kind) == (3, 100, "discrete")
    twice = coarse.subset([3, 1])
    np.testing.assert_array_equal(twice.origin, [0, 20, 80])
    assert twice.is_grid_of(process)
    assert twice.is_grid_of(coarse)
    assert not coarse.is_grid_of(twice)
    assert float(twice.posterior_variance(2, 1)) == float(process.posterior_variance(80, 20))


def test_a_subset_is_no_grid_of_another_process() -> None:
    coarse = ForwardProcess.linear(100).subset([50, 100])
    assert not coarse.is_grid_of(ForwardProcess.cosine(100))
    assert not coarse.is_grid_of(ForwardProcess.linear(200))
    assert ForwardProcess.linear(100).is_grid_of(ForwardProcess.linear(100))


def test_subset_of_ve_keeps_the_input_scale() -> None:
    process = ForwardProcess.ve(SIGMAS)
    np.testing.assert_array_equal(process.subset([5, 9]).input_scale, process.input_scale[[0, 5, 9]])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([1, 101], r"0 to 100, but 101 is among them: the network was never trained there\. Choose a subset"),
        ([-1, 5], r"0 to 100, but -1 is among them"),
        ([0.5, 3.0], r"whole grid indices, not float64: .* build a grid with from_functions"),
        ([], r"non-empty list of grid indices, not an array of shape \(0,\)"),
        ([[1, 2]], r"non-empty list of grid indices, not an array of shape \(1, 2\)"),
        ([0], r"at least one step above 0, but only index 0"),
        ([True, False], r"whole grid indices, not bool"),
    ],
)
def test_what_is_not_a_subset_is_refused_with_the_reason(steps: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ForwardProcess.linear(100).subset(steps)


@pytest.mark.parametrize("values", ["a", [object()], {1: 2}, {0.1}, [[0.1], [0.1, 0.2]], np.array([0.1j]), [10**400]])
def test_what_is_no_vector_of_numbers_is_named(values: Any) -> None:
    for name, make in (("betas", ForwardProcess.from_betas), ("alpha_bar", ForwardProcess.from_alpha_bar)):
        with pytest.raises(ValueError, match=f"{name} must be a vector of real numbers, not "):
            make(values)
