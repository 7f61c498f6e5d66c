"""What is asked of a study or of samples: kept as it is measured, refused before long work, and said where it misleads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from dpstride import (
    Denoiser,
    ForwardProcess,
    ScheduleSet,
    Statistics,
    __version__,
    estimate,
    even_stride,
    frechet_distance,
    kernel_distance,
    sample,
    schedules_from,
)
from dpstride.cli import _run
from dpstride.evaluate import ablation
from dpstride.evaluate.features.extractor import to_levels
from dpstride.options import CostOptions
from dpstride.report.study_figures import sample_rows
from dpstride.report.tables import Table, kernel_name
from dpstride.runs import number_cache
from dpstride.study import distances
from dpstride.study.results import StudyResults

MODULE = """
import torch
from dpstride import Denoiser, ForwardProcess
from dpstride.evaluate.features.extractor import FeatureExtractor

def denoiser(*shape):
    return Denoiser(lambda x, time: 0.5 * x, ForwardProcess.cosine(12), predicts="x0", shape=shape)

def unit():
    return denoiser(1, 4, 4)

def unclipped():
    return Denoiser(lambda x, time: 0.5 * x, ForwardProcess.cosine(12), predicts="x0", clip=None, shape=(1, 4, 4))

def two():
    return denoiser(2, 5, 5)

def vectors():
    return denoiser(3)

def shifted():
    network = lambda x, time, y: 0 * x + y[:, None, None, None]
    return Denoiser(network, ForwardProcess.cosine(12), predicts="x0", shape=(1, 4, 4))

def features(distance="Fréchet distance, thumbs"):
    return FeatureExtractor("thumbs", distance, 2, "1", lambda images: images.flatten(1)[:, :2].double() / 255.0)

def false_fid():
    return features("FID")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "requested.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rng = np.random.default_rng(0)
    np.save("images.npy", rng.integers(0, 256, (24, 1, 4, 4), dtype=np.uint8))
    np.save("unit.npy", rng.integers(0, 256, (24, 1, 4, 4)) / 255.0)
    np.save("two.npy", rng.integers(0, 256, (24, 2, 5, 5), dtype=np.uint8))
    np.save("vectors.npy", rng.standard_normal((24, 3)))
    return tmp_path


def study(*words: str) -> list[str]:
    return ["study", *words, "--samples", "6", "--quiet"]


# --- what takes seconds is kept -------------------------------------------------------------------------------------------


def test_numbers_are_computed_once_and_other_work_is_not_believed(tmp_path: Path) -> None:
    path, asked = tmp_path / "number_cache.json", []

    def numbers(value: float) -> list[float]:
        asked.append(value)
        return [value, float("nan")]

    first = number_cache.NumberCache(path, {"of": 1}).numbers("a", lambda: numbers(0.1))
    again = number_cache.NumberCache(path, {"of": 1}).numbers("a", lambda: numbers(0.2))
    assert asked == [0.1]
    np.testing.assert_array_equal(first, again)
    assert number_cache.NumberCache(path, {"of": 2}).numbers("a", lambda: numbers(0.3))[0] == 0.3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_cache, "__version__", "99")
        assert number_cache.NumberCache(path, {"of": 2}).numbers("a", lambda: numbers(0.6))[0] == 0.6
    own = {"identity": [__version__, {"of": 2}]}
    for damaged in ("", "{", "[]", json.dumps(own), json.dumps({**own, "numbers": {"a": [[]]}})):
        path.write_text(damaged)
        assert number_cache.NumberCache(path, {"of": 2}).numbers("a", lambda: numbers(0.4))[0] == 0.4
    assert number_cache.NumberCache(None, None).numbers("a", lambda: numbers(0.5))[0] == 0.5


def measured(real: np.ndarray, path: Path, features: np.ndarray) -> tuple[float, float, float]:
    found = distances.DistanceMeter(real, path).measure(features, "even", 4)
    assert (found.stride, found.budget, found.samples) == ("even", 4, len(features))
    return found.frechet, found.kernel, found.kernel_standard_error


def test_a_distance_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    real, found = rng.standard_normal((50, 3)).astype(np.float32), rng.standard_normal((20, 3)).astype(np.float32)
    kernel = kernel_distance(found, real)
    expected = (frechet_distance(found, real), kernel.value, kernel.standard_error)
    path = tmp_path / "distances.json"
    assert measured(real, path, found) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(distances.DistanceMeter, "_measure", lambda self, features: (1.0, 2.0, 3.0))
    assert measured(real, path, found) == pytest.approx(expected, rel=1e-12)
    assert measured(real, path, found[:19]) == (1.0, 2.0, 3.0)  # other samples
    assert measured(real[:49], path, found) == (1.0, 2.0, 3.0)  # other real images


