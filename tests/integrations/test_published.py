"""Published lists become the paths that they say, on the model that they are for and on no other."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstride
from dpstride import ForwardProcess, PublishedSchedules, Schedule, ScheduleSet, UnreadableFileError
from dpstride.cli import _run
from dpstride.integrations.published import read_schedules

LINEAR = ForwardProcess.linear(1000)
LISTS = {"2": [999, 400], "4": [999, 750, 400, 90]}


def test_timesteps_are_those_of_the_training_steps(tmp_path: Path) -> None:
    PublishedSchedules("four", timesteps=LISTS, training_steps=1000, source="here", sampler="ddim").save(
        tmp_path / "p.json"
    )
    found = read_schedules(tmp_path / "p.json")
    assert isinstance(found, PublishedSchedules)
    schedules = found.on(LINEAR)
    for key, numbers in LISTS.items():
        assert schedules[int(key)].for_diffusers() == numbers
    assert schedules.sampler == "ddim"
    assert schedules.provenance["published"] == {
        "name": "four", "source": "here", "sampler": "ddim", "training_steps": 1000,
    }  # fmt: skip
    thinned = LINEAR.subset([91, 401, 751, 1000])
    assert found.on(thinned)[4].steps == (4, 3, 2, 1, 0)
    with pytest.raises(ValueError, match="visits training step 400, which the model's grid does not have"):
        found.on(LINEAR.subset([91, 500, 751, 1000]))


def test_sigmas_go_to_the_nearest_levels() -> None:
    exact = [float(LINEAR.g[t] / LINEAR.f[t]) for t in (1000, 600, 70)]
    found = PublishedSchedules("levels", sigmas={"3": [1.001 * exact[0], 1.001 * exact[1], exact[2]]})
    assert found.on(LINEAR)[3].steps == (1000, 600, 70, 0)
    flow = ForwardProcess.rectified_flow(10)
    assert PublishedSchedules("flow", sigmas={"3": [1.0, 0.52, 0.2]}).on(flow)[3].steps == (10, 5, 2, 0)


@pytest.mark.attack("files that take memory, time or other files")
def test_far_more_noise_levels_than_the_grid_has_take_little_memory() -> None:
    """A file of two megabytes took some two gigabytes: a table of every level beside every grid point."""
    end = float(LINEAR.g[-1] / LINEAR.f[-1])
    found = PublishedSchedules("many", sigmas={"100000": np.linspace(end, 1e-3, 100_000).tolist()})
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="fall on one point of the model's grid"):
            found.on(LINEAR)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "process", [LINEAR, ForwardProcess.rectified_flow(12), ForwardProcess.ve([0.0, *np.geomspace(0.01, 80, 30)])]
)
def test_what_is_published_comes_back(process: ForwardProcess, tmp_path: Path) -> None:
    T = process.T
    own = ScheduleSet.of([Schedule(process, (T, T // 2, 3, 0)), Schedule(process, (T, 0))])
    PublishedSchedules.of(own, "mine").save(tmp_path / "p.json")
    again = PublishedSchedules.load(tmp_path / "p.json").on(process)
    assert [schedule.steps for schedule in again] == [schedule.steps for schedule in own]
    assert PublishedSchedules.of(own, "mine", budgets=[1]).budgets == [1]


def test_schedules_of_another_model_are_refused() -> None:
    steps = PublishedSchedules("four", timesteps=LISTS, training_steps=1000)
    with pytest.raises(ValueError, match=r"counts 1,000 training steps, and the model's process 'linear' has 500"):
        steps.on(ForwardProcess.linear(500))
    with pytest.raises(ValueError, match="'rectified_flow' has none"):
        steps.on(ForwardProcess.rectified_flow(1000))
    with pytest.raises(ValueError, match=r"begins its 2 steps at noise level 14\.6, but the model's noise end is 157"):
        PublishedSchedules("ays", sigmas={"2": [14.6, 0.5]}).on(LINEAR)
    with pytest.raises(ValueError, match="fall on one point of the model's grid"):
        PublishedSchedules("fine", sigmas={"3": [1.0, 0.5, 0.49]}).on(ForwardProcess.rectified_flow(4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timesteps": {}}, "either timesteps or sigmas"),
        ({"sigmas": {"1": [3.0]}}, "either timesteps or sigmas"),
        ({"training_steps": None}, "need training_steps"),
        ({"timesteps": {"3": [999, 4]}}, "'3' steps has 2 numbers"),
        ({"timesteps": {"2": [4, 999]}}, "must be strictly decreasing"),
        ({"timesteps": {"2": [4, -1]}}, "counted from 0"),
        ({"timesteps": {"2": [4.5, 1]}}, "timesteps is"),
        ({"timesteps": {}, "sigmas": {"2": [4.5, 0.0]}}, "must be above 0"),
        ({"name": 3}, "name is 3"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"format": "published-schedules-2"}, "is not 'published-schedules-1'"),
    ],
)
def test_damaged_files_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    document = {
        "format": "published-schedules-1",
        "name": "four",
        "training_steps": 1000,
        "timesteps": LISTS,
        **changes,
    }
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(UnreadableFileError, match=rf"p\.json: not published schedules \(.*{message}"):
        PublishedSchedules.load(tmp_path / "p.json")


def test_samples_are_drawn_along_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    model = "from small_network import denoiser_of\n\ndef model():\n    return denoiser_of(shape=(2, 3))\n"
    Path("published_model.py").write_text(model)
    PublishedSchedules("two", timesteps={"2": [8, 3]}, training_steps=9).save("p.json")
    assert _run(["sample", "published_model:model", "p.json", "-k", "2", "-n", "3", "-o", "s.npy", "-q"]) == 0
    from small_network import PROCESS, denoiser_of

    expected = dpstride.sample(denoiser_of(shape=(2, 3)), Schedule(PROCESS, (9, 4, 0)), n=3)
    np.testing.assert_array_equal(np.load("s.npy"), expected.numpy())
    assert _run(["sample", "published_model:model", "p.json", "-k", "3", "-o", "t.npy", "-q"]) == 2
