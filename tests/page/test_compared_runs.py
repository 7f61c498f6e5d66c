"""Runs side by side: every number is the run's own, and runs that cannot be compared are refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from browser import Browser
from folders import HOSTILE, save_formula

from dpstride import ForwardProcess, ScheduleSet, compare_runs
from dpstride.cli import _run
from dpstride.evaluate.comparison import Comparison
from dpstride.evaluate.purpose import LIKELIHOOD_CAVEAT
from dpstride.runs.writing import write_json


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two processes on the same held-out data."""
    home = tmp_path_factory.mktemp("runs")
    return save_formula(home / "linear", ForwardProcess.linear(40)), save_formula(
        home / "cosine", ForwardProcess.cosine(24)
    )


def test_every_number_is_the_runs_own(pair: tuple[Path, Path]) -> None:
    found = compare_runs(pair)
    own = {folder.name: Comparison.load(folder / "comparison.json") for folder in pair}
    assert found.budgets == [8, 16]
    head, *rows = found.rows()
    assert head[1][:2] == ["8", "16"]
    for (name, cells), (_, errors) in zip(rows[::2], rows[1::2], strict=True):
        comparison = own[name]
        shown = [8, 16, comparison.best_budget]
        assert cells[:3] == [f"{comparison.curves['dp'][K][0]:.3f}" for K in shown]
        assert errors[:3] == [f"±{comparison.curves['dp'][K][1]:.3f}" for K in shown]
        assert cells[3:] == [str(comparison.best_budget), str(comparison.enough(0.1))]
    for K in found.budgets:
        best = min(own, key=lambda name: own[name].curves["dp"][K][0])
        assert next(part for part in found.sentence.split(": ")[1].split("; ") if part.startswith(best)).count(str(K))


def test_command_and_page(
    pair: tuple[Path, Path], tmp_path: Path, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "both"
    assert _run(["compare", *map(str, pair), "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {Path(file).name for file in found["files"]} == {
        "report.html", "table.txt", "bits_per_dim.svg", "bits_per_dim.png",
    }  # fmt: skip
    assert [note for note in found["notes"] if "--for samples" in note] == [LIKELIHOOD_CAVEAT]  # once for both runs
    own = Comparison.load(pair[0] / "comparison.json")
    assert found["runs"][0]["bits_per_dim"]["even"]["8"]["bpd"] == own.curves["even"][8][0]
    browser.emulate(390)
    browser.driver.get_log("browser")
    browser.driver.get((out / "report.html").as_uri())
    assert browser.complaints() == []
    assert browser.text("#answer") == found["answer"]
    assert "--for samples" in browser.script(
        "return [...document.querySelectorAll('#notes code')].map((code) => code.textContent)"
    )
    assert "`" not in browser.script("return document.body.innerText")
    assert browser.text("#scores tbody tr:nth-child(2) td").startswith(
        f"{Comparison.load(pair[1] / 'comparison.json').curves['dp'][8][0]:.3f}"
    )
    assert browser.script(
        "const image = document.getElementById('curves'); return image.complete && image.naturalWidth > 0"
    )
    assert browser.script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert _run(["compare", *map(str, pair), "-o", str(out)]) == 0  # again, over itself
    assert _run(["compare", *map(str, pair), "-o", str(pair[0])]) == 2
    assert "already holds results" in capsys.readouterr().err


def test_names_of_others_are_shown_and_never_run(pair: tuple[Path, Path], tmp_path: Path, browser: Browser) -> None:
    other = Path(shutil.copytree(pair[1], tmp_path / "<img src=x onerror=hack()>$x_{1$"))
    document = json.loads((other / "comparison.json").read_text())
    document["model"]["name"] = HOSTILE
    write_json(other / "comparison.json", document)
    compare_runs([pair[0], other]).save(tmp_path / "out")
    browser.driver.get_log("browser")
    browser.driver.get((tmp_path / "out" / "report.html").as_uri())
    assert browser.complaints() == []
    assert browser.script("return window.hacked === undefined && document.images.length === 1")
    assert HOSTILE[:40] in browser.text("#runs tbody tr:nth-child(2) td")


def test_runs_that_cannot_be_compared_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = pair
    with pytest.raises(ValueError, match="at least two different folders"):
        compare_runs([first, first])
    other = Path(shutil.copytree(second, tmp_path / "other"))
    (other / "heldout.safetensors").unlink()
    with pytest.raises(ValueError, match="does not say which held-out data"):
        compare_runs([first, other])
    ranged = Path(shutil.copytree(second, tmp_path / "ranged"))
    document = json.loads((ranged / "comparison.json").read_text())
    write_json(ranged / "comparison.json", document | {"raw": 8.0})
    with pytest.raises(ValueError, match=r"ranged was scored on data in another range .* than .*linear"):
        compare_runs([first, ranged])
    elsewhere = tmp_path / "elsewhere"
    save_elsewhere(elsewhere)
    with pytest.raises(ValueError, match=r"elsewhere was scored on other held-out data than .*linear"):
        compare_runs([first, elsewhere])


def save_elsewhere(folder: Path) -> None:
    """A run whose held-out data are others."""
    from folders import formula_statistics

    from dpstride.evaluate.comparison import compare

    save_formula(folder, process := ForwardProcess.linear(40))
    heldout = formula_statistics(process, 2)
    heldout.save(folder / "heldout.safetensors")
    compare(ScheduleSet.load(folder / "schedules.json"), heldout).save(folder / "comparison.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "dpstride-masked-schedules"}, "masked diffusion"),
        ({"stride": "raced"}, "for samples, whose quality bits/dim do not measure"),
        ({"options": {"objective": "samples"}}, r"dpstride tune MODEL DATA --also .*schedules\.json"),
    ],
)
def test_runs_in_other_units_are_refused(
    pair: tuple[Path, Path], tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    other = Path(shutil.copytree(pair[1], tmp_path / "other"))
    document = json.loads((other / "schedules.json").read_text())
    write_json(other / "schedules.json", document | changes)
    with pytest.raises(ValueError, match=message):
        compare_runs([pair[0], other])