def test_pairs_of_many_images_are_those_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    real, found = rng.standard_normal((60, 3)).astype(np.float32), rng.standard_normal((20, 3)).astype(np.float32)
    monkeypatch.setattr(distances, "KERNEL_PAIRS", 30)
    _, few, _ = measured(real, tmp_path / "a.json", found)
    assert few == pytest.approx(kernel_distance(found, real[:30]).value, rel=1e-12)
    monkeypatch.setattr(distances, "KERNEL_SUBSET", 10)
    _, subsets, _ = measured(real, tmp_path / "b.json", found)
    assert subsets == pytest.approx(kernel_distance(found, real, 10).value, rel=1e-12)


def test_an_ablation_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ForwardProcess.cosine(10)
    denoiser = Denoiser(lambda x, time: 0.5 * x, process, predicts="x0", shape=(2,), clip=None)
    rng = np.random.default_rng(0)
    chosen, heldout = (
        estimate(denoiser, rng.standard_normal((40, 2)), seed=seed, data_range="continuous", progress=False)
        for seed in (0, 1)
    )
    options = CostOptions("posterior", "upper")
    whole = ablation.ablate(chosen, heldout, options, [2, 5])
    done: list[int] = []

    def stopped(table: Any, budget: int) -> Any:
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(budget)
        return solve(table, budget)

    solve = ablation.solve
    monkeypatch.setattr(ablation, "solve", stopped)
    path = tmp_path / "ablation.json"
    with pytest.raises(KeyboardInterrupt):
        ablation.ablate(chosen, heldout, options, [2, 5], checkpoint=path)
    monkeypatch.setattr(ablation, "solve", lambda table, budget: done.append(budget) or solve(table, budget))
    assert ablation.ablate(chosen, heldout, options, [2, 5], checkpoint=path) == whole
    assert len(done) == sum(len(repeats) for repeats in whole.bpd)
    assert ablation.ablate(chosen, heldout, options, [2, 5], seed=1, checkpoint=path) != whole  # other draws


# --- what is drawn --------------------------------------------------------------------------------------------------------


def test_images_have_the_range_of_the_data(place: Path) -> None:
    words = study(
        "requested:unit", "unit.npy", "--data-range", "256:0:1", "-o", "out", "--features", "requested:features"
    )
    assert _run(words) == 0
    real = load_file("out/features/reference.safetensors")["images"]
    assert sorted(map(bytes, real)) == sorted(
        bytes((image * 255).round().astype(np.uint8)) for image in np.load("unit.npy")
    )
    assert _run(["sample", "requested:unit", "out/schedules.json", "-k", "5", "-n", "6", "-o", "some.npz"]) == 0
    import requested  # type: ignore[import-not-found]

    values = sample(requested.unit(), schedules_from(Statistics.load("out/statistics.safetensors"))[5], n=6)
    expected = to_levels(values, 0.0, 1.0)
    np.testing.assert_array_equal(np.moveaxis(np.load("some.npz")["images"], -1, 1), expected)
    assert _run([*words, "-k", "5"]) == 0
    drawn = load_file("out/features/dp-5.safetensors")["images"]
    np.testing.assert_array_equal(drawn, expected)


def test_real_images_are_shown_without_features_too(place: Path) -> None:
    assert _run(study("requested:unit", "images.npy", "-o", "out", "--features", "none")) == 0
    real = load_file("out/features/reference.safetensors")["images"]
    assert {bytes(image) for image in real} <= {bytes(image) for image in np.load("images.npy")}
    rows = sample_rows(StudyResults.load("out/results.json"), Path("out/features"))
    assert [name for name, _ in rows] == [
        "real images",
        "8 steps, even",
        "8 steps, quadratic",
        "8 steps, DP",
        "all 12 steps",
    ]


def test_short_grids_show_and_measure_some_budgets(place: Path) -> None:
    assert _run(study("requested:unit", "images.npy", "-o", "out", "--features", "requested:features")) == 0
    results = StudyResults.load("out/results.json")
    assert {each.budget for each in results.distances} == {8, 12}
    assert results.ablation is not None
    assert results.ablation.budgets == (8,)
    assert {path.stem for path in Path("out/features").glob("*.safetensors")} >= {"dp-8", "even-8", "all-12"}
    # Ten samples of all steps to look at; six are measured, as of the others.
    assert {each.samples for each in results.distances} == {6}
    assert results.comparable == results.distances


def test_conditioning_of_data_reaches_samples(place: Path) -> None:
    labels = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    np.savez("labelled.npz", x=np.zeros((3, 1, 4, 4), dtype=np.uint8), y=labels)
    ScheduleSet.of([even_stride(ForwardProcess.cosine(12), 3)]).save("schedules.json")
    words = ["sample", "requested:shifted", "schedules.json", "-k", "3", "-n", "5", "-o", "some.npy"]
    assert _run([*words, "--conditioning", "labelled.npz"]) == 0
    assert np.load("some.npy").mean(axis=(1, 2, 3)).tolist() == [-1.0, 0.0, 1.0, -1.0, 0.0]


