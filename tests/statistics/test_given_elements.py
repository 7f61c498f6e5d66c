"""Statistics, tables and scores of models that are given some elements: those of the predicted ones alone."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dpstride
from dpstride import Denoiser, ForwardProcess, Statistics, elbo_costs, estimate, schedules_from, score
from dpstride.adaptive.loop import estimate_adaptively
from dpstride.objectives.band import band_costs
from dpstride.runs.identity import OtherWorkError
from dpstride.statistics.data import Samples
from imputed import NAMES, ConditionalGaussian, erring, told

PROCESS = ForwardProcess.linear(T=12)
SAMPLES, KEPT = 40, [0, 2, 3, 6]  # of 8 elements
RANGES = ("uint8", "continuous")
VARIANCES = ("posterior", "upper", "optimal", "learned_range", "learned_optimal")
DECODERS = ("upper", "first_pair", "respaced", "optimal")


def erring_model(**names: str) -> Denoiser:
    return Denoiser(erring, PROCESS, predicts="x0", variance="learned_range", clip=None, **names)  # type: ignore[arg-type]


def clean(data_range: str, samples: int = SAMPLES) -> torch.Tensor:
    rng = np.random.default_rng(3)
    if data_range == "continuous":
        return torch.from_numpy(rng.normal(0.1, 0.5, size=(samples, 8)))
    return torch.from_numpy(rng.integers(0, 256, size=(samples, 8)) / 127.5 - 1.0)


def both(data_range: str, **options: Any) -> tuple[Statistics, Statistics]:
    """Statistics with a mask that is the same in all samples, and those of a data set of the predicted columns alone."""
    x_0 = clean(data_range)
    mask = torch.zeros(x_0.shape, dtype=torch.bool)
    mask[:, KEPT] = True
    how = {"data_range": data_range, "progress": False, **options}
    masked = estimate(erring_model(**NAMES), (x_0, told(x_0, mask) | {"truth": x_0}), **how)
    return masked, estimate(erring_model(), (x_0[:, KEPT], {"truth": x_0[:, KEPT]}), **how)


@pytest.mark.parametrize("data_range", RANGES)
def test_one_mask_for_all_is_the_data_set_without_the_given_columns(data_range: str, tmp_path: Path) -> None:
    masked, reduced = both(data_range)
    assert masked.predicted is not None
    masked.save(tmp_path / "masked.safetensors")
    masked = Statistics.load(tmp_path / "masked.safetensors")
    assert masked.dims == reduced.dims == len(KEPT)
    assert masked.data["deviation"] == pytest.approx(reduced.data["deviation"], rel=1e-13)
    for variance in VARIANCES:
        for decoder in DECODERS:
            found, expected = (schedules_from(each, variance, decoder) for each in (masked, reduced))
            tables = [elbo_costs(each, variance, decoder) for each in (masked, reduced)]
            np.testing.assert_allclose(tables[0].L, tables[1].L, rtol=1e-12, atol=1e-13)
            for K in (2, 5, 12):
                assert found[K].steps == expected[K].steps
                assert found[K].bpd == pytest.approx(expected[K].bpd, rel=1e-12)
                assert found[K].standard_error == pytest.approx(expected[K].standard_error, rel=1e-9)
    np.testing.assert_allclose(band_costs(masked).L, band_costs(reduced).L, rtol=1e-12, atol=1e-13)


def test_filled_in_statistics_too_are_those_without_the_given_columns() -> None:
    indices = [1, 2, 5, 9, 12]
    masked, reduced = both("uint8", indices=indices)
    for variance, decoder in (("posterior", "upper"), ("learned_range", "respaced"), ("optimal", "optimal")):
        found, expected = (elbo_costs(each, variance, decoder).L for each in (masked, reduced))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("data_range", RANGES)
def test_an_adaptive_estimate_believes_the_same_of_both(data_range: str) -> None:
    x_0, process = clean(data_range, samples=12), ForwardProcess.linear(T=120)
    mask = torch.zeros(x_0.shape, dtype=torch.bool)
    mask[:, KEPT] = True
    reports = []
    for names, data in (
        (NAMES, (x_0, told(x_0, mask) | {"truth": x_0})),
        ({}, (x_0[:, KEPT], {"truth": x_0[:, KEPT]})),
    ):
        model = Denoiser(erring, process, predicts="x0", variance="learned_range", clip=None, **names)  # type: ignore[arg-type]
        _, report = estimate_adaptively(
            model, data, data_range=data_range, budgets=(4, 8), variance="upper", progress=False, check=False
        )
        reports.append(report)
    masked, reduced = reports
    assert masked.steps == reduced.steps
    assert masked.stopped == reduced.stopped
    for K in (4, 8):
        assert astuple(masked.regret[K]) == pytest.approx(astuple(reduced.regret[K]), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("data_range", RANGES)
@pytest.mark.parametrize("skip", [False, True])
def test_masks_that_vary_are_scored_as_the_evaluator_does(data_range: str, skip: bool) -> None:
    # The evaluator takes the divergence of two Gaussians element by element, and then those that count.
    x_0 = clean(data_range, samples=9)
    mask = torch.from_numpy(np.random.default_rng(5).random(x_0.shape) < 0.5)
    mask[:, 0] = True
    data: Any = (x_0, told(x_0, mask) | {"truth": x_0, "size": torch.linspace(0.3, 3.0, 9)[:, None]})
    model = erring_model(**NAMES)
    if skip:  # the same without the sample that is left out
        keep = [i for i in range(9) if i != 4]

        def broken(x: torch.Tensor, time: torch.Tensor, truth: torch.Tensor, **told: Any) -> torch.Tensor:
            fails = (truth == x_0[4]).all(dim=1)[:, None] & (time[:, None] == 6)
            return torch.where(fails, torch.nan, erring(x, time, truth, **told))

        partial = Denoiser(broken, PROCESS, predicts="x0", variance="learned_range", clip=None, **NAMES)  # type: ignore[arg-type]
        statistics = estimate(partial, data, data_range=data_range, progress=False, skip_nonfinite=True, seed=2)
        assert statistics.skipped == (4,)
        mask = mask[keep]
    else:
        statistics = estimate(model, data, data_range=data_range, progress=False, seed=2)
    assert statistics.dims == pytest.approx(float(mask.sum()) / len(mask))
    np.testing.assert_array_equal(statistics.predicted, mask.sum(1))
    if skip:
        return
    for variance in VARIANCES:
        for decoder in DECODERS:
            schedule = schedules_from(statistics, variance, decoder)[4]
            found = score(statistics, [schedule])[0]
            direct = dpstride.bits_per_dim(model, data, schedule, seed=2, data_range=data_range)
            assert found.bpd == pytest.approx(direct.bpd, rel=1e-7), (variance, decoder)
            assert sum(found.terms["steps"]) == pytest.approx(sum(direct.terms["steps"]), rel=1e-7, abs=1e-9)
            assert found.terms["prior"] == pytest.approx(direct.terms["prior"], rel=1e-12)
            # Nine samples are nine blocks; decoders by block are interpolated, good enough for an error.
            slack = {"upper": 0.02, "optimal": 0.4}.get(decoder, 0.05)
            assert found.standard_error == pytest.approx(direct.standard_error, rel=slack), (variance, decoder)


def test_the_standard_error_is_that_of_a_ratio() -> None:
    # bits/dim are Σ nats over Σ elements; leaving out one sample after the other tells the error of such a ratio.
    x_0 = clean("continuous", samples=60)
    mask = torch.from_numpy(np.random.default_rng(5).random(x_0.shape) < np.linspace(0.1, 1.0, 60)[:, None])
    mask[:, 0] = True
    statistics = estimate(
        erring_model(**NAMES), (x_0, told(x_0, mask) | {"truth": x_0}), data_range="continuous", progress=False
    )
    table = elbo_costs(statistics, "upper")
    path = (12, 7, 3, 1, 0)
    assert table.unit_terms is not None
    nats, counts = table.unit_terms(path)[0].sum(axis=1), mask.sum(1).numpy()
    assert table.path_bpd(path) == pytest.approx(nats.sum() / counts.sum() / np.log(2.0), rel=1e-12)
    without = (nats.sum() - nats) / (counts.sum() - counts) / np.log(2.0)
    jackknife = np.sqrt(59.0 / 60.0 * ((without - without.mean()) ** 2).sum())
    stated = table.standard_errors([path])[0]
    assert stated == pytest.approx(jackknife, rel=0.05)
    assert np.std(nats, ddof=1) / np.sqrt(60.0) / statistics.dims / np.log(2.0) > 2.0 * jackknife  # not that of a mean


def test_a_mask_of_ones_changes_no_bit_and_no_batch_size_does() -> None:
    x_0 = clean("uint8", samples=7)
    plain = estimate(erring_model(), (x_0, {"truth": x_0}), progress=False)
    ones = torch.ones_like(x_0, dtype=torch.bool)
    same = estimate(erring_model(**NAMES), (x_0, told(x_0, ones) | {"truth": x_0}), progress=False)
    assert same.predicted is None
    ones[2, 5] = False
    data = (x_0, told(x_0, ones) | {"truth": x_0})
    one, other = (estimate(erring_model(**NAMES), data, batch_size=size, progress=False) for size in (2, 5))
    for (a, b), fields in (((plain, same), ()), ((one, other), ("predicted",))):
        for name in ("squared_error", "data_square", "decoder_upper", "decoder_blocks", "fraction_blocks", *fields):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
        assert a.residual_bins is not None
        assert b.residual_bins is not None
        np.testing.assert_array_equal(a.residual_bins.moments, b.residual_bins.moments)
    assert one.squared_error[3, 2] < plain.squared_error[3, 2]
    np.testing.assert_array_equal(one.squared_error[:, 3], plain.squared_error[:, 3])


def test_a_mask_of_one_channel_is_for_all() -> None:
    x = torch.rand(3, 2, 4, 4, dtype=torch.float64)
    mask = torch.rand(3, 1, 4, 4) < 0.5
    names = dpstride.Denoiser(erring, PROCESS, predicts="x0", **NAMES).given
    narrow = Samples.read((x, {"mask": mask, "observed": x}), None, "continuous", names)
    wide = Samples.read((x, {"mask": mask.expand(x.shape), "observed": x}), None, "continuous", names)
    assert narrow.mask is not None
    assert wide.mask is not None
    assert torch.equal(narrow.mask, wide.mask)
    assert erring_model(**NAMES).on_grid(PROCESS.subset([1, 5, 12])).given == names
    assert narrow.dims == 2.0 * float(mask.double().sum()) / 3.0


def test_statistics_of_another_mask_are_other_work(tmp_path: Path) -> None:
    x_0 = clean("continuous", samples=4)
    mask = torch.ones_like(x_0, dtype=torch.bool)
    mask[0, 0] = False
    how: dict[str, Any] = {"data_range": "continuous", "progress": False, "checkpoint": tmp_path / "s.safetensors"}
    data = (x_0, told(x_0, mask) | {"truth": x_0})
    first = estimate(erring_model(**NAMES), data, **how)
    again = estimate(erring_model(**NAMES), data, **how)
    np.testing.assert_array_equal(first.squared_error, again.squared_error)
    mask[0, 1] = False
    with pytest.raises(OtherWorkError, match=r"data\.fingerprint .* differ"):
        estimate(erring_model(**NAMES), (x_0, told(x_0, mask) | {"truth": x_0}), **how)
    with pytest.raises(OtherWorkError, match=r"model\.mask.* differ"):
        estimate(erring_model(), data, **how)


X, MASK = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
SEEN = X * (1.0 - MASK)


@pytest.mark.parametrize(
    ("conditioning", "message"),
    [
        ({"mask": 1.0 - MASK, "observed": SEEN}, "the other way round"),
        ({"mask": 0.5 * MASK, "observed": SEEN}, "must contain only 0 and 1"),
        ({"mask": 0.0 * MASK, "observed": X}, "of sample 0 is 0 everywhere"),
        ({"mask": MASK}, "the entries 'mask' and 'observed' of the conditioning"),
        ({"mask": MASK[:, :, None], "observed": SEEN}, "one number per element"),
        ({"mask": MASK[:, :1].repeat(1, 3), "observed": SEEN}, "one number per element"),
        (MASK, "must be a dict with both, not Tensor"),
        ({"mask": [["a"] * 2] * 2, "observed": SEEN}, "The entry 'mask' of the conditioning must be an array"),
        ({"mask": MASK.to(torch.complex64), "observed": SEEN}, "must contain only 0 and 1"),
    ],
)
def test_masks_that_cannot_be_meant_are_refused_before_the_network_runs(conditioning: Any, message: str) -> None:
    def never(x: torch.Tensor, time: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the network ran")

    model = Denoiser(never, PROCESS, predicts="x0", shape=(2,), **NAMES)  # type: ignore[arg-type]
    schedule = dpstride.even_stride(PROCESS, 4)
    for work in (
        lambda: estimate(model, (X, conditioning), data_range="continuous", progress=False),
        lambda: dpstride.bits_per_dim(model, (X, conditioning), schedule, data_range="continuous"),
        lambda: dpstride.optimise(model, (X, conditioning), data_range="continuous", tolerance=0.1, progress=False),
    ):
        with pytest.raises(ValueError, match=message):
            work()


def test_what_cannot_heed_a_mask_refuses_it(tmp_path: Path) -> None:
    model = ConditionalGaussian(np.eye(2), PROCESS).denoiser()
    data = (X, {"mask": MASK, "observed": SEEN})
    with pytest.raises(ValueError, match=r"A trajectory is not for models that are given some elements"):
        dpstride.estimate_trajectory(model)
    for objective in ("trajectory", "mixed"):
        with pytest.raises(ValueError, match=r"A trajectory is not for models that are given some elements"):
            dpstride.find(model, data, tmp_path / objective, data_range="continuous", objective=objective)
    with pytest.raises(ValueError, match=r"A race by the samples of whole data is not for models"):
        dpstride.tune(model, Samples.read(data, None, "continuous"), tmp_path / "race")
    with pytest.raises(ValueError, match=r"mask and observed name two entries"):
        Denoiser(erring, PROCESS, mask="mask")
