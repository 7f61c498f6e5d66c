"""Scores take the options and fitted numbers of their schedules, and refuse what does not fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from likelihood_cases import CASES, DECODERS, VARIANCES, make_case

from dpstride import (
    Denoiser,
    ForwardProcess,
    Schedule,
    bits_per_dim,
    elbo_costs,
    even_stride,
    optimise,
    quadratic_ddim_stride,
    schedules_from,
    score,
)
from dpstride.fitted import Fitted
from dpstride.options import Variance
from gaussian import LN2, DirectChain

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
        match=r"The schedule was made for the process 'cosine'.*which is not a subset of this model's process 'linear'"
        r".*\. Optimise on this model\.$",
    ):
        case.direct(even_stride(ForwardProcess.cosine(12), 3), seed=0)
    with pytest.raises(ValueError, match=r"estimated on the process 'linear'.*not on 'cosine'.*Estimate them again"):
        score(case.statistics(0), [even_stride(ForwardProcess.cosine(12), 3)])


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
        ({"variance": "learned_range"}, "needs a model with a learned variance"),
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
