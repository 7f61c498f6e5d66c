"""Statistics of masked tokens: the same whatever the batches, kept, resumed, refused for other work; files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from joints import JOINTS, Joint, markov
from torch import Tensor

import dpstride
from dpstride import MaskedDenoiser, MaskedStatistics, StatisticsFileError, Tokens
from dpstride.runs.identity import OtherWorkError


@pytest.mark.parametrize("name", JOINTS)
def test_the_mean_is_c_by_its_definition(name: str) -> None:
    joint: Joint = JOINTS[name]()
    statistics = dpstride.estimate_masked(joint.denoiser(), joint.draw(400), batch_size=800, progress=False)
    errors = statistics.nats.std(axis=1, ddof=1) / math.sqrt(400)
    assert (np.abs(statistics.mean_nats - joint.c())[1:] < 5 * errors[1:] + 1e-12).all()


def test_no_number_depends_on_batches_or_counts() -> None:
    joint = markov()
    data = joint.draw(7)
    whole = dpstride.estimate_masked(joint.denoiser(), data, progress=False)
    for batch_size in (1, 3):
        other = dpstride.estimate_masked(joint.denoiser(), data, batch_size=batch_size, progress=False)
        np.testing.assert_allclose(other.nats, whole.nats, rtol=1e-12)
    some = dpstride.estimate_masked(joint.denoiser(), data, counts=[2, 6], progress=False)
    np.testing.assert_allclose(some.nats, whole.nats[[0, 2, 6]], rtol=1e-12)
    assert not np.array_equal(dpstride.estimate_masked(joint.denoiser(), data, seed=1, progress=False).nats, whole.nats)


def test_what_is_masked_of_a_sample_grows_with_the_count() -> None:
    joint, seen = markov(), []

    def network(tokens: Tensor) -> Tensor:
        seen.extend((row == joint.vocabulary).nonzero().flatten().tolist() for row in tokens)
        return joint.network()(tokens)

    denoiser = MaskedDenoiser(network, joint.vocabulary, joint.vocabulary, joint.n)
    dpstride.estimate_masked(denoiser, joint.draw(3), batch_size=1, progress=False)
    masks = [{*places} for places in seen]
    assert max(map(len, masks)) == joint.n
    for size in range(1, joint.n):
        for smaller in (each for each in masks if len(each) == size):
            assert any(smaller < other for other in masks if len(other) == size + 1)
    assert len({frozenset(each) for each in masks if len(each) == 3}) > 1  # samples have orders of their own


class Stopping:
    """A network that fails after some calls; it counts the samples that it was given."""

    def __init__(self, joint: Joint, calls: int) -> None:
        self.network, self.calls, self.samples = joint.network(), calls, 0

    def __call__(self, tokens: Tensor) -> Tensor:
        if self.calls == 0:
            raise KeyboardInterrupt
        self.calls -= 1
        self.samples += len(tokens)
        return self.network(tokens)


def test_work_goes_on_where_it_stopped(tmp_path: Path) -> None:
    joint = markov()
    data, path = joint.draw(8), tmp_path / "statistics"
    whole = dpstride.estimate_masked(joint.denoiser(), data, batch_size=2, progress=False)
    stopping = MaskedDenoiser(Stopping(joint, 30), 3, 3, 6)
    with pytest.raises(KeyboardInterrupt):
        dpstride.estimate_masked(stopping, data, batch_size=2, progress=False, checkpoint=path)
    assert not path.exists()
    counting = Stopping(joint, 10**6)
    resumed = dpstride.estimate_masked(
        MaskedDenoiser(counting, 3, 3, 6), data, batch_size=2, progress=False, checkpoint=path
    )
    assert np.array_equal(resumed.nats, whole.nats)
    assert counting.samples < 8 * 6 + 29  # the rest, the probes twice, and 16 places
    assert not path.with_name("statistics.progress").exists()
    assert np.array_equal(MaskedStatistics.load(path).nats, whole.nats)


def test_rows_of_a_file_are_taken_over_and_other_work_is_refused(tmp_path: Path) -> None:
    joint = markov()
    data, path = joint.draw(8), tmp_path / "statistics"
    dpstride.estimate_masked(joint.denoiser(), data, counts=[1, 3, 6], progress=False, checkpoint=path)
    counting = Stopping(joint, 10**6)
    found = dpstride.estimate_masked(MaskedDenoiser(counting, 3, 3, 6), data, progress=False, checkpoint=path)
    assert counting.samples <= 8 * 3 + 33 + 16 + 2 + 4
    assert np.array_equal(found.nats, dpstride.estimate_masked(joint.denoiser(), data, progress=False).nats)
    with pytest.raises(OtherWorkError, match="seed"):
        dpstride.estimate_masked(joint.denoiser(), data, seed=1, progress=False, checkpoint=path)
    with pytest.raises(OtherWorkError, match=r"data\.fingerprint"):
        dpstride.estimate_masked(joint.denoiser(), data[::-1], progress=False, checkpoint=path)
    edited = MaskedDenoiser(lambda tokens: 1.1 * counting.network(tokens), 3, 3, 6)
    with pytest.raises(
        OtherWorkError, match=r"holds (other work|work of a model that behaves (otherwise|differently))"
    ):
        dpstride.estimate_masked(edited, data, progress=False, checkpoint=path)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    joint = markov()
    path = tmp_path / "statistics"
    statistics = dpstride.estimate_masked(joint.denoiser(), joint.draw(2), progress=False, checkpoint=path)
    content = path.read_bytes()
    for damaged in (content[:-9], content[:-1] + bytes([content[-1] ^ 1]), b"", content[:40]):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(StatisticsFileError, match="damaged"):
            MaskedStatistics.load(tmp_path / "damaged")
    with pytest.raises(StatisticsFileError, match="damaged"):
        MaskedStatistics.load(tmp_path / "none")
    with pytest.raises(StatisticsFileError, match="it is not a statistics file"):
        dpstride.Statistics.load(path)
    wrong = MaskedStatistics(statistics.process, -1.0 + statistics.nats * 0.0, statistics.sizes, statistics.sequence)
    wrong.save(tmp_path / "wrong")
    with pytest.raises(StatisticsFileError, match="finite and not negative"):
        MaskedStatistics.load(tmp_path / "wrong")


def test_short_sequences_have_the_same_share_masked() -> None:
    def counting(tokens: Tensor) -> Tensor:
        """−ln p of any token is the number of masks, so that the statistics tell it: ln 2 would be 1 mask."""
        masked = (tokens == 9).sum(dim=1).double()
        logits = torch.zeros(*tokens.shape, 10, dtype=torch.float64)
        logits[..., 1] = -torch.log(torch.expm1(masked))[:, None]
        logits[..., 2:] = -torch.inf
        return logits

    model = MaskedDenoiser(counting, 10, 9, 5, pad_token=8)
    found = dpstride.estimate_masked(model, Tokens.of([[1] * 5, [1] * 3, [1]]), progress=False)
    expected = [[0, 0, 0], [1, 1, 0], [2, 1, 0], [3, 2, 1], [4, 2, 1], [5, 3, 1]]
    np.testing.assert_allclose(found.nats, expected, atol=1e-9)
    assert found.masked_counts().tolist() == expected
