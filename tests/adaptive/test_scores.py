"""Scores from few evaluated times beside those of every time, on the same samples with the same noise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstride
from dpstride import ForwardProcess, Statistics, elbo_costs, even_stride, quadratic_stride, solve
from dpstride.adaptive.loop import opening_steps
from dpstride.adaptive.scores import MOST, ScoreJudge, most_indices, next_indices, refine_scores
from dpstride.evaluate.comparison import STRIDES, Comparison, compare
from dpstride.objectives.elbo import check_options
from dpstride.statistics.artefact import DataRange
from dpstride.statistics.coordinate import noise_coordinate
from dpstride.statistics.interpolate import fill
from dpstride.zoo.mixture import mixture_data, mixture_denoiser
from flawed import LAWS, Flawed
from gaussian import LN2, Array

VARIANCES = np.repeat(0.3 * np.array([1.0, 0.3, 0.1, 0.03, 0.01]), 6)
BUDGETS = (4, 8, 16, 32)
CASES = [
    ("linear", "eps", None, "uint8"),
    ("cosine", "eps", (-1.0, 1.0), "uint8"),
    ("cosine", "x0", None, "continuous"),
    ("zero terminal", "v", (-1.0, 1.0), "uint8"),
    ("rectified flow", "flow", None, "continuous"),
    ("kinked", "x0", (-1.0, 1.0), "uint8"),
    ("jumping", "eps", None, "continuous"),
]


@pytest.fixture(autouse=True)
def fewer_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for the spread of a level."""
    monkeypatch.setattr("dpstride.adaptive.regret.REPLICATES", 60)


def paths_of(statistics: Statistics) -> list[tuple[int, ...]]:
    """The best paths and hand-made ones."""
    solution, process = solve(elbo_costs(statistics)), statistics.process
    strides = [stride(process, K).steps for stride in (even_stride, quadratic_stride) for K in BUDGETS]
    return [tuple(solution.path(K)) for K in (*BUDGETS, process.T)] + strides


def differences(sparse: Statistics, every: Statistics, paths: Any, **options: Any) -> Array:
    """Bits/dim of paths by a few evaluated times less those by every time."""
    few, all_ = elbo_costs(sparse, **options), elbo_costs(every, **options)
    return np.array([few.cost(path) - all_.cost(path) for path in paths]) / (every.dims * LN2)


def scored(case: tuple[Any, ...], seed: int) -> tuple[Array, Array, Array]:
    """Differences from the scores of every time, what was stated of them, and the errors by what samples differ in."""
    law, predicts, clip, data = case
    model = Flawed(LAWS[law](120), predicts, clip, DataRange.parse(data), VARIANCES)
    choosing, every = model.drawn(32, 2 * seed), model.drawn(32, 2 * seed + 1)
    options = check_options(model.process, "posterior", None)
    square = float(choosing.data_square.mean())
    along = noise_coordinate(model.process, square, predicts)
    first = opening_steps(model.process, noise_coordinate(model.process, square), along, 120).tolist()
    paths = paths_of(choosing)
    sparse = refine_scores(lambda steps: every, lambda steps: every, paths, options, fitted=None, first=first, limit=32)
    assert sparse.evaluated.sum() <= 32
    judge = ScoreJudge(every, sparse.evaluated, options)
    return differences(sparse, every, paths), judge.interpolation(paths), judge.standard_errors(paths)


def test_the_score_of_every_time_lies_within_what_interpolation_alone_states() -> None:
    """Seven laws and networks, two draws of each: 95% are stated, and what is stated is no more than the samples' own error."""
    found = [scored(case, seed) for case in CASES for seed in range(2)]
    inside = [np.abs(difference) <= 1.96 * stated for difference, stated, _ in found]
    assert np.mean(inside) >= 0.9
    assert np.mean([(stated <= 0.5 * error).mean() for _, stated, error in found]) > 0.75
    # Not by stating too much: differences are of the size that is stated.
    assert np.median([np.abs(difference).sum() / stated.sum() for difference, stated, _ in found]) > 0.2


@pytest.mark.parametrize("variance", ["learned_range", "learned_optimal", "optimal"])
@pytest.mark.parametrize("decoder", ["upper", "optimal", "respaced"])
def test_every_option_has_an_uncertainty(variance: str, decoder: str) -> None:
    from test_interpolate import learned_statistics, spread

    every = learned_statistics(ForwardProcess.linear(40))
    mask = spread(every, 14)
    options = check_options(every.process, "learned_range", variance, decoder)
    fitted = elbo_costs(every, options.variance, options.decoder).fitted
    judge = ScoreJudge(every, mask, options, fitted)
    paths = [even_stride(every.process, K).steps for K in (3, 8, 40)]
    stated = judge.interpolation(paths)
    given = {"variance": variance, "decoder": decoder, "fitted": fitted}
    difference = differences(fill(every, mask), every, paths, **given)
    assert (stated > 0.0).all()
    assert (np.abs(difference) < 3.0 * stated).all()


