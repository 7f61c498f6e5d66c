"""The page of a race: its numbers are those of race.json, in a real browser."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from folders import HOSTILE, rewrite

from dpstride import ScheduleSet, even_stride, tune
from dpstride.cli import _run
from dpstride.integrations.export import sigmas, timesteps
from dpstride.racing.finish import Entry
from dpstride.racing.outcome import Race
from dpstride.racing.passes import Passes
from dpstride.report.race_page import SavedRace, race_document, write_race_page
from dpstride.zoo.mixture import mixture_data, mixture_denoiser
from small_race import small_race

T = 60


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real race left; not to be changed."""
    folder = tmp_path_factory.mktemp("race") / "out"
    small: dict[str, Any] = {"budgets": (2, 5), "samples": 24, "race_samples": 16, "first_samples": 8}
    tune(mixture_denoiser(T), mixture_data(160, seed=0), folder, progress=False, choosing=16, reference=30, **small)
    return folder


@pytest.fixture
def copied(raced: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(raced, tmp_path / "out"))


@pytest.fixture(scope="module")
def race(raced: Path) -> Race:
    return SavedRace.read(raced).race


def made_up(folder: Path, race: Race | None = None) -> Path:
    """A folder of a race with numbers that are made up, and no pictures."""
    folder.mkdir()
    found = race or small_race()
    found.schedules.save(folder / "schedules.json")
    found.save(folder / "race.json")
    write_race_page(folder)
    return folder


def number(value: float, digits: int) -> str:
    return f"{float(f'{value:.{digits}g}'):g}".replace("-", "−")


def told(value: float, error: float, scale: float = 1000.0) -> str:
    return f"{number(scale * value, 3)} ± {number(scale * error, 2)}"


def difference(entry: Entry) -> str:
    if entry.ahead is None:
        return "" if entry.name == "raced" else "the same path"
    value, error = entry.ahead
    words = f"{'ahead' if value < 0 else 'behind'} by {told(abs(value), error)}"
    return words + ("" if abs(value) > 2.0 * error else ", within error")


def cells(browser: Browser, table: str) -> list[list[str]]:
    return [[cell.replace("\u00a0", " ") for cell in row] for row in browser.cells(table)]


# --- numbers ------------------------------------------------------------------------------------------------------------


def test_distances_and_paired_differences_are_those_of_the_file(browser: Browser, raced: Path, race: Race) -> None:
    browser.open(raced)
    assert browser.complaints() == []
    assert {url.partition(":")[0] for url in browser.requests()[1:]} <= {"data"}
    assert browser.text("#answer") == race.answer
    notes = browser.script("return [...document.querySelectorAll('#warnings li')].map((each) => each.textContent)")
    assert tuple(notes) == race.findings
    for K in (2, 5):
        browser.choose(K)
        *rows, reference = cells(browser, "#numbers")
        expected = [entry for (_, budget), entry in race.finish.entries.items() if budget == K]
        assert [row[1:] for row in rows] == [
            [told(entry.distance, entry.standard_error), difference(entry)] for entry in expected
        ]
        many = race.finish.reference
        assert reference[:2] == [f"{many.budget} even steps", told(many.distance, many.standard_error)]
        beyond = race.finish.entries["raced", K].beyond
        assert beyond is not None
        turned = replace(many, ahead=(-beyond[0], beyond[1]))
        assert reference[2] == difference(turned)
        assert not browser.text("#remark")
    table = cells(browser, "#distances-table")
    assert len(table) == len(race.finish.entries) + 1
    entry = race.finish.entries["karras", 5]
    row = next(row for row in table if row[0] == "stride of Karras et al." and row[1] == "5")
    ends = [1000.0 * (entry.distance + side * 1.96 * entry.standard_error) for side in (-1.0, 1.0)]
    assert row[4] == " to ".join(number(end, 3) for end in ends)


