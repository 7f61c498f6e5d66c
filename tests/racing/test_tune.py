"""A whole race on a model known in closed form: what is measured, what is kept, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dpstride
from dpstride import Denoiser, Schedule, ScheduleSet, energy_distance, tune
from dpstride.evaluate.features.extractor import FeatureExtractor
from dpstride.evaluate.kernel_distance import feature_discrepancy
from dpstride.evaluate.sampling import Chain
from dpstride.objectives.band import SamplesPlan
from dpstride.racing.outcome import Race
from dpstride.racing.sampling import Own
from dpstride.runs.record import Run
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

T = 60
SMALL: dict[str, Any] = {
    "budgets": (2, 5), "samples": 24, "race_samples": 16, "first_samples": 8, "choosing": 16, "reference": 30,
}  # fmt: skip
DATA = mixture_data(160, seed=0)


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Race, Path]:
    folder = tmp_path_factory.mktemp("race") / "out"
    return tune(mixture_denoiser(T), DATA, folder, progress=False, **SMALL), folder


def x_of(denoiser: Denoiser, schedule: Schedule, n: int, seed: int) -> Tensor:
    chain = replace(Chain.along(denoiser, schedule, seed=seed), paired=True)
    x = chain.start(0, n)
    for step in range(chain.budget):
        x = chain.advance(x, step, 0)
    return x


def test_final_distances_are_of_fresh_noises_against_data_that_chose_nothing(raced: tuple[Race, Path]) -> None:
    race, _ = raced
    order = np.random.default_rng(0).permutation(len(DATA))
    chose, scored = DATA[order[:80]], DATA[order[80:]]
    for (name, K), entry in race.finish.entries.items():
        schedule = race.schedules.adopt(Schedule(race.schedules.process, entry.steps))
        x = x_of(mixture_denoiser(T), schedule, 24, seed=1)
        expected = energy_distance(x, scored / 127.5 - 1.0)
        assert entry.distance == pytest.approx(expected.value, abs=1e-6), (name, K)
        assert entry.standard_error == pytest.approx(expected.standard_error, abs=1e-6)
    heat = race.heats[0]
    winner = race.schedules[heat.budget]
    x = x_of(mixture_denoiser(T), winner, 16, seed=0)
    own = energy_distance(x, chose / 127.5 - 1.0)
    assert heat.rounds[-1].distances[heat.winner] == pytest.approx((own.value, own.standard_error), abs=1e-6)


def test_differences_are_paired(raced: tuple[Race, Path]) -> None:
    race, _ = raced
    order = np.random.default_rng(0).permutation(len(DATA))
    real = DATA[order[80:]] / 127.5 - 1.0
    model, K = mixture_denoiser(T), 5
    ours, even, many = (
        energy_distance(x_of(model, race.schedules.adopt(Schedule(model.process, steps)), 24, seed=1), real)
        for steps in (
            race.finish.entries["raced", K].steps,
            race.finish.entries["even", K].steps,
            race.finish.reference.steps,
        )
    )
    entry = race.finish.entries["even", K]
    assert entry.ahead == pytest.approx(even.minus(ours), abs=1e-6)
    assert entry.beyond == pytest.approx(even.minus(many), abs=1e-6)


def test_there_is_a_schedule_of_every_number_of_steps_that_carries_its_sampler(raced: tuple[Race, Path]) -> None:
    race, folder = raced
    kept = ScheduleSet.load(folder / "schedules.json")
    assert kept.budgets == [1, 2, 3, 4, 5]
    assert kept.sampler == "ddim"
    assert kept.stride == "raced"
    assert [kept[K].steps for K in kept.budgets] == [race.schedules[K].steps for K in kept.budgets]
    assert kept.provenance["race"]["5"] == race.heats[1].winner
    assert dpstride.sample(mixture_denoiser(T), kept[3], 2).shape == (2, 1, 4, 4)


def test_race_json_and_table_hold_the_answer(raced: tuple[Race, Path]) -> None:
    race, folder = raced
    document = json.loads((folder / "race.json").read_text())
    assert document["format"] == "dpstride-race-1"
    assert document["answer"] == race.answer
    assert document["run"] == Run.load(folder / "run.json").id
    assert race.answer in (folder / "table.txt").read_text()
    assert {entry["name"] for entry in document["entries"]} >= {"raced", "even", "quadratic", "karras", "elbo"}
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "report.html",
        "distances.svg",
        "distances.png",
        "samples_5_steps.png",
        "samples_5_steps_even.png",
        "samples_real.png",
    }
    assert {path.name for path in race.files} <= names


def test_an_interrupted_race_goes_on_and_ends_the_same(raced: tuple[Race, Path], tmp_path: Path) -> None:
    race, folder = raced
    model, calls = mixture_denoiser(T), {"left": 0, "made": 0}

    def network(x: Tensor, time: Tensor) -> Tensor:
        calls["left"] -= 1
        calls["made"] += 1
        if calls["left"] == 0:
            raise KeyboardInterrupt
        return model.network(x, time)

    stopped = Denoiser(network, model.process, predicts="x0", shape=(1, 4, 4), name=model.name)
    for left in (90, 150, 150):  # in the race, and at the end
        calls["left"] = left
        with pytest.raises(KeyboardInterrupt):
            tune(stopped, DATA, tmp_path / "out", progress=False, **SMALL)
    calls["left"] = -1
    again = tune(stopped, DATA, tmp_path / "out", progress=False, **SMALL)
    assert str(again) == str(race)
    for name in ("table.txt", "distances.svg"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    calls["made"] = 0
    tune(stopped, DATA, tmp_path / "out", progress=False, **SMALL)
    assert calls["made"] < 120  # probes; nothing is drawn or followed again


def test_more_samples_are_added_to_those_that_are_kept(raced: tuple[Race, Path]) -> None:
    _, folder = raced
    before = {path: path.stat().st_mtime_ns for path in (folder / "draws").iterdir()}
    more = tune(mixture_denoiser(T), DATA, folder, progress=False, **{**SMALL, "samples": 32})
    assert more.finish.samples == 32
    assert any(
        path.stat().st_mtime_ns == when for path, when in before.items()
    )  # those of the race are not drawn again
    tune(mixture_denoiser(T), DATA, folder, progress=False, **SMALL)


def test_another_sampler_in_the_folder_is_refused(raced: tuple[Race, Path]) -> None:
    _, folder = raced
    with pytest.raises(ValueError, match=r"sampler.*DDIM.*ancestral"):
        tune(mixture_denoiser(T), DATA, folder, progress=False, **SMALL, sampler="ancestral")


# --- samplers and measures -------------------------------------------------------------------------------------------------


def own_ddim(denoiser: Denoiser, schedule: Schedule, noise: Tensor) -> Tensor:
    """DDIM from its paper: predict x_0, keep the noise."""
    x, f, g = noise, denoiser.process.f, denoiser.process.g
    for t, s in zip(schedule.steps, schedule.steps[1:], strict=False):
        x0 = denoiser(x, t).x0_hat
        x = f[s] * x0 + g[s] * (x - f[t] * x0) / g[t]
    return x


def test_a_sampler_of_the_users_own_is_raced_like_ours(raced: tuple[Race, Path], tmp_path: Path) -> None:
    race, _ = raced
    own = tune(mixture_denoiser(T), DATA, tmp_path / "own", progress=False, **SMALL, sampler=own_ddim)
    assert "own_ddim" in own.answer
    assert [heat.winner for heat in own.heats] == [heat.winner for heat in race.heats]
    followed = {
        key for key in race.finish.entries if key[0] == "trajectory"
    }  # what an unknown sampler follows is not known
    assert own.finish.entries.keys() == race.finish.entries.keys() - followed
    for key, entry in own.finish.entries.items():
        assert entry.distance == pytest.approx(race.finish.entries[key].distance, abs=1e-5)
    assert own.evaluations["finish"] == race.evaluations["finish"] - 24 * sum(K for _, K in followed)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda denoiser, schedule, noise: noise[:, 0], r"must return samples of the noise's shape \(\d+, 1, 4, 4\)"),
        (lambda denoiser, schedule, noise: None, r"it returned NoneType"),
        (lambda denoiser, schedule, noise: noise * torch.nan, r"returned NaN or infinity along \[60"),
    ],
)
def test_a_sampler_that_returns_something_else_is_refused(wrong: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        tune(mixture_denoiser(T), DATA, tmp_path / "out", progress=False, **SMALL, sampler=Own(wrong, "wrong"))


def test_a_sampler_with_a_fourth_argument_gets_the_conditioning(tmp_path: Path) -> None:
    seen = []

    def network(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        return mixture_denoiser(T).network(x, time)

    def sampler(denoiser: Denoiser, schedule: Schedule, noise: Tensor, conditioning: Any) -> Tensor:
        seen.append(conditioning)
        return denoiser(noise, schedule.steps[0], conditioning).x0_hat

    model = Denoiser(network, mixture_denoiser(T).process, predicts="x0", shape=(1, 4, 4))
    labels = torch.arange(len(DATA)) % 3
    options = {**SMALL, "budgets": (2,), "samples": 8, "race_samples": 8}
    tune(model, (DATA, labels), tmp_path / "out", progress=False, **options, sampler=sampler, seed=4)
    order = np.random.default_rng(4).permutation(len(DATA))
    assert any(torch.equal(each, labels[order[:8]]) for each in seen)  # those of real data, the same for every path


def features_of(images: Tensor) -> Tensor:
    return images.double().flatten(1)[:, :3] / 255.0


def test_features_are_measured_by_the_kernel_distance(tmp_path: Path) -> None:
    extractor = FeatureExtractor("three", "Fréchet distance, three", 3, "1", features_of)
    race = tune(mixture_denoiser(T), DATA, tmp_path / "out", progress=False, **SMALL, features=extractor)
    entry = race.finish.entries["raced", 5]
    x = x_of(mixture_denoiser(T), race.schedules.adopt(Schedule(race.schedules.process, entry.steps)), 24, seed=1)
    levels = ((x + 1.0) * 127.5 + 0.5).floor().clamp(0, 255).to(torch.uint8)
    real = DATA[np.random.default_rng(0).permutation(len(DATA))[80:]]
    expected = feature_discrepancy(features_of(levels).numpy(), features_of(real).numpy())
    assert entry.distance == pytest.approx(expected.value, abs=1e-6)
    assert entry.frechet is not None
    assert race.measure == "kernel distance of three features"


def test_schedules_of_the_users_own_race_too(tmp_path: Path) -> None:
    model = mixture_denoiser(T)
    kept = model.process.subset(np.arange(0, T + 1, 5))
    own = ScheduleSet.of([dpstride.even_stride(kept, 2), dpstride.even_stride(kept, 3)])
    own.save(tmp_path / "mine.json")
    race = tune(model, DATA, tmp_path / "out", progress=False, **SMALL, also={"mine": tmp_path / "mine.json"})
    raced = race.heats[0].rounds[0].distances
    assert "mine" not in raced  # the same path as even steps', which come first
    other = dpstride.PublishedSchedules("by hand", timesteps={"2": [59, 24]}, training_steps=T)  # 60, 25, 0 of the grid
    race = tune(model, DATA, tmp_path / "other", progress=False, **SMALL, also={"mine": other})
    chain_steps = replace(race.schedules[2], steps=(60, 25, 0))
    x = x_of(model, chain_steps, 8, seed=0)
    real = DATA[np.random.default_rng(0).permutation(len(DATA))[:80]] / 127.5 - 1.0
    assert race.heats[0].rounds[0].distances["mine"][0] == pytest.approx(energy_distance(x, real).value, abs=1e-6)
    assert "mine" not in race.heats[1].rounds[0].distances  # it has no path of 5 steps
    entry = race.finish.entries["mine", 2]
    again = x_of(model, replace(chain_steps, steps=entry.steps), 24, seed=1)
    scored = DATA[np.random.default_rng(0).permutation(len(DATA))[80:]] / 127.5 - 1.0
    assert entry.steps == (60, 25, 0)
    assert entry.distance == pytest.approx(energy_distance(again, scored).value, abs=1e-6)
    assert ("mine", 5) not in race.finish.entries
    assert (
        Race.load(tmp_path / "other" / "race.json", race.schedules).finish.entries.keys() == race.finish.entries.keys()
    )


def test_schedules_of_another_process_or_by_a_name_that_is_taken_are_refused(tmp_path: Path) -> None:
    other = ScheduleSet.of([dpstride.even_stride(dpstride.ForwardProcess.cosine(T), 2)])
    with pytest.raises(ValueError, match="which is not a subset of this model"):
        tune(mixture_denoiser(T), DATA, tmp_path / "out", **SMALL, also={"mine": other})
    own = ScheduleSet.of([dpstride.even_stride(mixture_denoiser(T).process, 2)])
    with pytest.raises(ValueError, match="'even' is the name of another candidate"):
        tune(mixture_denoiser(T), DATA, tmp_path / "out", **SMALL, also={"even": own})


def test_variances_race_along_the_winners_paths_and_paths_again_with_the_winner(tmp_path: Path) -> None:
    def run(name: str, **options: Any) -> Race:
        return tune(mixture_denoiser(T), DATA, tmp_path / name, progress=False, **SMALL, sampler="ancestral", **options)

    race, first = run("out"), run("first", variance="optimal")
    assert first.variances == ()
    assert first.schedules.options["variance"] == "optimal"
    assert [set(heat.rounds[0].distances) for heat in race.variances] == [{"posterior", "upper", "optimal"}] * 2
    real = DATA[np.random.default_rng(0).permutation(len(DATA))[:80]] / 127.5 - 1.0
    statistics = dpstride.Statistics.load(tmp_path / "out" / "statistics.safetensors")
    shares = dict.fromkeys(race.variances[0].rounds[0].distances, 0.0)
    for heat in race.variances:
        own = {}
        for name in shares:
            plan = SamplesPlan(sampler="ancestral")
            base = dpstride.schedules_from(statistics, name, plan=plan, max_budget=5)  # type: ignore[arg-type]
            path = base.adopt(Schedule(base.process, first.schedules[heat.budget].steps))
            own[name] = energy_distance(x_of(mixture_denoiser(T), path, 16, seed=0), real).value
            assert heat.rounds[0].distances[name][0] == pytest.approx(own[name], abs=1e-6)
        shares = {name: shares[name] + own[name] / max(own.values()) for name in shares}
    chosen = min(shares, key=lambda name: shares[name])
    assert chosen != "optimal"  # or what follows would show nothing
    assert race.schedules.options["variance"] == chosen
    again = run("again", variance=chosen)
    assert [heat.to_dict() for heat in race.heats] == [heat.to_dict() for heat in again.heats]
    assert [race.schedules[K].steps for K in race.schedules.budgets] == [again.schedules[K].steps for K in range(1, 6)]
    assert race.evaluations["race"] > first.evaluations["race"] + again.evaluations["race"]


def test_without_evaluations_for_a_second_race_the_variance_stays_that_of_the_paths(tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "sampler": "ancestral", "progress": False}
    first = tune(mixture_denoiser(T), DATA, tmp_path / "first", variance="optimal", **options)
    said: list[str] = []
    limit = sum(first.evaluations.values()) + 1000
    race = tune(mixture_denoiser(T), DATA, tmp_path / "out", evaluations=limit, say=said.append, **options)
    assert any("too low for paths to race again, so optimal stays" in text for text in said)
    assert race.schedules.options["variance"] == "optimal"
    assert sum(race.evaluations.values()) <= limit


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budgets": (2, 61)}, r"evaluations from 1 to 60 \(1 to T = 60 steps\), not 61"),
        ({"budgets": ()}, r"at least one number of steps"),
        ({"reference": 100}, r"reference must be .* from 1 to T = 60, not 100"),
        ({"samples": 2}, r"samples must be a whole number of at least 3, not 2"),
        ({"within": 0.0}, r"within must be a positive distance, not 0.0"),
        ({"sampler": "dimm"}, r"sampler must be one of"),
        ({"sampler": 7}, r"A sampler must be one of .* or a function"),
        ({"eta": 0.5, "sampler": "ancestral"}, r"eta is the noise of"),
        ({"features": "mine"}, r"features must be fashion, inception"),
        ({"evaluations": 100}, r"100 network evaluations are too few: .* take about [\d,]+\. Allow at least that many"),
    ],
)
def test_wrong_requests_are_refused_before_the_network_runs(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    def network(x: Tensor, time: Tensor) -> Tensor:
        raise AssertionError("the network ran")

    model = Denoiser(network, mixture_denoiser(T).process, predicts="x0", shape=(1, 4, 4))
    with pytest.raises(ValueError, match=message):
        tune(model, DATA, tmp_path / "out", progress=False, **{**SMALL, **change})
    assert not (tmp_path / "out" / "run.json").exists()


def test_too_few_real_samples_and_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"DATA has 20 samples to measure by, and .* at least 32"):
        tune(mixture_denoiser(T), DATA[:40], tmp_path / "out", **SMALL)
    with pytest.raises(TypeError, match=r"tune has no option 'budget'\. Did you mean budgets\?"):
        tune(mixture_denoiser(T), DATA, tmp_path / "out", budget=(4,))


def test_features_of_data_that_are_no_images_are_refused(tmp_path: Path) -> None:
    model = Denoiser(lambda x, time: 0.0 * x, mixture_denoiser(T).process, predicts="x0", shape=(7,), clip=None)
    with pytest.raises(ValueError, match=r"features need images .* shape \[7\]\. Leave them out"):
        tune(model, torch.randn(100, 7), tmp_path / "out", data_range="continuous", features="inception", **SMALL)
