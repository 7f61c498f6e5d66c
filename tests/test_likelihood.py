"""Bits/dim by three roads: the cost table, the direct evaluator, and the definition written out in gaussian.py."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    Statistics,
    bits_per_dim,
    elbo_costs,
    estimate,
    even_stride,
    optimise,
    quadratic_ddim_stride,
    schedules_from,
    score,
)
from dpstride.fitted import Fitted
from dpstride.options import Variance
from dpstride.statistics.artefact import learned_decoder_delta, learned_decoder_size
from gaussian import LN2, Array, DirectChain, gaussian_denoiser, ideal_statistics, random_path

VARIANCES = ("posterior", "upper", "learned_range", "optimal", "learned_optimal")
DECODERS = ("upper", "first_pair", "respaced", "optimal")


class Rough:
    """A smooth float64 network that is far from ideal, with a fraction φ in 0.5 ± ``swing`` that varies by pixel."""

    def __init__(self, low: float, high: float, swing: float = 0.5) -> None:
        self.middle, self.half, self.swing = 0.5 * (low + high), 0.5 * (high - low), swing

    def __call__(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        clock = time.double().reshape(-1, *[1] * (x.ndim - 1))
        x0_hat = self.middle + self.half * torch.tanh(0.9 * (x - self.middle) / self.half + 0.05 * torch.sin(clock))
        return torch.cat([x0_hat, 2.0 * self.swing * torch.sin(3.0 * x + clock)], dim=1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with data: ``values`` as given to dpstride, ``x_0`` as they are meant."""

    denoiser: Denoiser
    values: Array
    x_0: Array
    data_range: Any

    def statistics(self, seed: int) -> Statistics:
        return estimate(self.denoiser, self.values, seed=seed, data_range=self.data_range, progress=False)

    def direct(self, schedule: Schedule, seed: int, **options: Any) -> Any:
        return bits_per_dim(self.denoiser, self.values, schedule, seed=seed, data_range=self.data_range, **options)