# --- what is refused, and what is said ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["requested:vectors", "vectors.npy", "--data-range", "continuous", "--features", "inception"],
            "images [C, H, W]",
        ),
        (["requested:unit", "images.npy", "-k", "300"], "No path has more than T = 12 steps, so none has 300"),
        (
            ["requested:unit", "images.npy", "--all-samples", "7"],
            "All steps cannot have more samples (7) than the strides (6)",
        ),
        (
            ["requested:unit", "images.npy", "--features", "requested:false_fid"],
            "that name is reserved for the original FID network",
        ),
    ],
)
def test_requests_that_cannot_be_met_are_refused(
    place: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(study(*words, "-o", "out")) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path("out").exists()


def test_features_of_ones_own_may_be_of_any_channels(place: Path) -> None:
    assert _run(study("requested:two", "two.npy", "-o", "out", "--features", "requested:features")) == 0
    assert len(StudyResults.load("out/results.json").distances) == 4
    assert not Path("out/figures/samples.png").exists()  # two channels cannot be drawn


def test_a_refused_resume_changes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = study("requested:unit", "images.npy", "-o", "out", "--features", "requested:features")
    assert _run(words) == 0
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert _run([*words, "--variance", "upper"]) == 2
    assert (
        "run.json: options.variance (there 'posterior', here 'upper'). Give another output" in capsys.readouterr().err
    )
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("verb", ["study", "find"])
def test_images_that_choose_and_score_are_counted(place: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    images = np.load("images.npy")
    np.save("other.npy", np.concatenate([images[:5], 255 - images[5:]]))
    for data, shared in (("other.npy", 5), ("images.npy", 24)):
        assert (
            _run([verb, "requested:unit", "images.npy", "--heldout", data, "-o", f"{data}-{verb}", "--quiet", "--json"])
            == 0
        )
        result = json.loads(capsys.readouterr().out)
        notes = " ".join(result["notes" if verb == "study" else "warnings"])
        assert f"{shared} of the 24 samples that score the paths were also used to choose them" in notes
    assert _run([verb, "requested:unit", "images.npy", "-o", "split", "--quiet", "--json"]) == 0
    assert "also used to choose them" not in capsys.readouterr().out


def test_few_samples_are_said_before_they_are_drawn(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", "requested:unit", "images.npy", "-o", "out", "--features", "requested:features", "--samples", "2"]
    assert _run([*words, "--dry-run"]) == 0
    assert "Note: 2 samples are too few for features of 2 dimensions" in " ".join(capsys.readouterr().err.split())


def test_values_that_images_cut_off_are_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).uniform(-1.0, 1.0, (24, 1, 4, 4))
    for name, data in (("inside.npy", values), ("outside.npy", 2.0 * values)):
        np.save(name, data)
        assert _run(["study", "requested:unclipped", name, "--data-range", "continuous", "-o", "out", "--dry-run"]) == 0
        assert ("values outside [−1, 1]" in " ".join(capsys.readouterr().err.split())) == (name == "outside.npy")


# --- how it is written ----------------------------------------------------------------------------------------------------


def test_large_numbers_and_names_are_written_readably(place: Path) -> None:
    table = Table(r"a^b {x} $5 C:\dir ~_&%#", ("steps", "8"), (("even", ((-244386062.7, 22349655227.0),)),), digits=4)
    assert "-2.444e+08 ± 2.235e+10" in table.text()
    assert r"\caption{a\textasciicircum{}b \{x\} \$5 C:\textbackslash{}dir \textasciitilde{}\_\&\%\#}" in table.latex()


def test_the_two_distances_have_names_of_their_own(place: Path) -> None:
    words = study("requested:unit", "images.npy", "-o", "out", "--features", "requested:features", "--sampler", "ddim")
    assert _run([*words, "--eta", "0.5"]) == 0
    results = StudyResults.load("out/results.json")
    assert kernel_name(results) == "Kernel distance, thumbs"
    renamed = replace(results, features={**(results.features or {}), "distance": "thumb distance"})
    assert kernel_name(renamed) == "Kernel distance, thumbs"
    assert "(DDIM sampling, eta 0.5" in Path("out/tables.txt").read_text(encoding="utf-8")


def test_eta_is_of_ddim_only() -> None:
    process = ForwardProcess.cosine(12)
    denoiser = Denoiser(lambda x, time: 0.5 * x, process, predicts="x0", shape=(2,))
    with pytest.raises(ValueError, match="eta is the noise of sampler='ddim'"):
        sample(denoiser, even_stride(process, 3), n=2, eta=0.3)
    wrong: Any = "a"
    with pytest.raises(ValueError, match=r"eta must lie in \[0, 1\], not 'a'"):
        sample(denoiser, even_stride(process, 3), n=2, sampler="ddim", eta=wrong)