def test_rows_that_were_evaluated_have_nothing_to_interpolate() -> None:
    model = Flawed(LAWS["linear"](30), "eps", None, DataRange.parse("uint8"), VARIANCES)
    every = model.drawn(16, 0)
    options = check_options(model.process, "posterior", None)
    mask = np.ones(31, dtype=bool)
    mask[[9, 20]] = False
    judge = ScoreJudge(every, mask, options)
    around, through = (30, 25, 12, 3, 0), (30, 20, 9, 0)
    stated = judge.interpolation([around, through])
    assert stated[0] == 0.0
    assert stated[1] > 0.0


def test_as_many_times_as_there_are_gaps_can_be_asked_for() -> None:
    """The first evaluated time has a gap on one side alone; its noise is no reason to look below it."""
    model = Flawed(LAWS["linear"](60), "eps", None, DataRange.parse("uint8"), VARIANCES)
    every = model.drawn(6, 0)
    known = [1, 20, 40, 60]
    judge = ScoreJudge(every, np.isin(np.arange(61), known), check_options(model.process, "posterior", None))
    paths = [np.asarray(path) for path in paths_of(every)]
    ends = judge.uncertainty(paths).ends
    assert (ends[:, 0] == 0.0).all()
    assert next_indices(judge, paths, len(known)).size > 0


def test_noise_that_is_stated_is_the_noise_that_there_is() -> None:
    """A flat error, known exactly, and noise of 10% in every sample's row: the closed form of what a mean of rows misses."""
    process, samples = ForwardProcess.linear(40), 400
    rng = np.random.default_rng(0)
    squared = np.append(np.zeros((1, samples)), 1.0 + 0.1 * rng.standard_normal((40, samples)), axis=0)
    every = Statistics(
        process=process, dims=4, data_range=DataRange.parse("continuous"), seed=0,
        model={"name": "flat", "variance": "posterior", "predicts": "x0"}, data={"samples": samples},
        squared_error=squared, data_square=np.full(samples, 4.0), decoder_upper=None,
    )  # fmt: skip
    options = check_options(process, "posterior", None)
    mask = np.isin(np.arange(41), [1, *range(4, 40, 4), 40])
    path = (40, 22, 8, 4, 0)  # one row is filled in, half way between two by index
    cost = elbo_costs(replace(every, squared_error=np.ones((41, 1)), data_square=np.ones(1), data={"samples": 1}))
    w = ScoreJudge(every, mask, options).place.weight[22]
    noise = 0.1 / np.sqrt(samples) * np.sqrt(1.0 + w**2 + (1.0 - w) ** 2)
    expected = noise * cost.L[22, 8] / (4 * LN2)  # the posterior's cost is in proportion to Σ e²
    (stated,) = ScoreJudge(every, mask, options).interpolation([path])
    assert expected * 0.6 < stated < expected * 1.7


def test_a_sixteenth_of_a_usual_grid_is_evaluated() -> None:
    assert 20 + most_indices(1000, 20) == 1000 // 16
    assert most_indices(4000, 27) == MOST
    assert most_indices(4000, 80) == 88
    assert most_indices(60, 16) == 46
    assert most_indices(20, 20) == 20


def test_find_states_what_interpolation_adds(tmp_path: Path) -> None:
    found = dpstride.find(mixture_denoiser(T=100), mixture_data(48, seed=0), tmp_path, check=False, progress=False)
    comparison = found.comparison
    assert comparison is not None
    heldout = Statistics.load(tmp_path / "heldout.safetensors")
    assert found.adaptive is not None
    assert heldout.evaluated.sum() <= most_indices(100, len(found.adaptive.steps))
    assert set(comparison.interpolation) == set(STRIDES)
    document = json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    for stride in STRIDES:
        for K in comparison.table_budgets:
            (_, error), part = comparison.curves[stride][K], comparison.interpolation[stride][K]
            assert 0.0 <= part <= error
            assert document["interpolation"][stride][str(K)] == part
            assert found.details["bits_per_dim"][stride][K]["interpolation"] == part
    assert "of it interpolation" in found.summary
    assert Comparison.load(tmp_path / "comparison.json").interpolation == comparison.interpolation
    assert any("standard errors include" in note for note in comparison.warnings)


def test_comparisons_of_every_step_have_no_interpolation(tmp_path: Path) -> None:
    model, data = mixture_denoiser(T=12), mixture_data(24, seed=0)
    schedules = dpstride.optimise(model, data[:12], progress=False)
    comparison = compare(schedules, dpstride.estimate(model, data[12:], seed=1, progress=False))
    assert comparison.interpolation == {}
    comparison.save(tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text("utf-8"))
    document.pop("interpolation")  # as versions wrote it that did not know of any
    (tmp_path / "old.json").write_text(json.dumps(document), "utf-8")
    assert Comparison.load(tmp_path / "old.json") == comparison
    document["interpolation"] = {"even": {"12": 0.1}}
    (tmp_path / "odd.json").write_text(json.dumps(document), "utf-8")
    with pytest.raises(ValueError, match="interpolation must have an error for every stride and budget"):
        Comparison.load(tmp_path / "odd.json")