def test_every_measured_point_is_drawn_where_its_distance_is(browser: Browser, tmp_path: Path) -> None:
    """Those of bisection too; a logarithmic axis where all are positive, else a linear one."""
    race = small_race()
    below = replace(race.finish.entries["raced", 5], distance=-0.01)
    entries = {**race.finish.entries, ("raced", 5): below}
    negative = replace(race, finish=replace(race.finish, entries=entries))
    for name, each, logarithmic in (("log", race, True), ("linear", negative, False)):
        browser.open(made_up(tmp_path / name, each))
        assert browser.complaints() == []
        drawn = browser.script(
            """
            return [...document.querySelectorAll('#distances .dot')].map((dot) => [dot.dataset.name, Number(dot.dataset.budget),
              Number(dot.getAttribute('transform').match(/ ([\\d.-]+)\\)/)[1])]);
            """
        )
        found = {(name, K): y for name, K, y in drawn}
        assert found.keys() == each.finish.entries.keys()
        marks = {
            float(text.replace("−", "-")): y
            for text, y in browser.script(
                """
                return [...document.querySelectorAll('#distances .axis text[text-anchor=end]')]
                  .map((text) => [text.textContent, Number(text.getAttribute('y')) - 4]);
                """
            )
        }
        scale = np.log if logarithmic else np.asarray
        values = sorted(marks)
        slope, offset = np.polyfit(scale(values), [marks[value] for value in values], 1)
        for key, entry in each.finish.entries.items():
            assert found[key] == pytest.approx(slope * scale(1000.0 * entry.distance) + offset, abs=1.0), key


def test_an_unmeasured_budget_shows_the_nearest_and_says_so(browser: Browser, raced: Path) -> None:
    browser.open(raced)
    browser.choose(4)
    assert browser.text("#numbers-title") == "At 5 steps"
    assert browser.text("#remark") == "4 steps were not measured; 5 are the nearest."
    assert browser.text("#samples-title") == "Samples of 5 steps"
    assert "There are none for 4 steps" in browser.text("#samples-remark")
    browser.wait("return document.getElementById('announce').textContent.startsWith('4 steps: raced')")
    spoken = browser.script("return document.getElementById('budget').getAttribute('aria-valuetext')")
    assert spoken.startswith("4 steps, distance ")
    assert spoken.endswith(", nearest measured 5 steps")