def make_case(process: ForwardProcess, data_range: Any, samples: int = 9, swing: float = 0.5, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    shape = (samples, 1, 4)
    if data_range == "continuous":
        values = x_0 = rng.normal(0.2, 0.6, size=shape)
        low, high, clip = -1.0, 1.0, None
    else:
        levels, low, high = (256, -1.0, 1.0) if data_range == "uint8" else data_range[1:]
        values = rng.integers(0, levels, size=shape).astype(np.uint8)
        values[0, 0, :2] = 0, levels - 1  # both edges
        x_0, clip = low + values * (high - low) / (levels - 1), (low, high)
    time_input: Any = "time" if process.kind == "continuous" else "index0"
    denoiser = Denoiser(
        Rough(low, high, swing), process, predicts="x0", variance="learned_range", clip=clip, time_input=time_input
    )
    return Case(denoiser, values, x_0, data_range)


VE = ForwardProcess.ve(np.concatenate([[0.0], np.geomspace(0.05, 20.0, 10)]))
CASES = {
    "uint8, linear": make_case(ForwardProcess.linear(12), "uint8"),
    "uint8, subset of cosine": make_case(ForwardProcess.cosine(60).subset([1, 2, 3, 7, 20, 21, 45, 59, 60]), "uint8"),
    "uint8, subset without step 1": make_case(ForwardProcess.linear(50).subset([3, 4, 11, 30, 50]), "uint8"),
    "uint8, rectified flow": make_case(ForwardProcess.rectified_flow(10), "uint8"),
    "5 levels, linear": make_case(ForwardProcess.linear(9), ("levels", 5, 0.0, 2.0)),
    "2 levels, sub-VP": make_case(ForwardProcess.sub_vp(8), ("levels", 2, -1.0, 1.0)),
    "continuous, linear": make_case(ForwardProcess.linear(10), "continuous"),
    "continuous, rectified flow": make_case(ForwardProcess.rectified_flow(10), "continuous"),
    "continuous, VE": make_case(VE, "continuous"),
    "continuous, wide fractions": make_case(ForwardProcess.cosine(10), "continuous", swing=2.5),
    "uint8, wide fractions": make_case(ForwardProcess.linear(10), "uint8", swing=1.5),
}


def options_of(case: Case) -> list[tuple[str, str]]:
    decoders = [d for d in DECODERS if d != "first_pair" or case.denoiser.process.kind == "discrete"]
    return list(itertools.product(VARIANCES, decoders))


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


# --- standard errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_standard_errors_of_the_table_are_those_of_the_evaluator(name: str) -> None:
    # Nine samples are nine blocks, so both see the same nine totals; the table's decoder terms are interpolated from 12
    # nodes, and beyond the widest stored sigma (optimal decoder, poor network) scaled as 1/σ²: good enough for an error.
    case = CASES[name]
    T, statistics = case.denoiser.process.T, case.statistics(seed=3)
    rng = np.random.default_rng(8)
    for variance, decoder in options_of(case):
        table = elbo_costs(statistics, variance=variance, decoder=decoder)
        for path in (random_path(rng, T, 2), random_path(rng, T, 4), (T, 2, 1, 0)):
            schedule = table.schedule(path)
            ratio = (schedule.standard_error or 0.0) / case.direct(schedule, seed=3).standard_error
            allowed = 0.05 if decoder != "optimal" else 2.1 if name.startswith("2 levels") else 0.4
            assert 1.0 / (1.0 + allowed) < ratio < 1.0 + allowed, (variance, decoder, path)


def test_standard_errors_from_blocks_are_close_to_those_from_samples() -> None:
    # 32 blocks of 10 instead of 320 samples: the error of such an error is 1/sqrt(2 · 31) = 13 %, five of them 64 %.
    case = make_case(ForwardProcess.linear(6), "uint8", samples=320)
    statistics = case.statistics(seed=1)
    for variance, decoder in (("learned_range", "upper"), ("posterior", "optimal"), ("learned_range", "respaced")):
        schedule = elbo_costs(statistics, variance=variance, decoder=decoder).schedule((6, 4, 2, 1, 0))
        direct = case.direct(schedule, seed=1)
        assert schedule.standard_error == pytest.approx(direct.standard_error, rel=0.64)


def test_the_stated_error_is_the_spread_over_data_and_noise() -> None:
    # Scale differs from sample to sample, so a sample that is costly at one t is costly at every t: errors at different t
    # are correlated, and adding up their variances would understate the spread.
    process = ForwardProcess.from_alpha_bar(1.0 / (1.0 + np.exp(np.linspace(-2.0, 2.0, 5))))
    denoiser = gaussian_denoiser(process, np.zeros(12), np.full(12, 0.3))
    path, N = (5, 4, 3, 2, 1, 0), 30
    found, stated, tabled, added = [], [], [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x_0 = rng.standard_normal((N, 12)) * rng.choice([0.2, 1.0], size=(N, 1))
        table = elbo_costs(estimate(denoiser, x_0, seed=seed, data_range="continuous", progress=False))
        direct = bits_per_dim(denoiser, x_0, Schedule(process, path), seed=seed, data_range="continuous")
        found.append(direct.bpd)
        stated.append(direct.standard_error)
        tabled.append(table.schedule(path).standard_error)
        assert table.unit_terms is not None
        terms, _ = table.unit_terms(path)
        added.append(math.sqrt((terms.var(axis=0, ddof=1) / N).sum()) / (12 * LN2))
    assert tabled == pytest.approx(stated, rel=1e-9)  # everything is kept per sample here
    # The spread of 100 numbers is known to 1/sqrt(2 · 99) = 7 %; five of those are 36 %.
    spread = float(np.std(found, ddof=1))
    assert math.sqrt(np.mean(np.square(stated))) == pytest.approx(spread, rel=0.36)
    assert math.sqrt(np.mean(np.square(added))) < 0.64 * spread  # the wrong way would have been noticed


def test_standard_error_of_a_poor_network_with_optimal_decoder() -> None:
    # Residuals of 0.5 where g_t is 0.01: the fitted sigma lies far beyond what is stored for blocks.
    process = ForwardProcess.linear(1000).subset([1, 2, 5, 100, 500, 1000])
    values = np.random.default_rng(0).integers(0, 256, size=(20, 1, 16)).astype(np.uint8)
    denoiser = Denoiser(lambda x, time: 0.5 * x, process, predicts="x0")
    table = elbo_costs(estimate(denoiser, values, progress=False), "optimal", "optimal")
    for path in ((6, 5, 4, 3, 2, 1, 0), (6, 1, 0), (6, 4, 2, 0)):
        schedule = table.schedule(path)
        direct = bits_per_dim(denoiser, values, schedule, seed=0)
        assert schedule.standard_error == pytest.approx(direct.standard_error, rel=0.15)


@pytest.mark.parametrize("name", ["uint8, linear", "continuous, linear"])
def test_errors_of_all_budgets_at_once_are_those_of_each(name: str) -> None:
    statistics = CASES[name].statistics(seed=3)
    for variance, decoder in options_of(CASES[name]):
        table = elbo_costs(statistics, variance=variance, decoder=decoder)
        for schedule in schedules_from(statistics, variance, decoder):
            alone = table.schedule(schedule.steps).standard_error
            # Of the first_pair decoder some paths are known per sample and some per block, so a set is known per block;
            # here blocks are samples, and what differs is the interpolation.
            assert schedule.standard_error == pytest.approx(alone, rel=0.05 if decoder == "first_pair" else 1e-9)


def test_one_sample_has_no_standard_error() -> None:
    case = make_case(ForwardProcess.linear(5), "uint8", samples=1)
    schedule = elbo_costs(case.statistics(0)).schedule((5, 2, 0))
    assert math.isnan(schedule.standard_error or 0.0)
    assert math.isnan(case.direct(schedule, seed=0).standard_error)
    assert math.isnan(score(case.statistics(0), [schedule])[0].standard_error)


def test_samples_that_cost_the_same_have_an_error_of_zero() -> None:
    # Two times the same sample of zeros with a network that is always right: every total is the same number.
    process = ForwardProcess.linear(5)
    denoiser = Denoiser(lambda x, time: torch.zeros_like(x), process, predicts="x0")
    zeros = np.zeros((2, 1, 3))
    statistics = estimate(denoiser, zeros, data_range=("levels", 3, -1.0, 1.0), progress=False)
    [scored] = score(statistics, [even_stride(process, 3)])
    assert scored.standard_error == 0.0


# --- fitted numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_range", ["uint8", "continuous"])
@pytest.mark.parametrize("variance", ["optimal", "learned_optimal"])
def test_scoring_never_refits(data_range: str, variance: Variance) -> None:
    process = ForwardProcess.linear(10)
    fitting, other = (make_case(process, data_range, samples=6, seed=seed) for seed in (1, 2))
    chosen = schedules_from(fitting.statistics(0), variance, "optimal")
    heldout = other.statistics(9)
    refitted = elbo_costs(heldout, variance, "optimal")
    chain = DirectChain(other.denoiser, other.x_0, data_range, seed=9)
    for schedule in chosen:
        [scored] = score(heldout, [schedule])
        direct = other.direct(schedule, seed=9)
        honest = chain.bpd(schedule.steps, variance, "optimal", chosen.fitted)
        assert scored.bpd == pytest.approx(honest, abs=1e-9)
        assert direct.bpd == pytest.approx(honest, abs=1e-9)
        # Fitted on the scored data every step would have cost less.
        flattered = refitted.schedule(schedule.steps).bpd
        assert flattered is not None
        assert flattered < honest


def test_optimal_without_fitted_numbers_is_refused() -> None:
    case = CASES["uint8, linear"]
    stride = even_stride(case.denoiser.process, 4)
    for option in ("variance", "decoder"):
        with pytest.raises(
            ValueError, match=f"{option}='optimal' needs numbers fitted on the data that chose the path"
        ):
            case.direct(stride, seed=0, **{option: "optimal"})
        optimal = dataclasses.replace(stride, options={option: "optimal"})
        with pytest.raises(
            ValueError, match=f"{option}='optimal' needs fitted.*It comes from the data that chose the path"
        ):
            score(case.statistics(0), [optimal])


def test_each_schedule_is_scored_with_its_own_options_and_fitted_numbers() -> None:
    case, other = (
        make_case(ForwardProcess.linear(8), "uint8", seed=1),
        make_case(ForwardProcess.linear(8), "uint8", seed=2),
    )
    heldout = other.statistics(3)
    path = (8, 5, 2, 0)
    schedules = [
        elbo_costs(case.statistics(seed), variance, decoder).schedule(path)
        for seed, variance, decoder in (
            (0, "optimal", "optimal"),
            (1, "optimal", "optimal"),
            (0, "upper", "respaced"),
            (0, "learned_range", "first_pair"),
            (0, "optimal", "upper"),
        )
    ]
    together = [scored.bpd for scored in score(heldout, iter([*schedules, even_stride(heldout.process, 3)]))]
    alone = [score(heldout, [schedule])[0].bpd for schedule in schedules]
    assert together[:5] == alone
    assert len(set(together)) == 6
    # A hand-made stride has no options of its own: the model's variance and the upper decoder.
    plain = elbo_costs(heldout, "learned_range", "upper").schedule(even_stride(heldout.process, 3).steps)
    assert together[5] == pytest.approx(plain.bpd, abs=1e-12)


@pytest.mark.parametrize(("variance", "decoder", "cdf"), [("upper", None, None), (None, "first_pair", "tanh")])
def test_score_takes_the_options_of_the_evaluator(variance: Any, decoder: Any, cdf: Any) -> None:
    """In place of a schedule's own, and with its fitted numbers where they are asked for."""
    case = CASES["uint8, linear"]
    asked = {"variance": variance, "decoder": decoder, "cdf": cdf}
    statistics = case.statistics(3)
    schedules = [
        even_stride(case.denoiser.process, 4),
        elbo_costs(case.statistics(0), "optimal", "optimal").schedule((12, 7, 3, 0)),
    ]
    for schedule, scored in zip(schedules, score(statistics, schedules, **asked), strict=True):
        direct = case.direct(schedule, seed=3, **asked)
        assert scored.bpd == pytest.approx(direct.bpd, abs=1e-9)
        assert scored.options == direct.options
        assert scored.options == {
            "variance": variance or schedule.options.get("variance", "learned_range"),
            "decoder": decoder or schedule.options.get("decoder", "upper"),
            "cdf": cdf or "exact",
        }
    with pytest.raises(ValueError, match="variance must be one of"):
        score(statistics, schedules, variance="small")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs fitted"):
        score(statistics, schedules[:1], variance="optimal")


# --- paths that do not begin at T, and grids inside grids -------------------------------------------------------------


@pytest.mark.parametrize("name", ["uint8, rectified flow", "continuous, rectified flow"])
def test_quadratic_ddim_pays_the_prior_of_its_own_first_step(name: str) -> None:
    case = CASES[name]
    stride = quadratic_ddim_stride(case.denoiser.process, 3)
    assert stride.steps[0] == 8  # of 10; there f = 0.2, so the prior is no longer free
    statistics = case.statistics(3)
    chain = DirectChain(case.denoiser, case.x_0, case.data_range, seed=3)
    prior = chain.prior(8).mean() / (4 * LN2)
    assert prior > 0.01
    direct = case.direct(stride, seed=3)
    [scored] = score(statistics, [stride])
    for likelihood in (direct, scored):
        assert likelihood.bpd == pytest.approx(chain.bpd(stride.steps, "learned_range", "upper"), abs=1e-9)
        assert likelihood.terms["prior"] == pytest.approx(prior, abs=1e-12)
    assert elbo_costs(statistics).schedule(stride.steps).bpd == pytest.approx(direct.bpd, abs=1e-9)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("variance", VARIANCES)
def test_a_schedule_of_a_subset_grid_is_worth_the_same_on_the_full_grid(variance: str, decoder: str) -> None:
    process = ForwardProcess.linear(40)
    case = make_case(process, "uint8")
    thin = case.denoiser.on_grid(process.subset([1, 4, 9, 22, 31, 40]))
    schedules = optimise(thin, case.values, variance=variance, decoder=decoder, progress=False)  # type: ignore[arg-type]
    for schedule in schedules:
        on_thin = bits_per_dim(thin, case.values, schedule, seed=6)
        on_full = bits_per_dim(case.denoiser, case.values, schedule, seed=6)
        assert on_full.bpd == on_thin.bpd  # the same numbers in the same order
        assert on_full.steps == tuple(int(process.origin[int(time)]) for time in schedule.times)


def test_a_schedule_of_another_process_is_refused() -> None:
    case = CASES["uint8, linear"]
    with pytest.raises(
        ValueError,
        match=r"The schedule was made for the process 'cosine'.*of which that is not a subset\. Optimise on this model\.$",
    ):
        case.direct(even_stride(ForwardProcess.cosine(12), 3), seed=0)
    with pytest.raises(ValueError, match=r"estimated on the process 'linear'.*not on 'cosine'.*Estimate them again"):
        score(case.statistics(0), [even_stride(ForwardProcess.cosine(12), 3)])


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


# --- how it is called -------------------------------------------------------------------------------------------------


def test_batch_size_and_sample_count_are_what_they_say() -> None:
    case = CASES["uint8, linear"]
    schedule = even_stride(case.denoiser.process, 4)
    whole = case.direct(schedule, seed=2)
    assert whole.samples == 9
    for batch_size in (1, 4, 100):
        assert case.direct(schedule, seed=2, batch_size=batch_size).bpd == pytest.approx(whole.bpd, abs=1e-12)
    first = bits_per_dim(case.denoiser, case.values[:5], schedule, seed=2)
    assert case.direct(schedule, seed=2, samples=5).bpd == first.bpd
    assert case.direct(schedule, seed=3).bpd != whole.bpd


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
        ({"batch_size": -1}, "batch_size must be a whole number of at least 1, not -1"),
        ({"batch_size": 2.5}, r"batch_size must be a whole number of at least 1, not 2\.5"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 1.0}, "seed must be a whole number from 0"),
        ({"variance": "huge"}, "variance must be one of .*not 'huge'"),
        ({"decoder": "huge"}, "decoder must be one of .*not 'huge'"),
        ({"cdf": "erf"}, "cdf must be one of .*not 'erf'"),
        ({"variance": "learned_range"}, "a model without a learned variance"),
        ({"decoder": "optimal"}, "needs numbers fitted"),
        ({"samples": 100}, "samples = 100, but the data has only 9"),
        ({"data_range": "int8"}, "data_range must be 'uint8'"),
    ],
)
def test_bad_arguments_are_refused_before_the_network_runs(options: dict[str, Any], message: str) -> None:
    calls = 0

    def network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x

    process = ForwardProcess.linear(6)
    arguments = {"seed": 0, **options}
    with pytest.raises(ValueError, match=message):
        bits_per_dim(Denoiser(network, process), CASES["uint8, linear"].values, even_stride(process, 3), **arguments)
    assert calls == 0


