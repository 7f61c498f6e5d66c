"""The main job for samples: the fork, what schedules carry, pictures, page."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from dpstride import Band, ScheduleSet, estimate, even_stride, find, sample, schedules_from
from dpstride.cli import _run
from dpstride.evaluate.purpose import caveat
from dpstride.objectives.band import DEFAULT, SamplesPlan
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

SMALL = {"samples": 24, "heldout_samples": 24, "tolerance": 0.1, "budgets": (4, 8), "check": False, "progress": False}
MODEL = "dpstride.zoo.mixture:mixture_denoiser"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    find(mixture_denoiser(T=40), mixture_data(64, seed=0), folder, objective="samples", eta=1.0, **SMALL)
    return folder


def test_schedules_carry_what_draws_their_samples(found: Path) -> None:
    schedules = ScheduleSet.load(found / "schedules.json")
    expected = {"objective": "samples", "sampler": "ddim", "eta": 1.0, "variance": "optimal", "exponent": 1.3}
    expected |= {"band": [0.2, 20.0], "cap": 1.5, "evenness": 0.5}
    assert expected.items() <= schedules.options.items()
    denoiser, schedule = mixture_denoiser(T=40), schedules[8]
    unasked = sample(denoiser, schedule, n=4, seed=2)
    assert np.array_equal(unasked, sample(denoiser, schedule, n=4, seed=2, sampler="ddim", eta=1.0))
    assert not np.array_equal(unasked, sample(denoiser, schedule, n=4, seed=2, eta=0.0))
    assert np.array_equal(  # eta belongs to the sampler that the schedule is for
        sample(denoiser, schedule, n=4, seed=2, sampler="ancestral"),
        sample(denoiser, schedule, n=4, seed=2, sampler="ancestral", variance="optimal"),
    )


def test_the_page_answers_for_samples_and_shows_some(found: Path) -> None:
    text = (found / "report.html").read_text(encoding="utf-8")
    assert "Schedules for samples with DDIM" in text
    assert '<p id="caveat" class="hint">These schedules are chosen for samples' in text  # without scripts too
    assert (found / "samples_8_steps.png").is_file()
    assert (found / "samples_8_steps_even.png").is_file()


def test_a_job_for_likelihood_says_what_it_is_for(tmp_path: Path) -> None:
    result = find(mixture_denoiser(T=40), mixture_data(64, seed=0), tmp_path, pictures=0, **SMALL)
    assert "--for samples" in result.summary
    assert not list(tmp_path.glob("samples_*"))


def test_report_says_again_what_schedules_are_for(
    found: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["report", str(found), "-o", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Schedules for samples with DDIM")  # not how many steps are enough for bits/dim
    assert "has to be measured" in said
    likelihood = ScheduleSet.load(found / "schedules.json").options | {"objective": "elbo"}
    assert "--for samples" in caveat(likelihood)
    assert "best for neither" in caveat(likelihood | {"lambda": 0.5})


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = _run(["find", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.parametrize(
    "options, message",
    [
        (("--for", "samples", "--objective", "trajectory"), "Give one of the two"),
        (("--for", "likelihood", "--objective", "samples"), "Give one of the two"),
        (("--for", "likelihood", "--band", "0.1,5"), "--band is for --objective samples"),
        (("--exponent", "1"), "--exponent is for --objective samples"),
        (("--for", "likelihood", "--evenness", "0.1"), "--evenness is for --objective samples"),
        (("--cap", "2"), "--cap is for --objective samples"),
        (("--for", "samples", "--evenness", "1"), "not in the range 0.0<=x<1.0"),
        (("--for", "samples", "--cap", "0"), "not in the range x>0.0"),
        (("--for", "samples", "--band", "5"), "is not two numbers LOW,HIGH"),
        (("--for", "samples", "--band", "5,1"), "must begin below its end"),
        (("--for", "samples", "--sampler", "ancestral", "--eta", "1"), "eta is the noise of"),
        (("--objective", "trajectory", "--sampler", "ancestral"), "sampler of a trajectory must be one of"),
    ],
)
def test_conflicts_are_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    np.save(tmp_path / "data.npy", mixture_data(64, seed=0).numpy())
    code, output = run(capsys, MODEL, tmp_path / "data.npy", "-o", tmp_path / "out", "--no-check", *options)
    assert code == 2
    assert message in " ".join(output.split())
    assert not (tmp_path / "out" / "schedules.json").exists()


def test_every_number_of_the_objective_can_be_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    denoiser, data = mixture_denoiser(T=40), mixture_data(64, seed=0)
    asked = {"exponent": 2.0, "band": (0.05, 20.0), "cap": math.inf, "evenness": 0.0}
    found = find(denoiser, data, tmp_path / "plain", objective="samples", pictures=0, **asked, **SMALL).schedules
    assert found.options["band"] == [0.05, 20.0]
    assert not {"cap", "evenness"} & found.options.keys()  # as files have it that know neither
    np.save(tmp_path / "data.npy", data.numpy())
    typed = ("--exponent", "2", "--band", "0.05,20", "--cap", "inf", "--evenness", "0", "--pictures", "0")
    sizes = ("--samples", "24", "--heldout-samples", "24", "--tolerance", "0.1", "--budgets", "4,8", "--no-check")
    model = (MODEL, tmp_path / "data.npy", "-M", "T=40")
    code, output = run(capsys, *model, "-o", tmp_path / "typed", "--for", "samples", *typed, *sizes)
    assert code == 0, output
    again = ScheduleSet.load(tmp_path / "typed" / "schedules.json")
    assert [again[K].steps for K in range(1, 41)] == [found[K].steps for K in range(1, 41)]


def test_the_default_lies_between_the_band_alone_and_even_steps() -> None:
    statistics = estimate(mixture_denoiser(T=40), mixture_data(64, seed=0), progress=False, check=False)
    alone, default = (schedules_from(statistics, plan=SamplesPlan(band)) for band in (Band(), DEFAULT))
    squares = [
        sum((t - s) ** 2 for t, s in itertools.pairwise(steps))
        for steps in (alone[8].steps, default[8].steps, even_stride(statistics.process, 8).steps)
    ]
    assert squares == sorted(squares, reverse=True)
    assert len(set(squares)) == 3


def test_for_samples_is_the_objective_of_that_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "data.npy", mixture_data(48, seed=0).numpy())
    common = (MODEL, tmp_path / "data.npy", "--no-check", "--samples", 16, "--budgets", "4", "--json", "--quiet")
    for name, options in (("a", ("--for", "samples")), ("b", ("--objective", "samples"))):
        code, output = run(capsys, *common, "-o", tmp_path / name, *options)
        assert code == 0, output
        assert "Schedules for samples" in json.loads(output)["answer"]
    a, b = (ScheduleSet.load(tmp_path / name / "schedules.json") for name in "ab")
    assert all(a[K].steps == b[K].steps for K in (4, 8))
