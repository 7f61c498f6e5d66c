"""The study: its parts against definitions, and the whole command on a model whose every number can be had otherwise."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dpstride import (
    ScheduleSet,
    Statistics,
    even_stride,
    frechet_distance,
    kernel_distance,
    quadratic_stride,
    sample,
    score,
)
from dpstride.cli import _run
from dpstride.evaluate.ablation import Ablation
from dpstride.evaluate.comparison import STRIDES
from dpstride.evaluate.features.extractor import to_levels
from dpstride.report.tables import study_tables
from dpstride.study.plan import ALL
from dpstride.study.results import StudyResults
from paper_tables import BUDGETS, beside

MODULE = """
import torch
from dpstride.evaluate.features.extractor import FeatureExtractor
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

def model():
    return mixture_denoiser(T=40)

def train():
    return mixture_data(120, seed=0)

def test():
    return mixture_data(90, seed=1)

def features():
    function = lambda images: images.flatten(1)[:, :5].double() / 255.0
    return FeatureExtractor("pixels", "Fréchet distance, pixels", 5, "1", function)
"""
WORDS = [
    *("study", "study_module:model", "study_module:train", "--heldout", "study_module:test", "-o", "out"),
    *("--features", "study_module:features", "--samples", "30", "-k", "4", "-k", "16"),
    *("--choosing-samples", "64", "--heldout-samples", "40", "--batch-size", "16"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where the study was run once."""
    place = tmp_path_factory.mktemp("study")
    (place / "study_module.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.syspath_prepend(str(place))
        assert _run([*WORDS, "--quiet"]) == 0
        yield place / "out"


@pytest.fixture(scope="module")
def results(folder: Path) -> StudyResults:
    return StudyResults.load(folder / "results.json")


# --- the whole -------------------------------------------------------------------------------------------------------


def test_bits_per_dim_are_those_of_the_strides_on_heldout_statistics(folder: Path, results: StudyResults) -> None:
    schedules, heldout = ScheduleSet.load(folder / "schedules.json"), Statistics.load(folder / "heldout.safetensors")
    assert schedules.budgets == list(range(1, 41))
    for K in (1, 8, 33, 40):
        strides = {
            "even": even_stride(schedules.process, K),
            "quadratic": quadratic_stride(schedules.process, K),
            "dp": schedules[K],
        }
        for name, schedule in strides.items():
            (expected,) = score(heldout, [schedules.adopt(schedule)])
            assert results.curves[name][K][0] == pytest.approx(expected.bpd, rel=1e-5)
            assert results.curves[name][K][1] == pytest.approx(expected.standard_error, rel=1e-5)
    assert results.data["choosing"]["fingerprint"] != results.data["heldout"]["fingerprint"]
    assert results.paths[4] == schedules[4].times


def test_distances_are_those_of_the_samples_from_the_training_images(
    folder: Path, results: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    import study_module  # type: ignore[import-not-found]

    schedules = ScheduleSet.load(folder / "schedules.json")
    reference = study_module.features()(study_module.train())
    assert [(each.stride, each.budget) for each in results.distances] == [
        *((stride, K) for K in (4, 16) for stride in ("even", "quadratic", "dp")),
        (ALL, 40),
    ]
    for found in results.distances:
        schedule = {
            "even": even_stride,
            "quadratic": quadratic_stride,
            "dp": lambda process, K: schedules[K],
            ALL: even_stride,
        }[found.stride](schedules.process, found.budget)
        images = to_levels(sample(study_module.model(), schedules.adopt(schedule), n=30, seed=0))
        features = study_module.features()(images)
        assert found.frechet == pytest.approx(frechet_distance(features, reference), rel=1e-4)
        kernel = kernel_distance(features, reference)
        assert found.kernel == pytest.approx(kernel.value, rel=1e-4)
        assert found.kernel_standard_error == pytest.approx(kernel.standard_error, rel=1e-4)
        curve = results.curves["dp" if found.stride == ALL else found.stride]
        assert found.bpd == pytest.approx(curve[found.budget][0])
        assert found.samples == 30
    assert results.floor is not None
    assert results.floor.samples == 30
    assert results.features is not None
    assert results.features["distance"] == "Fréchet distance, pixels"


def test_a_second_run_asks_the_network_nothing_and_says_the_same(
    folder: Path, results: StudyResults, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import dpstride.denoiser

    before = (folder / "results.json").read_bytes()
    monkeypatch.setattr("dpstride.cli.study._expected_seconds", lambda study: 0.0)
    monkeypatch.setattr("dpstride.report.study_figures.save_study_figures", lambda *arguments: [])  # they take seconds
    monkeypatch.setattr(dpstride.denoiser.Denoiser, "__call__", None)
    assert _run([*WORDS, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["agreement"] == results.sentence
    assert (folder / "results.json").read_bytes() == before
    assert [Path(file).name for file in said["files"]] == [
        *("report.html", "run.json", "results.json", "tables.txt", "tables.md", "tables.tex")
    ]


def test_every_figure_is_there_and_can_be_opened(folder: Path) -> None:
    names = {"bits_per_dim", "timesteps", "samples", "distances", "agreement", "ablation"}
    assert {path.stem for path in (folder / "figures").iterdir()} == names
    for name in names:
        assert ElementTree.parse(folder / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
        with Image.open(folder / "figures" / f"{name}.png") as image:
            assert min(image.size) > 300
            assert len(np.unique(np.asarray(image.convert("L")))) > 10


def test_the_table_says_what_the_results_say(folder: Path, results: StudyResults) -> None:
    for suffix in ("txt", "md", "tex"):
        text = (folder / f"tables.{suffix}").read_text(encoding="utf-8")
        for K in (8, 16, 32, 40):
            bpd, error = results.curves["dp"][K]
            assert re.search(rf"{bpd:.3f} (±|\\pm) {error:.3f}", text), (suffix, K)
        assert "Fréchet distance, pixels" in text
        assert "FID" not in text
    assert results.sentence is not None
    assert results.sentence in (folder / "tables.txt").read_text(encoding="utf-8")


def test_a_distance_of_fewer_samples_is_compared_with_none(results: StudyResults) -> None:
    assert results.comparable == results.distances
    fewer = tuple(replace(each, samples=12) if each.stride == ALL else each for each in results.distances)
    found = replace(results, distances=fewer).comparable
    assert found == tuple(each for each in results.distances if each.stride != ALL)
    assert len(found) == len(results.distances) - 1


def test_results_and_page_name_the_same_best_budget(results: StudyResults, tmp_path: Path) -> None:
    """Files keep six digits, so a seventh must not choose."""
    curve = {1: (3.0, 0.1), 2: (2.0000011, 0.1), 3: (2.0000009, 0.1), 4: (2.5, 0.1)}
    exact = replace(results, curves=dict.fromkeys(STRIDES, curve))
    exact.save(tmp_path / "results.json")
    assert exact.comparison.best_budget == StudyResults.load(tmp_path / "results.json").comparison.best_budget == 2


def test_a_dry_run_counts_and_does_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "--dry-run", "--json"]
    words[words.index("out")] = "nothing"
    assert _run(words) == 0
    said = json.loads(capsys.readouterr().out)
    # (64 + 40) samples at 40 times; 30 samples of 3 strides at 4 and 16 steps and of all 40; 10 to look at, 3 strides of 32
    assert said["evaluations"] == 104 * 40 + 30 * (3 * (4 + 16) + 40) + 10 * 3 * 32
    assert not (folder.parent / "nothing").exists()


def test_wrong_requests_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for change, message in [
        (["--features", "vgg"], "features must be fashion, inception, inception:PATH, none or package.module:function"),
        (["--features", "fashion"], "grey 28 × 28 images"),
        (["--features", "inception:nowhere.pth"], "nowhere.pth is not there"),
        (["--features", "study_module:train"], "must return a dpstride FeatureExtractor, not Tensor"),
        (["--choosing-samples", "500"], "must have 500 samples, as asked for, but has 120"),
        (["--seed", "1"], "holds other work"),
    ]:
        assert _run([*WORDS, *change]) == 2, change
        assert message in capsys.readouterr().err


def test_data_that_are_no_images_have_everything_but_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parent / "vector_module.py").write_text(
        "import torch\nimport dpstride\n"
        "process = dpstride.ForwardProcess.linear(12)\n"
        "model = lambda: dpstride.Denoiser(lambda x, time: 0.5 * x, process, predicts='x0', clip=None)\n"
        "data = lambda: torch.linspace(-1.0, 1.0, 120, dtype=torch.float64).reshape(40, 3)\n"
    )
    words = ["study", "vector_module:model", "vector_module:data", "-o", "vectors", "--data-range", "continuous"]
    assert _run(words) == 0
    assert "Features none: the samples are not images" in capsys.readouterr().err
    found = StudyResults.load(folder.parent / "vectors" / "results.json")
    assert (found.distances, found.features, found.sentence) == ((), None, None)
    assert found.data["choosing"]["samples"] == found.data["heldout"]["samples"] == 20
    names = {path.stem for path in (folder.parent / "vectors" / "figures").iterdir()}
    assert names == {"bits_per_dim", "timesteps", "ablation"}


@pytest.mark.parametrize("stride", ["dp", "even", "quadratic"])
def test_samples_alone_along_any_stride(folder: Path, stride: str) -> None:
    import study_module

    words = [
        "sample",
        "study_module:model",
        "out/schedules.json",
        "-k",
        "5",
        "-n",
        "6",
        "--sampler",
        "ddim",
        "--eta",
        "0.5",
    ]
    assert _run([*words, "--stride", stride, "-o", f"{stride}.npz"]) == 0
    schedules = ScheduleSet.load(folder / "schedules.json")
    schedule = {"even": even_stride, "quadratic": quadratic_stride, "dp": lambda _, K: schedules[K]}[stride](
        schedules.process, 5
    )
    expected = to_levels(sample(study_module.model(), schedule, n=6, sampler="ddim", eta=0.5))
    with np.load(folder.parent / f"{stride}.npz") as found:
        np.testing.assert_array_equal(np.moveaxis(found["images"], -1, 1), expected)


def test_results_survive_a_round_trip_and_foreign_files_are_refused(results: StudyResults, tmp_path: Path) -> None:
    results.save(tmp_path / "again.json")
    assert StudyResults.load(tmp_path / "again.json") == results
    without = replace(results, features=None, distances=(), floor=None, agreement=None, ablation=None)
    without.save(tmp_path / "without.json")
    assert StudyResults.load(tmp_path / "without.json") == without
    assert [table.title for table in study_tables(without)] == [study_tables(results)[0].title]
    document = json.loads((tmp_path / "again.json").read_text())
    for wrong in ({**document, "format": "dpstride-study-9"}, {**document, "curves": 3}, [1]):
        (tmp_path / "wrong.json").write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=r"wrong\.json: "):
            StudyResults.load(tmp_path / "wrong.json")


def test_only_fid_features_make_a_fid_and_a_kid(results: StudyResults) -> None:
    assert results.features is not None
    fid = replace(results, features={**results.features, "distance": "FID", "name": "inception"})
    titles = [table.title for table in study_tables(fid)]
    assert ": FID, 30 samples against 120 real images" in titles[1]
    assert ": KID, 30 samples" in titles[2]
    assert all("FID" not in table.title and "KID" not in table.title for table in study_tables(results))
    assert study_tables(results)[2].title.partition(": ")[2].startswith("Kernel distance, pixels, 30 samples")


def test_fewer_samples_of_all_steps_are_said_in_the_table(results: StudyResults) -> None:
    fewer = tuple(replace(each, samples=8) if each.stride == ALL else each for each in results.distances)
    table = study_tables(replace(results, distances=fewer))[1]
    assert table.columns == ("steps", "4", "16", "all 40 (8 samples)")
    assert [row[1][-1] for row in table.rows] == [table.rows[0][1][-1]] * 3  # all strides agree at all steps


def test_the_ablation_table_is_mean_and_spread(results: StudyResults) -> None:
    bpd = (((3.5, 2.2), (3.3, 2.0), (3.1, 2.4)), ((3.0, 2.0),))
    found = replace(results, ablation=Ablation((8, 32), (4, 16), bpd, "sample", 1.0))
    table = study_tables(found)[-1]
    assert table.rows[0][0] == "8 samples"
    np.testing.assert_allclose(table.rows[0][1], [(0.3, 0.2), (0.2, 0.2)], atol=1e-12)
    assert len(table.rows) == 1


def test_ours_stand_beside_the_papers_as_losses_against_all_steps(results: StudyResults) -> None:
    curves = {
        stride: {K: (2.0 + shift + 8.0 / K, 0.01) for K in (*BUDGETS, 1000)}
        for stride, shift in (("even", 0.5), ("quadratic", 0.2), ("dp", 0.0))
    }
    ours = replace(results, curves=curves, process={"T": 1000, "name": "linear", "kind": "discrete"})
    text = beside(ours, "simple")
    name = ours.model["name"]
    assert f"| {name}, DP stride |  | +0.99 | +0.49 | +0.24 | +0.12 | +0.05 | +0.02 |" in text
    assert "| CIFAR-10, L_simple (paper), DP stride |  | +0.86 | +0.26 | +0.06 | +0.01 | +0.00 | -0.01 |" in text
    assert "| CIFAR-10, L_simple (paper), even stride | 3.73 (T = 1,000) | +3.22 |" in text
    assert f"- {name}: DP is best, then quadratic, then even, at every budget; 128 DP steps are within 0.1" in text
    assert "CIFAR" not in beside(ours, None)
    assert "ImageNet" in beside(ours, "hybrid")
