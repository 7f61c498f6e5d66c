"""Following a chain and the costs of its rounds are two roads to one number; samples follow the law."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from joints import JOINTS, Joint, markov, topics

import dpstride
from dpstride import BinomialSchedule, MaskedDenoiser, MaskedSchedule, Tokens
from dpstride.options import ORDERS

SCHEDULES = [
    MaskedSchedule(6, (6, 0)),
    MaskedSchedule(6, (6, 4, 1, 0)),
    MaskedSchedule(6, (6, 5, 4, 3, 2, 1, 0)),
    BinomialSchedule((1.0, 0.6, 0.2, 0.0)),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: f"{schedule.budget}")
@pytest.mark.parametrize("name", JOINTS)
def test_direct_evaluation_agrees_with_the_table(name: str, schedule: MaskedSchedule | BinomialSchedule) -> None:
    joint: Joint = JOINTS[name]()
    exact = dpstride.MaskedStatistics(dpstride.MaskedProcess(6), joint.c()[:, None], np.array([6]), np.array([0]))
    found = dpstride.bits_per_token(joint.denoiser(), joint.draw(1000, seed=3), schedule, batch_size=1000)
    assert abs(found.bits - dpstride.score_masked(exact, schedule)[0]) < 5 * found.standard_error + 1e-12
    assert sum(found.rounds) == pytest.approx(found.bits)
    assert len(found.rounds) == schedule.budget


def test_one_token_at_a_time_is_the_data_s_own_probability() -> None:
    """With exact conditionals every order gives −ln p(x) itself, so there is no noise but that of the data."""
    joint = topics()
    data = joint.draw(20)
    powers = 3 ** np.arange(5, -1, -1)
    nats = -np.log(joint.probabilities[data @ powers])
    found = dpstride.bits_per_token(joint.denoiser(), data, dpstride.even_unmasking(6, 6))
    assert found.bits * 6 * math.log(2.0) == pytest.approx(nats.mean(), rel=1e-10)
    assert found.standard_error * 6 * math.log(2.0) == pytest.approx(nats.std(ddof=1) / math.sqrt(20), rel=1e-10)


def test_direct_evaluation_does_not_depend_on_batches() -> None:
    joint = markov()
    data, schedule = joint.draw(7), SCHEDULES[1]
    one = dpstride.bits_per_token(joint.denoiser(), data, schedule, batch_size=7)
    two = dpstride.bits_per_token(joint.denoiser(), data, schedule, batch_size=2)
    assert one.bits == pytest.approx(two.bits, rel=1e-12)
    assert dpstride.bits_per_token(joint.denoiser(), data, schedule, seed=2).bits != one.bits


def test_unequal_lengths_and_blocks_agree_with_their_table() -> None:
    """A network that pays for each masked token by how many are masked: both roads are free of noise."""

    def counting(tokens: torch.Tensor) -> torch.Tensor:
        masked = (tokens == 9).sum(dim=1).double()
        logits = torch.full((*tokens.shape, 10), -torch.inf, dtype=torch.float64)
        logits[..., 0], logits[..., 1] = 0.0, -torch.log(torch.expm1(masked))[:, None]
        return logits

    model = MaskedDenoiser(counting, 10, 9, 8, pad_token=8)
    tokens = Tokens.of([[1] * 8, [1] * 5, [1] * 3], prefixes=[0, 1, 0])
    for data in (tokens, tokens.blocks(3)):
        statistics = dpstride.estimate_masked(model, data, progress=False)
        for schedule in dpstride.masked_schedules(statistics):
            found = dpstride.bits_per_token(model, data, schedule)
            assert found.bits == pytest.approx(schedule.bits, rel=1e-12)
            assert found.standard_error == pytest.approx(schedule.standard_error, rel=1e-9)


def law_of(samples: torch.Tensor, joint: Joint) -> np.ndarray:
    keys = samples.numpy() @ joint.vocabulary ** np.arange(joint.n - 1, -1, -1)
    return np.bincount(keys, minlength=len(joint.sequences))


def assert_follows(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Pearson's statistic lies within 5 deviations of its mean, which is the number of cells less one."""
    expected = counts.sum() * probabilities
    common = expected >= 5.0
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    statistic = float(((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum())
    cells = len(observed) - 1
    assert abs(statistic - cells) < 5 * math.sqrt(2 * cells)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["markov", "topics"])
def test_one_token_at_a_time_follows_the_law_in_every_order_that_does_not_look_at_the_token(
    name: str, order: str
) -> None:
    """An order may look at the distributions of masked tokens; one that looks at the drawn value prefers likely ones."""
    joint: Joint = JOINTS[name](4)
    samples = dpstride.sample_masked(
        joint.denoiser(), dpstride.even_unmasking(4, 4), 3000, order=order, batch_size=3000
    )
    if order == "confidence":
        with pytest.raises(AssertionError):
            assert_follows(law_of(samples, joint), joint.probabilities)
    else:
        assert_follows(law_of(samples, joint), joint.probabilities)


def test_one_round_follows_the_product_of_marginals() -> None:
    joint = markov(4)
    samples = dpstride.sample_masked(joint.denoiser(), dpstride.even_unmasking(4, 1), 3000, batch_size=3000)
    marginals = [np.bincount(joint.sequences[:, place], joint.probabilities) for place in range(4)]
    product = np.prod([marginals[place][joint.sequences[:, place]] for place in range(4)], axis=0)
    assert_follows(law_of(samples, joint), product)


def test_two_rounds_follow_the_mixture_over_first_sets() -> None:
    """Fixed and binomial numbers: the law is added up over every set that the first round may reveal."""
    joint = markov(4)

    def after(revealed: tuple[int, ...]) -> np.ndarray:
        rest = tuple(place for place in range(4) if place not in revealed)
        found = np.ones(len(joint.sequences))
        for group, known in ((revealed, ()), (rest, revealed)):
            for place in group:
                found *= conditional(joint, place, known)
        return found

    fixed = np.mean([after(revealed) for revealed in itertools.combinations(range(4), 1)], axis=0)
    samples = dpstride.sample_masked(joint.denoiser(), MaskedSchedule(4, (4, 3, 0)), 3000, batch_size=3000)
    assert_follows(law_of(samples, joint), fixed)
    binomial = sum(
        0.3**count * 0.7 ** (4 - count) * after(revealed)
        for count in range(5)
        for revealed in itertools.combinations(range(4), count)
    )
    samples = dpstride.sample_masked(joint.denoiser(), BinomialSchedule((1.0, 0.7, 0.0)), 3000, batch_size=3000)
    assert_follows(law_of(samples, joint), binomial)


def conditional(joint: Joint, place: int, known: tuple[int, ...]) -> np.ndarray:
    """p(x_place given x_known) of every sequence."""
    same = (joint.sequences[:, None, list(known)] == joint.sequences[None, :, list(known)]).all(axis=2)
    both = same & (joint.sequences[:, None, place] == joint.sequences[None, :, place])
    return np.asarray((both @ joint.probabilities) / (same @ joint.probabilities))


def test_samples_do_not_depend_on_batches() -> None:
    joint, schedule = markov(), SCHEDULES[1]
    for order in ORDERS:
        one = dpstride.sample_masked(joint.denoiser(), schedule, 5, order=order)
        assert torch.equal(one, dpstride.sample_masked(joint.denoiser(), schedule, 5, order=order, batch_size=2))
    assert not torch.equal(one, dpstride.sample_masked(joint.denoiser(), schedule, 5, order=order, seed=1))


def test_prompts_are_kept_and_lengths_and_blocks_are_filled() -> None:
    joint = markov()
    prompts = Tokens.of(np.array([[2, 2, 0, 0, 0, 0]] * 40), prefixes=2)
    found = dpstride.sample_masked(joint.denoiser(), dpstride.even_unmasking(2, 2), prompts=prompts, block=2)
    assert (found[:, :2] == 2).all()
    assert int(found.max()) < 3
    assert (found[:, 2] == 2).float().mean() > 0.3  # the first letter after 2 is seldom another
    model = MaskedDenoiser(lambda tokens: torch.zeros(*tokens.shape, 10), 10, 9, 5, pad_token=8)
    mixed = Tokens.of([[0] * 5, [0] * 2])
    assert dpstride.sample_masked(model, dpstride.even_unmasking(5, 2), prompts=mixed)[1, 2:].tolist() == [8, 8, 8]


def test_no_temperature_takes_the_likeliest() -> None:
    joint = topics()
    prompts = Tokens.of(np.array([[1, 1, 1, 1, 0, 0]]), prefixes=4)
    found = dpstride.sample_masked(joint.denoiser(), dpstride.even_unmasking(2, 1), prompts=prompts, temperature=0.0)
    assert found.tolist() == [[1] * 6]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"order": "best"}, "order must be one of 'random', 'confidence', 'margin', 'entropy'"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"schedule": BinomialSchedule((1.0, 0.0)), "order": "margin"}, "needs order='random', not 'margin'"),
        ({"n": 0}, "n must be a whole number of samples"),
        ({"block": 0}, "block must be a whole number of tokens"),
    ],
)
def test_impossible_requests_are_refused(options: dict[str, object], message: str) -> None:
    asked = {"schedule": SCHEDULES[1], "n": 2, **options}
    with pytest.raises(ValueError, match=message):
        dpstride.sample_masked(markov().denoiser(), **asked)  # type: ignore[arg-type]
