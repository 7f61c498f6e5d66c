"""Statistics from few counts: as good as the tolerance says, resumed, and every count where there are few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import dpstride
from dpstride import MaskedProcess, MaskedStatistics
from dpstride.masked.adaptive import ALL, first_counts, gap_errors, next_counts

N, IDS = 64, 20


def topics(calls: list[int] | None = None) -> tuple[dpstride.MaskedDenoiser, np.ndarray]:
    """Eight topics with letters of their own, and their exact conditionals."""
    rng = np.random.default_rng(0)
    p = torch.tensor(rng.dirichlet(np.full(IDS, 0.2), 8))
    texts = np.stack([rng.choice(IDS, N, p=p[rng.integers(8)]) for _ in range(96)])

    def network(tokens: torch.Tensor) -> torch.Tensor:
        if calls is not None:
            calls.append(len(tokens))
        logs = torch.cat([p.clamp(min=1e-12), torch.ones(8, 1)], dim=1).log()
        posterior = logs[:, tokens].sum(dim=2).softmax(dim=0)
        return (posterior.T @ p).clamp(min=1e-12).log()[:, None].expand(-1, N, -1)

    return dpstride.MaskedDenoiser(network, IDS, IDS, N), texts


def by_formula(c: Callable[[np.ndarray], np.ndarray], counts: list[int], length: int = 256) -> MaskedStatistics:
    process = MaskedProcess(length, counts)
    nats = np.repeat(c(process.counts / length)[:, None], 3, axis=1)
    nats[0] = 0.0
    return MaskedStatistics(process, nats, np.full(3, length), np.arange(3))


@pytest.mark.parametrize(
    "c", [lambda x: 1.0 + x**8, lambda x: np.exp(4.0 * (x - 1.0)), lambda x: 2.0 + 0.0 * x, lambda x: x * (1.5 - x)]
)
@pytest.mark.parametrize("tolerance", [0.03, 0.003])
def test_the_curve_is_followed_within_the_tolerance(c: Callable[[np.ndarray], np.ndarray], tolerance: float) -> None:
    """Noise-free c_t, one that falls at the noise end too: no count is off by more, and refinement ends."""
    counts = first_counts(256)
    for _ in range(20):
        found = by_formula(c, sorted(counts))
        if not (more := next_counts(found, tolerance)):
            break
        assert not more & counts
        counts |= more
    assert len(counts) < 80
    off = np.abs(found.filled().nats[1:, 0] - c(np.arange(1, 257) / 256)) / np.log(2.0)
    assert off[15:].max() <= 1.2 * tolerance  # the estimate is asymptotic
    assert off[:15].max() <= 0.03  # where nothing is evaluated


def test_errors_are_those_of_a_parabola() -> None:
    """Of c = κ t²/2 a line over a gap g is off by κ g²/8 in its middle, here with counts 64 apart."""
    found = by_formula(lambda x: x**2, [64, 128, 192, 256])
    kappa = 2.0 / 256**2
    assert gap_errors(found) == pytest.approx(
        {gap: kappa * 64**2 / (8 * np.log(2.0)) for gap in ((64, 128), (128, 192), (192, 256))}
    )


def test_few_passes_give_schedules_as_good(tmp_path: Path) -> None:
    calls: list[int] = []
    model, texts = topics(calls)
    file = tmp_path / "a.safetensors"
    few = dpstride.estimate_masked_adaptively(model, texts[:48], progress=False, checkpoint=file)
    spent = sum(calls)
    assert few.evaluated is not None
    assert spent < 0.6 * N * 48
    assert MaskedStatistics.load(file).process.counts[1:].tolist() == few.evaluated.tolist()
    every = dpstride.estimate_masked(model, texts[:48], progress=False)
    assert few.nats[few.evaluated] == pytest.approx(every.nats[few.evaluated], abs=1e-12)  # the same masks
    heldout = dpstride.estimate_masked(model, texts[48:], seed=1, progress=False)
    for K in (2, 4, 8):
        scores = [dpstride.score_masked(heldout, dpstride.masked_schedules(each)[K])[0] for each in (few, every)]
        assert scores[0] <= scores[1] + 0.03
    with pytest.raises(ValueError, match="Only evaluated counts can be saved"):
        few.save(tmp_path / "b.safetensors")


def test_it_goes_on_from_its_file_and_ends_as_if_undisturbed(tmp_path: Path) -> None:
    calls: list[int] = []
    model, texts = topics(calls)
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    estimation = {"progress": False, "tolerance": 0.002}
    dpstride.estimate_masked_adaptively(model, texts[:32], checkpoint=whole, **estimation)
    first = sorted(first_counts(N))
    dpstride.estimate_masked(
        model, texts[:32], counts=first, checkpoint=parts, progress=False
    )  # stopped after the first
    calls.clear()
    dpstride.estimate_masked_adaptively(model, texts[:32], checkpoint=parts, **estimation)
    assert parts.read_bytes() == whole.read_bytes()
    calls.clear()
    dpstride.estimate_masked_adaptively(model, texts[:32], checkpoint=parts, **estimation)
    assert sum(calls) < 2 * 32  # probes alone
    assert parts.read_bytes() == whole.read_bytes()


def test_below_the_first_count_the_line_goes_on_down_to_0() -> None:
    line = by_formula(lambda x: 0.5 + x, [16, 20, 100, 256]).filled()
    assert line.nats[1:, 0] == pytest.approx(0.5 + np.arange(1, 257) / 256)
    steep = by_formula(lambda x: np.maximum(x - 0.05, 0.0), [16, 32, 256]).filled()
    assert steep.nats.min() == 0.0
    assert by_formula(lambda x: 1.0 + x, [200, 256]).filled().nats[1:, 0] == pytest.approx(
        1.0 + np.arange(1, 257) / 256
    )
    assert by_formula(lambda x: 1.0 + x, [256]).filled().nats[1:] == pytest.approx(2.0)
    assert by_formula(lambda x: 1.0 + x, list(range(1, 257))).filled().evaluated is None


def test_few_tokens_are_all_evaluated() -> None:
    assert first_counts(ALL) == set(range(1, ALL + 1))
    assert first_counts(33) == {33, 32, 31, 29, 25, 17, 2}
    with pytest.raises(ValueError, match="tolerance must be above 0"):
        dpstride.estimate_masked_adaptively(*topics(), tolerance=0.0)
