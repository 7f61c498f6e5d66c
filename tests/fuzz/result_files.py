"""Good files of results, and what is done with what was read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dpstride
from dpstride import ForwardProcess
from small_race import small_race

ROOT = Path(__file__).parents[2]
IMAGES = torch.randint(0, 256, (6, 1, 4, 4), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


# --- our own artefacts -------------------------------------------------------------------------------------------------


def denoiser(learned: bool = False) -> Any:
    def network(x: Any, time: Any) -> Any:
        estimate = 0.1 * x
        return torch.cat([estimate, estimate.tanh()], dim=1) if learned else estimate

    variance: Any = "learned_range" if learned else "posterior"
    return dpstride.Denoiser(network, ForwardProcess.linear(6), variance=variance, name="small")


def make_statistics(folder: Path) -> None:
    dpstride.estimate(denoiser(), IMAGES, progress=False).save(folder / "a.safetensors")
    dpstride.estimate(denoiser(learned=True), IMAGES, seed=1, progress=False).save(folder / "b.safetensors")


def use_statistics(found: list[Any]) -> None:
    for statistics in found:
        for decoder in ("upper", "optimal"):
            dpstride.schedules_from(statistics, decoder=decoder)


def make_schedules(folder: Path) -> None:
    statistics = dpstride.estimate(denoiser(), IMAGES, progress=False)
    dpstride.schedules_from(statistics, "optimal", "optimal").save(folder / "schedules.json")


def use_schedules(schedules: Any) -> None:
    from dpstride.evaluate.comparison import compare

    for schedule in schedules:
        assert schedule.times[-1] == 0.0
    assert schedules.best_budget in schedules
    schedules.within(0.1)
    repr(schedules)
    compare(schedules, dpstride.estimate(denoiser(), IMAGES[:2], seed=3, progress=False))


def make_published(folder: Path) -> None:
    lists = {"1": [999], "3": [999, 500, 20]}
    dpstride.PublishedSchedules("p", timesteps=lists, training_steps=1000, sampler="ddim").save(
        folder / "published.json"
    )


def use_published(published: Any) -> None:
    schedules = published.on(dpstride.ForwardProcess.linear(1000))
    assert schedules.budgets == published.budgets
    assert all(schedule.steps[-1] == 0 for schedule in schedules)


def make_masked(folder: Path) -> None:
    model = dpstride.MaskedDenoiser(lambda tokens: torch.zeros(*tokens.shape, 3), 3, 3, 6, name="small")
    statistics = dpstride.estimate_masked(model, np.zeros((2, 6), dtype=np.int64), progress=False)
    statistics.save(folder / "a.safetensors")
    dpstride.masked_schedules(statistics).save(folder / "schedules.json")


def make_comparison(folder: Path) -> None:
    from dpstride.evaluate.comparison import compare

    schedules = dpstride.schedules_from(dpstride.estimate(denoiser(), IMAGES, progress=False))
    compare(schedules, dpstride.estimate(denoiser(), IMAGES[:3], seed=3, progress=False)).save(
        folder / "comparison.json"
    )


def read_comparison(folder: Path) -> Any:
    from dpstride.evaluate.comparison import Comparison

    return Comparison.load(folder / "comparison.json")


def use_comparison(comparison: Any) -> None:
    from dpstride.report.text import comparison_table

    comparison_table(comparison)
    comparison.sentence()
    comparison.save("/dev/null")


def make_study(folder: Path) -> None:
    from dpstride.evaluate.ablation import Ablation
    from dpstride.study.agreement import Agreement
    from dpstride.study.results import Distance, StudyResults

    curve = {K: (4.0 / K, 0.1) for K in (1, 2, 6)}
    distance = Distance("dp", 2, 64, 3.0, 0.5, 0.1, 2.0, 0.1)
    StudyResults(
        model={"name": "small"},
        process={"T": 6, "name": "linear", "kind": "discrete"},
        data={"choosing": {"samples": 4, "seed": 0}, "heldout": {"samples": 4, "seed": 1}, "reference": {"images": 9}},
        options={"variance": "posterior", "decoder": "upper"},
        settings={"samples": 64, "sampler": "ancestral"},
        curves={"even": curve, "quadratic": curve, "dp": curve},
        paths={1: (6.0, 0.0), 2: (6.0, 2.0, 0.0)},
        features={"distance": "Fréchet distance", "name": "small features"},
        distances=(distance,),
        floor=distance,
        ablation=Ablation((2, 4), (1, 2), (((2.0, 1.0), (2.1, 1.1)), ((2.0, 1.0),)), "sample", 1.0),
        agreement=Agreement(0.9, 6, 5, 6),
        notes=("a note",),
    ).save(folder / "results.json")


def read_study(folder: Path) -> Any:
    from dpstride.study.results import StudyResults

    return StudyResults.load(folder / "results.json")


def use_study(results: Any) -> None:
    assert results.comparison.sentence()
    assert results.sentence is None or isinstance(results.sentence, str)
    from dpstride.report.tables import study_tables

    for table in study_tables(results):
        assert table.text()
        assert table.markdown()
        assert table.latex()


def make_adaptive(folder: Path) -> None:
    from dpstride.adaptive.report import AdaptiveReport, Regret

    report = AdaptiveReport(6, 4, (6, 3, 1), 2, 0.1, {2: Regret(0.01, 0.0, 0.05)}, "noise", 30)
    report.save(folder / "adaptive.json")


def read_adaptive(folder: Path) -> Any:
    from dpstride.adaptive.report import AdaptiveReport

    return AdaptiveReport.load(folder / "adaptive.json")


def make_trajectory(folder: Path) -> None:
    process = ForwardProcess.linear(6)
    denoiser = dpstride.Denoiser(lambda x, time: 0.5 * x, process, predicts="x0", shape=(1, 2, 2))
    dpstride.estimate_trajectory(denoiser, 2, checkpoint=folder / "a.safetensors", progress=False)


def use_trajectory(trajectory: Any) -> None:
    for sampler in ("ddim", "dpmpp_2m"):
        dpstride.solve(dpstride.trajectory_costs(trajectory, sampler))


def make_run(folder: Path) -> None:
    from dpstride.runs.record import Run

    Run.of(["find", "a", "b"], "a", "b", None).save(folder)


def read_run(folder: Path) -> Any:
    from dpstride.runs.record import Run

    return Run.load(folder / "run.json")


def make_front(folder: Path) -> None:
    from dpstride.report.front import Front, FrontPoint

    Front(
        5.0, {2: (FrontPoint(3.0, 3.1, 0.5, 0.0, 4.0, (4, 2, 0)), FrontPoint(3.2, 3.3, 0.2, 4.0, None, (4, 1, 0)))}
    ).save(folder)


def read_front(folder: Path) -> Any:
    from dpstride.report.front import Front

    return Front.load(folder / "front.json")


def use_front(front: Any) -> None:
    from dpstride.report.page.document import _front

    json.dumps(_front(front), allow_nan=False)


def make_race(folder: Path) -> None:
    small_race().schedules.save(folder / "schedules.json")
    small_race().save(folder / "race.json")


def read_race(folder: Path) -> Any:
    from dpstride.racing.outcome import Race

    return Race.load(folder / "race.json", dpstride.ScheduleSet.load(folder / "schedules.json"))


def use_race(race: Any) -> None:
    from dpstride.report.race_page import SavedRace, race_document

    assert race.answer
    assert race.table()
    race.save("/dev/null")
    json.dumps(race_document(SavedRace(Path("nowhere"), race)), allow_nan=False)


def make_features(folder: Path) -> None:
    from dpstride.evaluate.stream import FORMAT
    from dpstride.runs.storage import write_arrays

    arrays = {"features": np.random.default_rng(0).normal(size=(6, 3)), "images": IMAGES.numpy()}
    write_arrays(folder / "a.safetensors", arrays, {"format": FORMAT, "identity": '{"kind": "images"}'})


def read_features(folder: Path) -> Any:
    from dpstride.evaluate.stream import load_features

    return load_features(folder / "a.safetensors")
