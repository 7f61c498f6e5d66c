"""Texts and numbers of a race.json that others made: shown, not obeyed, and refused where they are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from dpstride import UnreadableFileError
from dpstride.cli.console import emit
from dpstride.racing.outcome import Race
from dpstride.report.race import save_race
from small_race import small_race

FORGED = "Written: everything, and it is fine"
TEXTS = {
    "a cursor that moves": "\x1b[2J\x1b]0;owned\x07",
    "a line of its own": f"DDIM\n{FORGED}\u2028{FORGED}",
    "TeX": r"$\frac{$",
    "half a character": "DDIM \ud800",
    "turned around": "\u202eMIDD\u2066",
    "a page": "x" * 100_000,
}


def changed(folder: Path, change: Any) -> Path:
    """race.json of a race, beside its schedules, with a change."""
    race = small_race()
    race.schedules.save(folder / "schedules.json")
    race.save(folder / "race.json")
    document = json.loads((folder / "race.json").read_text())
    change(document)
    (folder / "race.json").write_text(json.dumps(document))
    return folder / "race.json"


@pytest.mark.attack("text that forges or hides output")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_texts_of_a_race_reach_table_and_figure_as_escapes(text: str, tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document |= {"sampler": text, "measure": text, "notes": [text]}
        heat = document["heats"][0]
        heat["lead"] = [1.0, 9.0]  # so that its winner is named
        heat["rounds"][-1]["distances"][text] = heat["rounds"][-1]["distances"][heat["winner"]]
        heat["winner"] = text

    race = Race.load(changed(tmp_path, change), small_race().schedules)
    told = str(race)
    assert all(line.isprintable() for line in told.split("\n"))
    assert not any(line.startswith(FORGED) for line in told.split("\n"))
    assert len(told) < 20_000
    assert any(path.name == "distances.svg" for path in save_race(race, tmp_path))


@pytest.mark.attack("text that forges or hides output")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda race: race.update(samples=-5), r"samples, steps and evaluations must be whole numbers, 0 or more"),
        (lambda race: race["heats"][0]["rounds"][0].update(samples=-1), r"must be whole numbers, 0 or more"),
        (lambda race: race["evaluations"].update(race=-1), r"must be whole numbers, 0 or more"),
        (lambda race: race.update(margin=1e300), r"the margin 1e\+300 is not a distance"),
        (lambda race: race.update(margin=-1e300), r"the margin -1e\+300 is not a distance"),
    ],
)
def test_numbers_that_no_race_gives_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=message):
        Race.load(changed(tmp_path, change), small_race().schedules)


@pytest.mark.attack("text that forges or hides output")
def test_the_name_of_one_of_several_files_begins_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @click.option("--also", multiple=True, type=click.Path(path_type=Path))
    def verb(also: tuple[Path, ...]) -> None:
        emit(False, {}, f"{also[1]} wins")

    verb.main(["--also", "first.json", "--also", f"mine\n{FORGED}\n.json"], standalone_mode=False)
    assert capsys.readouterr().out == f"mine\\n{FORGED}\\n.json wins\n"