def test_conditioning_reaches_the_network_with_its_sample() -> None:
    process = ForwardProcess.linear(5)
    values = CASES["uint8, linear"].values
    labels = torch.arange(9)

    def network(x: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        # The answer is right only if sample i comes with label i.
        return torch.as_tensor(values / 127.5 - 1.0)[label] + 0.0 * x

    denoiser = Denoiser(network, process, predicts="x0")
    found = bits_per_dim(denoiser, (values, labels), even_stride(process, 3), seed=0, batch_size=4)
    assert found.terms["steps"] == (0.0, 0.0)
    with pytest.raises(ValueError, match="one entry per sample: 9 samples, but 8 entries"):
        bits_per_dim(denoiser, (values, labels[:8]), even_stride(process, 3))


def test_fitted_numbers_of_a_hand_made_schedule_are_used() -> None:
    # p's variance is g̃² + b² m_fit whatever the data say: with m_fit = 0 `optimal` is `posterior`.
    case = CASES["uint8, linear"]
    zero = Schedule(case.denoiser.process, (12, 6, 2, 0), fitted=Fitted(np.zeros(13), None))
    assert case.direct(zero, seed=0, variance="optimal").bpd == pytest.approx(
        case.direct(zero, seed=0, variance="posterior").bpd, rel=1e-12
    )