def test_point_and_click_on_the_distances(browser: Browser, raced: Path, race: Race) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(raced)
    browser.choose(5)
    figure = browser.find("#distances svg")
    ActionChains(browser.driver).move_to_element_with_offset(figure, -figure.size["width"] // 3, 0).click().perform()
    assert browser.budget == 2
    tip = browser.text("#distances .tip").replace("\u00a0", " ")
    assert tip.startswith("2 steps")
    for name in ("raced", "elbo"):
        entry = race.finish.entries[name, 2]
        assert told(entry.distance, entry.standard_error) in tip


# --- paths, forms, samples, how it went ---------------------------------------------------------------------------------


def test_paths_their_rules_and_forms_are_those_of_the_schedules(browser: Browser, raced: Path) -> None:
    schedules = ScheduleSet.load(raced / "schedules.json")
    browser.open(raced)
    browser.script("document.querySelector('input[value=index]').click()")
    for K in schedules.budgets:
        browser.choose(K)
        assert browser.text("#rule") == schedules.provenance["race"][str(K)]
        assert ("did not race" in browser.text("#rule-how")) == (K not in (2, 5))
        assert [int(row[1]) for row in browser.listing()] == list(schedules[K].steps[:-1])
        forms = {row[0]: row[1] for row in browser.cells("#forms")}
        assert json.loads(forms["diffuserstimesteps="]) == timesteps(schedules[K])
        assert json.loads(forms["k-diffusionsigmas, with the final 0"]) == [*sigmas(schedules[K]), 0.0]
        assert forms["terminaldpstride export"] == f"dpstride export schedules.json --budget {K} --to diffusers"
    assert browser.text("#sampler") == "DDIM"
    marks = browser.script("return document.querySelector('#path .marks.even').getAttribute('d')")
    at = [float(x) for x in re.findall(r"M([\d.]+)", marks)]
    steps = even_stride(schedules.process, 5).steps
    assert [round((x - at[-1]) / (at[0] - at[-1]) * T) for x in at] == list(steps)


def test_samples_from_the_same_noises_are_side_by_side(browser: Browser, raced: Path) -> None:
    browser.open(raced)
    for K in (2, 5):
        browser.choose(K)
        shown = browser.script(
            "return [...document.querySelectorAll('#samples figure')].map((f) => [f.textContent, f.querySelector('img').src])"
        )
        assert [label for label, _ in shown] == [
            "real data", "30 even steps", "raced", "even stride", "stride of Karras et al."
        ]  # fmt: skip
        names = ("real", "30_steps_reference", f"{K}_steps", f"{K}_steps_even", f"{K}_steps_karras")
        for (_, url), name in zip(shown, names, strict=True):
            assert base64.b64decode(url.partition(",")[2]) == (raced / f"samples_{name}.png").read_bytes()


def test_samples_of_numbers_of_steps_that_bisection_measured_are_shown_too(
    browser: Browser, raced: Path, tmp_path: Path
) -> None:
    folder = made_up(tmp_path / "out")  # even steps were measured at 4, which did not race
    for name in ("samples_2_steps.png", "samples_4_steps_even.png"):
        shutil.copy(raced / "samples_2_steps.png", folder / name)
    write_race_page(folder)
    browser.open(folder)
    for K, labels in ((2, ["raced"]), (4, ["even stride"])):
        browser.choose(K)
        assert browser.text("#samples-budget") == f"{K} steps"
        assert not browser.text("#samples-remark")
        shown = "return [...document.querySelectorAll('#samples figcaption')].map((each) => each.textContent)"
        assert browser.script(shown) == labels


def test_evaluations_stand_beside_steps_where_they_are_others(browser: Browser, tmp_path: Path) -> None:
    race = replace(small_race(), cost=Passes(2, last=1))
    assert "5 steps (9 evaluations)" in race.answer
    browser.open(made_up(tmp_path / "out", race))
    assert browser.complaints() == []
    browser.choose(5)
    assert browser.text("#measured-budget") == "5 steps (9 evaluations)"
    axis = browser.script(
        "return [...document.querySelectorAll('#distances .axis text')].map((each) => each.textContent)"
    )
    assert "steps: K steps take 2K − 1 evaluations" in axis
    browser.open(made_up(tmp_path / "plain"))
    browser.choose(5)
    assert browser.text("#measured-budget") == "5 steps"


def test_large_grids_are_made_smaller(copied: Path) -> None:
    from PIL import Image

    Image.new("L", (1200, 900), 128).save(copied / "samples_real.png")
    (copied / "samples_5_steps.png").write_bytes(b"no image")
    pictures = race_document(SavedRace.read(copied))["pictures"]
    assert (pictures["common"][0]["width"], pictures["common"][0]["height"]) == (480, 360)
    labels = {each["budget"]: [picture["label"] for picture in each["pictures"]] for each in pictures["budgets"]}
    assert "raced" in labels[2]
    assert "raced" not in labels[5]


def test_what_was_spent_and_how_the_race_went(browser: Browser, raced: Path, race: Race) -> None:
    browser.open(raced)
    spent = cells(browser, "#spent")
    assert [row[1].replace(",", "") for row in spent] == [
        str(count) for count in (*race.evaluations.values(), sum(race.evaluations.values()))
    ]
    assert not browser.script("return document.getElementById('heats-part').open")
    for i, heat in enumerate(race.heats, start=1):
        rows = cells(browser, f"#heats .group:nth-child({i}) table")
        assert {row[0] for row in rows} == heat.rounds[0].distances.keys()
        assert rows[0] == [heat.winner, *(told(*each.distances[heat.winner]) for each in heat.rounds)]
        for j, each in enumerate(heat.rounds, start=1):
            assert sum(bool(row[j]) for row in rows) == len(each.distances)
        head = browser.text(f"#heats .group:nth-child({i}) thead")
        assert f"16 samples, {len(heat.rounds[-1].distances)} candidates" in head


# --- looks ----------------------------------------------------------------------------------------------------------------


def test_dark_narrow_by_keyboard_and_on_paper(browser: Browser, raced: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(raced, width=380, scheme="dark")
    browser.script("for (const each of document.querySelectorAll('details')) each.open = true")
    ground = browser.script("return getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", ground))) < 60
    browser.find("body").send_keys(Keys.ARROW_LEFT)
    slider = browser.find("#budget")
    slider.send_keys(Keys.HOME)
    for K in (1, 2, 3, 4, 5):
        assert browser.budget == K
        assert browser.script("return document.documentElement.scrollWidth") <= 380
        slider.send_keys(Keys.ARROW_RIGHT)
    browser.open(raced, width=720, scheme="dark", media="print")
    assert browser.script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in ("#control", "#theme", "#forms button"):
        assert not browser.find(control).is_displayed()
    browser.emulate(1200)


