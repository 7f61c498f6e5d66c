"""race.json is read as it was written, and refused where it was not."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from dpstride import UnreadableFileError
from dpstride.racing.outcome import Race
from small_race import small_race


def saved(folder: Path) -> dict[str, Any]:
    small_race().save(folder / "race.json", "a name")
    document: dict[str, Any] = json.loads((folder / "race.json").read_text())
    return document


def test_a_race_is_read_as_it_was_written(tmp_path: Path) -> None:
    race = small_race()
    saved(tmp_path)
    again = Race.load(tmp_path / "race.json", race.schedules)
    assert again == race
    assert str(again) == str(race)
    assert again.findings == race.findings


def change(document: dict[str, Any], *places: Any) -> None:
    *outer, last, value = places
    for place in outer:
        document = document[place]
    document[last] = value


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (("format", "other"), r"format 'other' is not 'dpstride-race-1'"),
        (("heats", []), r"it must have at least one heat"),
        (("heats", 0, "rounds", []), r"a round without candidates, or a winner that was not in it"),
        (("heats", 0, "winner", "nobody"), r"a winner that was not in it"),
        (("heats", 0, "budget", 5), r"in ascending order of steps and without repeats"),
        (("heats", 0, "lead", [1e-200, 1e90]), r"not a race"),
        (("heats", 0, "stopped", 1), r"stopped is 1, not bool"),
        (("entries", 0, "name", "<b>"), r"it has no distance of raced steps at 2 steps"),
        (("entries", 0, "name", 3), r"name is 3, not str"),
        (("passes", {"step": 0}), r"passes must be a whole number"),
        (("passes", {"steps": 2}), r"not a race"),
        (("entries", 0, "steps", [20, 9, 0]), r"the raced path of 2 steps is not that of schedules.json"),
        (("entries", 0, "steps", [21, 9, 0]), r"steps must fall strictly from at most T = 20"),
        (("entries", 0, "budget", 3), r"the path of 3 steps has 2"),
        (("entries", 0, "distance", 1e308), r"1e\+308 ± 0.01 is not a distance"),
        (("entries", 0, "standard_error", -1.0), r"± -1.0 is not a distance"),
        (("entries", 2, "ahead", [1.0]), r"ahead is \(1.0,\)"),
        (("enough", {"raced": 5}), r"it must say how many steps are enough for raced and even"),
        (("enough", "even", 3), r"3 steps are listed as enough, but were not measured"),
        (("scale", 0), r"scale is 0, not a positive number"),
        (("sampler", 3), r"sampler, measure and notes must be strings"),
        (("notes", [3]), r"sampler, measure and notes must be strings"),
        (("evaluations", {"finish": 1, "race": "many"}), r"evaluations must be whole numbers"),
    ],
)
def test_a_file_that_is_not_of_this_race_is_refused(places: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    document = saved(tmp_path)
    change(document, *places)
    (tmp_path / "race.json").write_text(json.dumps(document))
    with pytest.raises(UnreadableFileError, match=message) as refusal:
        Race.load(tmp_path / "race.json", small_race().schedules)
    assert str(refusal.value).startswith(f"{tmp_path / 'race.json'}: not a race that `dpstride tune` wrote")


def test_distances_without_even_steps_are_refused(tmp_path: Path) -> None:
    document = saved(tmp_path)
    document["entries"] = [entry for entry in document["entries"] if entry["name"] != "even"]
    (tmp_path / "race.json").write_text(json.dumps(document))
    with pytest.raises(UnreadableFileError, match=r"it has no distance of even steps at 2 steps"):
        Race.load(tmp_path / "race.json", small_race().schedules)


def test_where_samples_are_too_few_to_tell_it_says_how_many_would() -> None:
    """The upper end of the interval falls below the margin at 1.96 · error/√(n/24) < margin − difference."""
    race = small_race()
    finish = race.finish
    most = dataclasses.replace(finish.entries["raced", 5], beyond=(0.01, 0.03))
    unsure = dataclasses.replace(
        finish, entries={**finish.entries, ("raced", 5): most}, enough={"raced": None, "even": None}
    )
    found = dataclasses.replace(race, finish=unsure)
    assert "no number of steps up to 5 is shown to give samples as close to real data as 10 even steps" in found.answer
    (said,) = [note for note in found.findings if "as close" in note]
    n = math.ceil(24 * (1.96 * 0.03 / 0.01) ** 2)
    assert f"about {n:,} samples of each would decide" in said
    assert 0.01 + 1.96 * 0.03 * math.sqrt(24 / n) <= 0.02 < 0.01 + 1.96 * 0.03 * math.sqrt(24 / (n - 1))
    far = dataclasses.replace(most, beyond=(0.03, 0.001))  # no number of samples makes this as close
    for other in (far, most):
        entries, enough = {**finish.entries, ("raced", 5): other}, {"raced": None if other is far else 5, "even": None}
        told = dataclasses.replace(race, finish=dataclasses.replace(finish, entries=entries, enough=enough))
        assert not [note for note in told.findings if "would decide, if the measured difference is real" in note]


def test_samples_that_are_surely_closer_than_the_reference_are_not_only_as_close() -> None:
    """On two moons 50 even steps were at 2,220 ± 44 and 4 raced ones at 58.7 ± 13, and that was called as close."""
    race = small_race()
    finish = race.finish
    for beyond, said in (((-0.1, 0.03), "closer to real data than"), ((-0.05, 0.03), "as close to real data as")):
        raced = dataclasses.replace(finish.entries["raced", 5], beyond=beyond)
        other = dataclasses.replace(finish, entries={**finish.entries, ("raced", 5): raced})
        found = dataclasses.replace(race, finish=other)
        assert f"5 steps give samples {said} 10 even steps" in found.answer
        doubts = [
            note for note in found.findings if "10 even steps are farther from real data than those of 5 steps" in note
        ]
        assert bool(doubts) == ("closer" in said)


def test_large_distances_have_no_exponents() -> None:
    race = small_race()
    finish = race.finish
    far = dataclasses.replace(finish.entries["even", 5], distance=14.84, standard_error=0.8123)
    other = dataclasses.replace(race, finish=dataclasses.replace(finish, entries={**finish.entries, ("even", 5): far}))
    assert "14,800 ± 810" in other.table()
