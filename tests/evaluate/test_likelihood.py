"""Bits/dim by three roads: the cost table, the direct evaluator, and the definition written out in gaussian.py."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from likelihood_cases import CASES, DECODERS, VARIANCES, make_case, options_of

from dpstride import (
    ForwardProcess,
    Schedule,
    bits_per_dim,
    elbo_costs,
    even_stride,
    score,
)
from dpstride.statistics.artefact import learned_decoder_delta, learned_decoder_size
from gaussian import LN2, DirectChain, gaussian_denoiser, ideal_statistics, random_path

# --- table, evaluator and definition agree ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_table_evaluator_and_definition_agree_on_the_same_noise(name: str) -> None:
    case = CASES[name]
    T, statistics = case.denoiser.process.T, case.statistics(seed=3)
    chain = DirectChain(case.denoiser, case.x_0, case.data_range, seed=3)
    rng = np.random.default_rng(1)
    for variance, decoder in options_of(case):
        table = elbo_costs(statistics, variance=variance, decoder=decoder)
        least = 2 if decoder == "respaced" else 1
        for K in sorted({least, 4, T}):
            path = random_path(rng, T, K)
            schedule = table.schedule(path)
            [scored] = score(statistics, [schedule])
            direct = case.direct(schedule, seed=3)
            assert schedule.bpd == pytest.approx(direct.bpd, abs=1e-9), (variance, decoder, path)
            assert scored.bpd == pytest.approx(direct.bpd, abs=1e-9)
            exact = chain.total(path, variance, decoder, table.fitted) / (chain.dims * LN2)
            assert direct.bpd == pytest.approx(exact.mean(), abs=1e-9)
            assert direct.standard_error == pytest.approx(exact.std(ddof=1) / math.sqrt(len(exact)), abs=1e-9)
            for likelihood in (scored, direct):
                parts = [*likelihood.terms["steps"], likelihood.terms["decoder"], likelihood.terms["prior"]]
                assert len(parts) == K + 1
                assert math.fsum(parts) == pytest.approx(likelihood.bpd, abs=1e-12)
            assert scored.terms["steps"] == pytest.approx(direct.terms["steps"], abs=1e-9)
            assert scored.terms["decoder"] == pytest.approx(direct.terms["decoder"], abs=1e-9)
            assert scored.terms["prior"] == pytest.approx(direct.terms["prior"], abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "data_range"),
    [("linear", "uint8"), ("rectified_flow", "uint8"), ("cosine", "continuous"), ("linear", "continuous")],
)
def test_agreement_where_the_learned_decoder_is_interpolated(kind: str, data_range: str) -> None:
    # A row holds more t2 than Chebyshev nodes only on finer grids; make sure that this one does.
    process = getattr(ForwardProcess, kind)(120)
    size = learned_decoder_size(process)
    assert max(learned_decoder_delta(process, t).size for t in range(1, 120)) > size
    case = make_case(process, data_range, samples=4)
    statistics = case.statistics(seed=5)
    rng = np.random.default_rng(2)
    for variance in ("learned_range", "posterior"):
        table = elbo_costs(statistics, variance=variance, decoder="respaced")
        for t1, t2 in (
            (1, 2),
            (1, 119),
            (2, 3),
            (5, 60),
            (20, 21),
            (60, 90),
            (110, 111),
            *rng.integers(1, 119, (4, 2)),
        ):
            path = (120, max(t1, t2 + (t1 == t2)), min(t1, t2), 0)
            direct = case.direct(table.schedule(path), seed=5)
            assert table.schedule(path).bpd == pytest.approx(direct.bpd, abs=1e-9), (variance, path)


@pytest.mark.parametrize("name", CASES)
def test_other_noise_differs_by_its_standard_errors(name: str) -> None:
    case = CASES[name]
    T, table_seed = case.denoiser.process.T, 7
    statistics = case.statistics(table_seed)
    rng = np.random.default_rng(4)
    for variance, decoder in options_of(case):
        schedule = elbo_costs(statistics, variance=variance, decoder=decoder).schedule(random_path(rng, T, 4))
        direct = case.direct(schedule, seed=1007)
        assert schedule.standard_error is not None
        error = math.hypot(schedule.standard_error, direct.standard_error)
        assert abs(schedule.bpd - direct.bpd) < 5.0 * error  # type: ignore[operator]


def test_respaced_has_no_single_step() -> None:
    case = CASES["uint8, linear"]
    schedule = even_stride(case.denoiser.process, 1)
    with pytest.raises(ValueError, match=r"needs two steps\. Ask for 2 steps or more"):
        case.direct(schedule, seed=0, decoder="respaced")
    respaced = dataclasses.replace(schedule, options={"variance": "upper", "decoder": "respaced", "cdf": "exact"})
    with pytest.raises(ValueError, match="a path needs two steps"):
        score(case.statistics(0), [respaced])


# --- the tanh approximation of the normal CDF -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uint8, linear", "5 levels, linear"])
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("decoder", ["upper", "first_pair", "respaced"])
def test_tanh_evaluator_is_its_definition(name: str, variance: str, decoder: str) -> None:
    case = CASES[name]
    chain = DirectChain(case.denoiser, case.x_0, case.data_range, seed=3)
    T = case.denoiser.process.T
    fitted = elbo_costs(case.statistics(3), variance=variance).fitted
    for path in ((T, 5, 3, 0), (T, 6, 1, 0), (T, T - 1, 0)):
        schedule = Schedule(case.denoiser.process, path, fitted=fitted)
        direct = case.direct(schedule, seed=3, variance=variance, decoder=decoder, cdf="tanh")
        exact = chain.bpd(path, variance, decoder, fitted, cdf="tanh")
        # Differences of CDFs near the floor of 1e-12 keep only four digits: 1e-16 / 1e-12.
        assert direct.bpd == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize("decoder", DECODERS)
def test_tanh_table_agrees_with_the_evaluator(decoder: str) -> None:
    case = CASES["uint8, linear"]
    statistics = case.statistics(3)
    table = elbo_costs(statistics, variance="upper", decoder=decoder, cdf="tanh")
    for path in ((12, 5, 3, 0), (12, 6, 1, 0), (12, 11, 0)):
        schedule = table.schedule(path)
        assert schedule.options["cdf"] == "tanh"
        direct = case.direct(schedule, seed=3)
        assert direct.options["cdf"] == "tanh"
        # The floor is a kink, and bins of moments are exact for smooth functions only.
        assert schedule.bpd == pytest.approx(direct.bpd, rel=1e-3)


def test_tanh_with_a_learned_decoder_is_left_to_direct_evaluation() -> None:
    statistics = CASES["uint8, linear"].statistics(0)
    with pytest.raises(
        ValueError, match=r"only available by direct evaluation, bits_per_dim\(.*decoder='respaced', cdf='tanh'\)"
    ):
        elbo_costs(statistics, variance="learned_range", decoder="respaced", cdf="tanh")


# --- ideal numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicts", ["eps", "x0", "v", "flow"])
def test_evaluator_finds_the_ideal_cost_of_gaussian_data(predicts: str) -> None:
    mean, variance = np.array([0.5, -0.2, 0.0]), np.array([0.3, 1.0, 2.0])
    process = ForwardProcess.vp_linear(20)
    denoiser = gaussian_denoiser(process, mean, variance, predicts, time_input="time")
    x_0 = mean + np.sqrt(variance) * np.random.default_rng(0).standard_normal((600, 3))
    for option in ("posterior", "upper"):
        ideal = elbo_costs(ideal_statistics(process, mean, variance), option, "upper")  # type: ignore[arg-type]
        for path in ((20, 0), (20, 9, 3, 0), tuple(range(20, -1, -1))):
            found = bits_per_dim(
                denoiser, x_0, Schedule(process, path), seed=1, variance=option, data_range="continuous"
            )
            assert abs(found.bpd - ideal.schedule(path).bpd) < 5.0 * found.standard_error  # type: ignore[operator]