def test_everything_has_a_name_and_headings_are_in_order(browser: Browser, raced: Path) -> None:
    browser.open(raced)
    browser.script("document.getElementById('heats-part').open = true")
    tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("button", "slider", "spinbutton", "radio", "image", "img")
    nodes = [node for node in tree if not node.get("ignored") and node.get("role", {}).get("value") in roles]
    assert all(node["name"]["value"].strip() for node in nodes)
    levels = browser.script(
        "return [...document.querySelectorAll('h1, h2, h3')].filter((h) => h.offsetParent).map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_without_scripts_the_answer_and_the_table_are_there(tmp_path: Path) -> None:
    text = (made_up(tmp_path / "out") / "report.html").read_text(encoding="utf-8")
    race = small_race()
    assert f">{race.answer}</h1>" in text
    assert race.table() in text.partition("<noscript>")[2].partition("</noscript>")[0]


def test_without_images_there_is_no_place_for_them(browser: Browser, tmp_path: Path) -> None:
    browser.open(made_up(tmp_path / "out"))
    assert browser.complaints() == []
    assert not browser.find("#samples-part").is_displayed()
    assert "Fréchet" in browser.text("#numbers thead")
    assert browser.budget == 5  # as close as the reference


# --- made again -----------------------------------------------------------------------------------------------------------


def test_report_writes_the_same_page_and_table_again(raced: Path, copied: Path, tmp_path: Path) -> None:
    names = ("report.html", "table.txt", "distances.svg")
    for name in names:
        (copied / name).unlink()
    assert _run(["report", str(copied), "-q"]) == 0
    assert _run(["report", str(raced), "-o", str(tmp_path / "mine"), "-q"]) == 0
    for name in names:
        for folder in (copied, tmp_path / "mine"):
            assert (folder / name).read_bytes() == (raced / name).read_bytes(), name


def test_folders_that_are_not_of_one_race_are_refused(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (copied / "race.json").read_text()
    for content, message in (
        (good.replace('"run": "', '"run": "0'), r"race\.json is from another run than run\.json"),
        (good[:-40], r"race\.json: not a whole JSON file"),
        (good.replace("dpstride-race-1", "dpstride-race-0"), r"race\.json: not a race that `dpstride tune` wrote"),
    ):
        (copied / "race.json").write_text(content)
        assert _run(["report", str(copied), "-q"]) == 2
        assert re.search(message, capsys.readouterr().err)
    (copied / "race.json").unlink()
    assert _run(["report", str(copied), "-q"]) == 2
    assert "holds no race.json. Name the folder that `dpstride tune` wrote" in capsys.readouterr().err


def test_text_of_others_is_shown_and_not_run(browser: Browser, copied: Path) -> None:
    rewrite(copied / "race.json", sampler=HOSTILE, measure=HOSTILE, notes=[HOSTILE])
    document = json.loads((copied / "race.json").read_text())
    for heat in document["heats"]:
        heat["winner"] = HOSTILE
        for each in heat["rounds"]:
            each["distances"][HOSTILE] = [-9.0, 0.1]
    (copied / "race.json").write_text(json.dumps(document))
    schedules = json.loads((copied / "schedules.json").read_text())
    schedules["provenance"] |= {"model": {"name": HOSTILE}, "race": {"2": HOSTILE}}
    (copied / "schedules.json").write_text(json.dumps(schedules))
    assert _run(["report", str(copied), "-q"]) == 0
    browser.open(copied)
    browser.choose(2)
    assert browser.script("return window.hacked") is None
    assert browser.complaints() == []
    for place in ("#model", "#sampler", "#rule"):
        assert browser.text(place) == HOSTILE
    assert HOSTILE in browser.text("#answer")
    assert HOSTILE in browser.text("#heats")
    assert browser.script("return document.querySelectorAll('script').length") == 2
    assert browser.script("return document.querySelectorAll('img[src=x]').length") == 0


def test_a_race_of_reverse_variances_is_shown_with_the_others(browser: Browser, tmp_path: Path) -> None:
    browser.open(made_up(tmp_path / "out"))
    titles = browser.script("return [...document.querySelectorAll('#heats h3')].map((each) => each.textContent)")
    assert titles == ["2 steps", "5 steps", "Reverse variances along the winner of 2 steps"]
    assert cells(browser, "#heats .group:last-child table")[0] == ["upper", "200 ± 100"]
    assert "which was raced too" in browser.text("#facts")
