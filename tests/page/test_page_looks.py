"""Looks of the page: colours, screens, print, names for readers, and pages of other results."""

from __future__ import annotations

import base64
import itertools
import json
import re
import time
from pathlib import Path

import pytest
from browser import Browser
from folders import HOSTILE, T, long_grid, rewrite
from shown import as_shown

from dpstride import ScheduleSet
from dpstride.cli import _run
from dpstride.evaluate.comparison import Comparison
from dpstride.integrations.export import timesteps
from dpstride.report.page import write_page

# --- how it looks -------------------------------------------------------------------------------------------------------


def brightness(browser: Browser, selector: str, name: str = "backgroundColor") -> float:
    colour = browser.script(
        "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, name
    )
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3.0


def test_light_and_dark_by_preference_and_by_button(browser: Browser, demo: Path) -> None:
    for scheme, other in (("light", "dark"), ("dark", "light")):
        browser.open(demo, scheme=scheme)
        for theme in (scheme, other):
            assert (brightness(browser, "body") > 128) == (theme == "light")
            assert (brightness(browser, "body", "color") > 128) == (theme == "dark")
            assert (brightness(browser, "#path .axis text", "fill") > 128) == (theme == "dark")
            button = browser.find("#theme")
            assert (button.get_attribute("aria-pressed") == "true") == (theme == "dark")
            button.click()
    browser.find("#theme").click()
    time.sleep(1.0)  # a busy browser writes down what a page keeps some time after the click
    browser.driver.refresh()
    browser.wait("return document.documentElement.dataset.ready === 'yes'")
    assert brightness(browser, "body") > 128  # remembered, against the preference
    browser.script("localStorage.clear()")
    browser.open(demo, scheme="light")
    browser.emulate(1200, scheme="dark")  # by the system, while the page is open
    browser.wait("return document.getElementById('theme').getAttribute('aria-pressed') === 'true'")


def test_a_narrow_screen_does_not_scroll_sideways(browser: Browser, copied: Path) -> None:
    rewrite(copied / "comparison.json", model={"name": "a-very-long-name" * 20})
    write_page(copied)
    browser.open(copied, width=380)
    browser.script("for (const each of document.querySelectorAll('details')) each.open = true")
    for width in (380, 320, 768):  # by turning and resizing, too
        browser.emulate(width)
        # drawn anew for this width, not scaled
        browser.wait(
            "const s = document.querySelector('#curves svg'); return s.viewBox.baseVal.width === s.clientWidth"
        )
        for K in (1, 13, T):
            browser.choose(K)
            assert browser.script("return document.documentElement.scrollWidth") <= width
    heights = "return [...document.querySelectorAll('#control button, #control input')].map((e) => e.offsetHeight)"
    assert min(height for height in browser.script(heights) if height) >= 30  # what a finger has to hit


def test_it_prints_light_without_controls(browser: Browser, demo: Path) -> None:
    browser.open(demo, scheme="dark")
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF-")
    browser.open(demo, width=720, scheme="dark", media="print")
    assert brightness(browser, "body") == 255
    for control in ("#control", "#theme", "#tolerances", "#forms button"):
        assert not browser.find(control).is_displayed()
    assert browser.script("return document.documentElement.scrollWidth") <= 720
    browser.choose(T)
    browser.script("window.dispatchEvent(new Event('beforeprint'))")
    # Paper cannot be copied from: the timesteps are there to the last one.
    assert json.loads(browser.text("#forms code")) == timesteps(ScheduleSet.load(demo / "schedules.json")[T])
    browser.emulate(1200)


