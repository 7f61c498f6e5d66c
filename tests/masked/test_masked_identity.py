"""Networks of tokens that are edited between runs, or are no function of each sample: what probes miss, the places find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from joints import markov
from torch import Tensor

import dpstride
from dpstride import MaskedDenoiser, MaskedStatistics, StatisticsFileError
from dpstride.masked.costs import score_masked
from dpstride.masked.spots import draw
from dpstride.runs.identity import OtherWorkError

JOINT = markov()
DATA = JOINT.draw(12)
PROBED = (1, 2, 4, 6)  # numbers of masked tokens that the probes have, of 6
ELSEWHERE = (
    r"holds work of a model that behaves differently: recomputed, with (3|5) masked tokens the mean −ln p of sample \d+ is "
    r"\S+ and not \S+, where rounding may change it by \S+ \(float\d+\), although its weights and its outputs on the probes are"
)
Network = Callable[[Tensor], Tensor]


def estimate(network: Network, path: Path | None = None, batch_size: int = 12) -> MaskedStatistics:
    denoiser = MaskedDenoiser(network, 3, 3, 6)
    return dpstride.estimate_masked(denoiser, DATA, batch_size=batch_size, progress=False, checkpoint=path)


def honest(tokens: Tensor) -> Tensor:
    return JOINT.network()(tokens)


def sparing(tokens: Tensor) -> Tensor:
    """Other logits wherever the probes do not look."""
    logits = honest(tokens)
    probed = torch.isin((tokens == 3).sum(dim=1), torch.tensor(PROBED))
    return torch.where(probed[:, None, None], logits, 1.05 * logits)


def nowhere(tokens: Tensor) -> Tensor:
    return torch.where(honest(tokens) == sparing(tokens), honest(tokens), torch.nan)


@pytest.mark.attack("edited models on resume, reuse and in workers")
@pytest.mark.parametrize("edited", [sparing, nowhere])
def test_an_edit_that_spares_the_probes_is_found_in_rows_that_are_taken_over(edited: Network, tmp_path: Path) -> None:
    calls = [0]

    def stopping(tokens: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] == 60:
            raise KeyboardInterrupt
        return honest(tokens)

    begun, done = tmp_path / "begun", tmp_path / "done"
    with pytest.raises(KeyboardInterrupt):
        estimate(stopping, begun, batch_size=1)
    whole = estimate(honest, done)
    for path in (begun, done):
        with pytest.raises(OtherWorkError, match=ELSEWHERE):
            estimate(edited, path)
    for batch_size in (1, 5, 12):  # the network as it was goes on
        np.testing.assert_allclose(estimate(honest, done, batch_size).nats, whole.nats, rtol=1e-12)
    np.testing.assert_allclose(estimate(honest, begun).nats, whole.nats, rtol=1e-12)


@pytest.mark.attack("networks that misbehave quietly")
def test_a_network_that_changes_while_it_works_is_refused_and_nothing_kept(tmp_path: Path) -> None:
    seen = [0]

    def tiring(tokens: Tensor) -> Tensor:
        seen[0] += len(tokens)
        return honest(tokens) * (1.1 if seen[0] > 90 else 1.0)

    with pytest.raises(ValueError, match=r"The network changed during the work"):
        estimate(tiring, tmp_path / "statistics")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.attack("networks that misbehave quietly")
def test_what_a_network_does_in_large_batches_only_is_found() -> None:
    def centred(tokens: Tensor) -> Tensor:
        logits = honest(tokens)
        return logits - 0.3 * logits.mean(dim=0) if len(tokens) > 8 else logits

    with pytest.raises(
        ValueError,
        match=r"different output in a batch of up to 12 than for the sample alone.*: alone, with \d masked tokens",
    ):
        estimate(centred)


def test_every_known_place_can_be_drawn_and_no_other() -> None:
    known = np.zeros((6, 5), dtype=bool)
    known[2, 1:3] = known[4, 4] = known[5] = True
    drawn = {place for _ in range(100) for place in zip(*map(list, draw(known, 4)), strict=True)}
    assert drawn == set(zip(*map(list, np.nonzero(known)), strict=True))


@pytest.mark.attack("files that take memory, time or other files")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": 2**62}, r"sizes must be whole numbers from 1 to 2,147,483,648"),
        ({"nats": 1e308}, r"costs must be finite and not negative, and at most 1e\+100 nats"),
    ],
)
def test_statistics_whose_numbers_overflow_are_refused(change: dict[str, float], message: str, tmp_path: Path) -> None:
    found = estimate(honest)
    replace(found, **{name: getattr(found, name) * 0 + value for name, value in change.items()}).save(
        tmp_path / "made up"
    )
    with pytest.raises(StatisticsFileError, match=message):
        MaskedStatistics.load(tmp_path / "made up")


@pytest.mark.attack("files that take memory, time or other files")
@pytest.mark.parametrize("number", [2**60, -(2**60)])
def test_numbers_of_sequences_take_no_memory(number: int) -> None:
    found = estimate(honest)
    schedules = dpstride.masked_schedules(found)
    same = score_masked(found, schedules[3])
    assert score_masked(replace(found, sequence=found.sequence + number), schedules[3]) == same