def test_everything_can_be_reached_and_has_a_name(browser: Browser, demo: Path) -> None:
    browser.open(demo)
    tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node.get("ignored") and "role" in node
    ]
    controls = [
        (role, name)
        for role, name in named
        if role in ("button", "slider", "spinbutton", "radio", "image", "img", "table")
    ]
    assert {"button", "slider", "spinbutton", "radio"} <= {role for role, _ in controls}
    assert [role for role, name in controls if not name.strip() and role != "table"] == []
    levels = browser.script(
        "return [...document.querySelectorAll('h1, h2, h3')].filter((h) => h.offsetParent).map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    from selenium.webdriver.common.keys import Keys

    browser.script(
        """
        document.activeElement.blur();
        window.reached = [];
        document.addEventListener('focusin', (event) => window.reached.push(event.target.id || event.target.className));
        """
    )
    browser.find("body").send_keys(*([Keys.TAB] * 30))
    reached = browser.script("return window.reached")
    assert reached[0] == "skip"
    assert {"theme", "tolerance", "count", "budget"} <= set(reached)


# --- others' text, long grids, studies ----------------------------------------------------------------------------------


def test_hostile_names_are_shown_and_not_run(browser: Browser, copied: Path) -> None:
    rewrite(copied / "comparison.json", model={"name": HOSTILE}, warnings=[HOSTILE])
    rewrite(
        copied / "run.json",
        command=f"dpstride find '{HOSTILE}'",
        model=HOSTILE,
        data=HOSTILE,
        heldout="\u202e\x1b[31m" + HOSTILE,
    )
    rewrite(copied / "schedules.json", process={"name": HOSTILE})
    (copied / "heldout.safetensors").unlink()  # it is of the process as it was named before
    assert _run(["report", str(copied), "-q"]) == 0
    browser.open(copied)
    assert browser.script("return window.hacked") is None
    assert browser.complaints() == []
    assert browser.text("#model") == HOSTILE
    assert browser.driver.title == f"{HOSTILE} · dpstride report"
    assert browser.text("#warnings") == HOSTILE
    assert HOSTILE in browser.text("#command")
    assert browser.text("#provenance").count(HOSTILE) == 4
    assert "\\u202e\\x1b[31m" in browser.text("#provenance")  # neither turned around nor obeyed
    assert browser.script("return document.querySelectorAll('script').length") == 2
    assert browser.script("return document.querySelectorAll('img[src=x]').length") == 0


def test_a_grid_of_4000_steps_is_small_and_quick_enough(browser: Browser, tmp_path: Path) -> None:
    saved = long_grid(tmp_path / "long")
    page = write_page(tmp_path / "long", saved)
    assert page.stat().st_size < 3_000_000
    browser.open(page)
    assert browser.complaints() == []
    for K in (1, 77, 1234, 4000):
        browser.choose(K)
        assert browser.shown() == (K, as_shown(saved.comparison, K))
        marks = browser.script("return document.querySelector('#path .marks.dp').getAttribute('d')")
        assert marks.count("M") == K + 1
    browser.choose(77)
    rows = browser.listing()
    assert [int(row[1].replace(",", "")) for row in rows] == list(saved.schedules.entries[77][0][:-1])


def test_a_study_shows_distances_ablation_and_samples(browser: Browser, copied: Path) -> None:
    from test_document import study_in

    results = study_in(copied)
    write_page(copied)
    browser.open(copied)
    assert browser.complaints() == []
    rows = browser.script(
        "return [...document.querySelectorAll('#distances-table tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    assert [(row[0], int(row[1])) for row in rows] == [
        ({"dp": "DP stride", "all": "all steps"}.get(each.stride, f"{each.stride} stride"), each.budget)
        for each in results.distances
    ]
    assert [float(row[3]) for row in rows] == pytest.approx([each.frechet for each in results.distances], rel=5e-3)
    assert browser.text("#agreement-sentence") == results.sentence
    # An error bar stands on its own marker, beside those of the other strides.
    for stride, middle in (("dp", "cx"), ("even", "x")):
        marks = (
            f"[...document.querySelectorAll('#kernel .dot.{stride}')].map((m) => Number(m.getAttribute('{middle}')))"
        )
        whiskers = f"[...document.querySelectorAll('#kernel .whisker.{stride}')]"
        bars = f"{whiskers}.map((w) => parseFloat(w.getAttribute('d').slice(1)))"
        shift = 4.5 if stride == "even" else 0.0
        found = browser.script(f"return {bars}")
        assert found
        assert found == pytest.approx([at + shift for at in browser.script(f"return {marks}")][: len(found)], abs=0.11)
    ablation = results.ablation
    assert ablation is not None
    cells = browser.script(
        "return [...document.querySelectorAll('#ablation-table tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    for row, size in zip(cells, ablation.sizes, strict=False):
        assert int(row[0]) == size
        for cell, K in zip(row[1:], ablation.budgets, strict=True):
            shown = [float(number.replace("−", "-")) for number in re.findall(r"−?[\d.]+", cell)]
            values = ablation.excess(size, K)
            assert shown == pytest.approx([sum(values) / len(values), min(values), max(values)], rel=5e-3)
    pictures = browser.script(
        "return [...document.querySelectorAll('#samples img')].map((i) => [i.alt, i.naturalWidth, i.complete])"
    )
    assert [alt for alt, _, _ in pictures] == [
        "Samples: real images, real images",
        *(f"Samples: 32 steps, {stride} stride" for stride in ("DP", "even", "quadratic")),
        f"Samples: all {T} steps, all {T} steps",
    ]
    assert all(width == 10 * 4 + 9 and done for _, width, done in pictures)
    assert browser.script("return document.documentElement.scrollWidth") <= 1200


def test_without_scripts_the_answer_and_the_table_are_there(demo: Path, comparison: Comparison) -> None:
    text = (demo / "report.html").read_text(encoding="utf-8")
    assert f">{comparison.sentence()}</h1>" in text
    assert f"{comparison.curves['even'][8][0]:.3f}" in text.partition("<noscript>")[2].partition("</noscript>")[0]


def test_samples_of_a_demo_are_side_by_side(browser: Browser, demo: Path) -> None:
    browser.open(demo)
    shown = browser.script(
        "return [...document.querySelectorAll('#samples figure')].map((f) => [f.textContent, f.querySelector('img').src])"
    )
    assert [label for label, _ in shown] == ["DP stride", "even stride", "quadratic stride"]
    for (_, url), name in zip(shown, ("", "_even", "_quadratic"), strict=True):
        assert base64.b64decode(url.partition(",")[2]) == (demo / f"samples_32_steps{name}.png").read_bytes()
