"""The page as a reader meets it, in a real browser; what it shows is compared with the files it was made from."""

from __future__ import annotations

import base64
import http.server
import itertools
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from folders import HOSTILE, T, long_grid, rewrite, save_formula

from dpstride import ForwardProcess, ScheduleSet, bits_per_dim, even_stride, quadratic_stride
from dpstride.cli import _run
from dpstride.evaluate.comparison import Comparison
from dpstride.integrations.export import sigmas, timestep_respacing, timesteps
from dpstride.report.page import write_page


@pytest.fixture(scope="module")
def schedules(demo: Path) -> ScheduleSet:
    return ScheduleSet.load(demo / "schedules.json")


@pytest.fixture(scope="module")
def comparison(demo: Path) -> Comparison:
    return Comparison.load(demo / "comparison.json")


def as_shown(comparison: Comparison, K: int) -> dict[str, list[str]]:
    """Bits/dim and standard error of each stride, as the page writes them."""
    return {stride: [f"{number:.3f}" for number in curve[K]] for stride, curve in comparison.curves.items()}


def assert_shown(browser: Browser, comparison: Comparison) -> None:
    """The table of the page has the numbers of comparison.json at the page's budget."""
    budget, numbers = browser.shown()
    assert numbers == as_shown(comparison, budget)


# --- loading ------------------------------------------------------------------------------------------------------------


def test_it_loads_without_a_complaint_and_without_a_request(browser: Browser, demo: Path) -> None:
    browser.open(demo)
    assert browser.complaints() == []
    page, *others = browser.requests()
    assert page == (demo / "report.html").as_uri()
    assert {url.partition(":")[0] for url in others} <= {"data"}


def test_nothing_can_leave_the_page(browser: Browser, demo: Path) -> None:
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        browser.open(demo)
        tried = browser.driver.execute_async_script(
            """
            const [address, done] = arguments;
            const load = (tag) => new Promise((resolve) => {
              const made = document.createElement(tag);
              made.onload = made.onerror = () => resolve('tried');
              made.src = address + tag;
              document.body.append(made);
            });
            Promise.all([fetch(address + 'fetch').then(() => 'sent', () => 'refused'), load('img'), load('script')]).then(done);
            """,
            f"http://127.0.0.1:{server.server_port}/",
        )
        server.shutdown()
        thread.join()
    assert tried == ["refused", "tried", "tried"]
    assert asked == []
    assert any("Content Security Policy" in text for text in browser.complaints())


# --- the budget ---------------------------------------------------------------------------------------------------------


def test_arrow_keys_go_through_every_budget(browser: Browser, demo: Path, comparison: Comparison) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(demo)
    slider = browser.find("#budget")
    slider.send_keys(Keys.HOME)
    # What is shown after each of many keys, kept by the page itself: asking from here after each takes long.
    browser.script(
        """
        window.seen = [];
        document.addEventListener('keyup', () => {
          const rows = [...document.querySelectorAll('#numbers tbody tr')].map((r) => [...r.cells].map((c) => c.textContent));
          window.seen.push([document.getElementById('count').value, ...rows.map((cells) => cells.slice(1, 3))]);
        });
        """
    )
    slider.send_keys(*([Keys.ARROW_RIGHT, Keys.ARROW_UP] * (T // 2))[: T - 1])
    seen = browser.script("return window.seen")
    assert [int(K) for K, *_ in seen] == list(range(2, T + 1))
    for K, *numbers in seen:
        expected = as_shown(comparison, int(K))
        assert numbers == [expected[stride] for stride in ("dp", "even", "quadratic")]
    for key, wanted in (
        (Keys.ARROW_LEFT, T - 1),
        (Keys.ARROW_DOWN, T - 2),
        (Keys.PAGE_DOWN, (T - 2) // 2),
        (Keys.PAGE_UP, T - 2),
        (Keys.HOME, 1),
        (Keys.END, T),
    ):
        slider.send_keys(key)
        assert browser.budget == wanted
    shown = browser.script("return document.getElementById('budget').getAttribute('aria-valuetext')")
    assert shown == f"{T} steps, {comparison.curves['dp'][T][0]:.3f} bits per dimension"
    browser.wait("return document.getElementById('announce').textContent.includes('60 steps: DP stride')")


def test_arrow_keys_work_away_from_the_slider_but_not_in_fields(browser: Browser, demo: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(demo)
    browser.choose(10)
    browser.script("document.activeElement.blur()")
    browser.find("body").send_keys(Keys.ARROW_RIGHT)
    assert browser.budget == 11
    browser.find("#tolerance").send_keys(Keys.ARROW_LEFT)
    assert browser.budget == 11


def test_the_slider_and_the_curve_follow_the_mouse(browser: Browser, demo: Path, comparison: Comparison) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(demo)
    slider = browser.find("#budget")
    seen = []
    for part in (-0.3, 0.0, 0.35):
        ActionChains(browser.driver).move_to_element_with_offset(
            slider, int(part * slider.size["width"]), 0
        ).click().perform()
        seen.append(browser.budget)
        assert_shown(browser, comparison)
    assert seen == sorted(set(seen))
    middle = seen[1]
    assert middle == pytest.approx(np.sqrt(T), rel=0.15)  # the slider's scale is that of ratios
    ActionChains(browser.driver).move_to_element_with_offset(slider, 0, 0).click_and_hold().move_by_offset(
        60, 0
    ).release().perform()
    assert browser.budget > middle
    figure = browser.find("#curves svg")
    ActionChains(browser.driver).move_to_element_with_offset(figure, 15, 0).perform()
    tip = browser.text("#curves .tip")
    hovered = int(re.match(r"(\d+) steps", tip)[1])  # type: ignore[index]
    assert f"{comparison.curves['dp'][hovered][0]:.3f} ± {comparison.curves['dp'][hovered][1]:.3f}" in tip
    ActionChains(browser.driver).click().perform()
    assert browser.budget == hovered
    assert_shown(browser, comparison)


def test_buttons_and_the_field_choose_a_budget(browser: Browser, demo: Path) -> None:
    browser.open(demo)
    browser.choose(17)
    browser.find("#fewer").click()
    assert browser.budget == 16
    browser.find("#more").click()
    assert browser.budget == 17
    browser.find("#presets [data-budget='8']").click()
    assert browser.budget == 8
    field = browser.find("#count")
    field.clear()
    field.send_keys("999")
    assert browser.text("#numbers-title") == f"At {T} steps"  # the nearest that there is


# --- one path -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 7, T])
def test_a_path_and_its_costs_are_those_of_a_direct_evaluation(
    browser: Browser, demo: Path, schedules: ScheduleSet, K: int
) -> None:
    from dpstride.zoo.mixture import mixture_data, mixture_denoiser

    browser.open(demo)
    browser.choose(K)
    rows = browser.listing()
    steps = schedules[K].steps
    assert [(int(row[1]), int(row[2])) for row in rows] == list(itertools.pairwise(steps))
    assert [float(row[3]) for row in rows] == [float(time) for time in schedules[K].times[:-1]]
    snr = [float(row[4].replace("−", "-")) for row in rows]
    assert snr == pytest.approx(schedules.process.log_snr[list(steps[:-1])], abs=5e-4)
    # Another route: the network on the held-out draws, with no table of costs.
    terms = bits_per_dim(mixture_denoiser(T), mixture_data(256, seed=1), schedules[K], seed=1, progress=False).terms
    direct = [*terms["steps"], terms["decoder"]]
    shown = browser.script(
        """
        const powers = (text) => [...text].map((c) => '⁰¹²³⁴⁵⁶⁷⁸⁹'.indexOf(c) < 0 ? '-' : '⁰¹²³⁴⁵⁶⁷⁸⁹'.indexOf(c)).join('');
        return [...document.querySelectorAll('#listing tbody tr')].map((row) => Number(row.cells[5].textContent
          .replace(/ × 10(.+)/, (_, power) => 'e' + powers(power))));
        """
    )
    assert shown == pytest.approx(direct, rel=0.06)  # two or three digits are shown
    total, last = (float(number) for number in re.findall(r"\d+\.\d+", browser.text("#composition"))[:2])
    assert total == pytest.approx(sum(direct) + terms["prior"], abs=6e-4)
    assert last == pytest.approx(terms["decoder"], abs=6e-4)


def test_marks_stand_where_each_stride_goes(browser: Browser, demo: Path, schedules: ScheduleSet) -> None:
    browser.open(demo)
    browser.script("document.querySelector('input[value=index]').click()")
    drawn = browser.script(
        """
        const field = document.getElementById('count');
        return Array.from({length: arguments[0]}, (_, i) => {
          field.value = i + 1;
          field.dispatchEvent(new Event('input'));
          const marks = (stride) => document.querySelector(`#path .marks.${stride}`).getAttribute('d');
          const places = (stride) => [...marks(stride).matchAll(/M([\\d.]+)/g)].map((found) => Number(found[1]));
          return Object.fromEntries(['dp', 'even', 'quadratic'].map((stride) => [stride, places(stride)]));
        });
        """,
        T,
    )
    for K, marks in enumerate(drawn, start=1):
        expected = {
            "dp": schedules[K].steps,
            "even": even_stride(schedules.process, K).steps,
            "quadratic": quadratic_stride(schedules.process, K).steps,
        }
        for stride, at in marks.items():
            left, right = min(at), max(at)  # index 0 and T: every path has both
            assert [round((x - left) / (right - left) * T) for x in at] == list(expected[stride]), (K, stride)


def test_the_noise_axis_can_be_index_time_or_log_snr(browser: Browser, demo: Path, schedules: ScheduleSet) -> None:
    browser.open(demo)
    browser.choose(12)
    places = {}
    for axis in ("logSnr", "index", "time"):
        browser.script("document.querySelector(`input[value=${arguments[0]}]`).click()", axis)
        path = browser.script("return document.querySelector('#path .marks.dp').getAttribute('d')")
        places[axis] = np.array([float(x) for x in re.findall(r"M([\d.]+)", path)])
    # The answer stands as it was: it is not announced again, and whoever was on its button still is.
    changed = """
    const done = arguments[0], seen = [];
    const watched = {childList: true, subtree: true};
    new MutationObserver((changes) => seen.push(...changes)).observe(document.getElementById('answer'), watched);
    document.querySelector('.go').focus();
    document.querySelector('input[value=index]').click();
    setTimeout(() => done([seen.length, document.activeElement.className]), 50);
    """
    assert browser.driver.execute_async_script(changed) == [0, "go"]
    inner = list(schedules[12].steps[:-1])
    for axis, values in (
        ("index", np.array(inner)),
        ("time", schedules.process.times[inner]),
        ("logSnr", -schedules.process.log_snr[inner]),
    ):
        x = places[axis][:-1]
        fit = np.polyfit(values, x, 1)
        assert fit[0] > 0.0  # noise to the right, always
        assert x == pytest.approx(np.polyval(fit, values), abs=0.02)


def test_the_staircase_has_a_corner_for_every_step(browser: Browser, demo: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(demo)
    for K in (1, 9, 40):
        browser.choose(K)
        assert browser.script("return document.querySelectorAll('#heat .stairs circle').length") == K
    figure = browser.find("#heat svg")
    ActionChains(browser.driver).scroll_to_element(figure).move_to_element_with_offset(figure, -60, -60).perform()
    assert re.search(r"bits/dim.*from index \d+.*to index \d+", browser.text("#heat .tip"))
    opaque = browser.script(
        """
        const canvas = document.querySelector('#heat canvas');
        const at = (x, y) => canvas.getContext('2d').getImageData(x * canvas.width, y * canvas.height, 1, 1).data[3];
        return [at(0.3, 0.3), at(0.9, 0.9)];
        """
    )
    assert opaque == [255, 0]  # a step down in noise has a cost, one up has none


# --- the answer ---------------------------------------------------------------------------------------------------------


def test_the_answer_follows_the_tolerance(browser: Browser, demo: Path, comparison: Comparison) -> None:
    browser.open(demo)
    curve = {int(K): pair for K, pair in json.loads((demo / "comparison.json").read_text())["curves"]["dp"].items()}
    least = min(bpd for bpd, _ in curve.values())
    for tolerance in ("0", "0.01", "0.1", "0.35", "5"):
        field = browser.find("#tolerance")
        field.clear()
        field.send_keys(tolerance)
        expected = min(K for K, (bpd, _) in curve.items() if bpd <= least + float(tolerance))
        said = browser.text("#answer")
        assert said.startswith("1 step is within" if expected == 1 else f"{expected} steps are within")
        # word by word what `find` prints
        sentence = comparison.sentence(float(tolerance))
        words, numbers = sentence.split(" (")
        assert said == f"{words}."
        assert browser.text("#against").startswith(numbers.removesuffix(").") + " bits/dim")
    browser.find("#tolerances button[data-tolerance='0.05']").click()
    assert "within 0.05 bits/dim" in browser.text("#answer")
    before = browser.text("#answer")
    field = browser.find("#tolerance")
    field.clear()
    field.send_keys("-1")
    assert field.get_attribute("aria-invalid") == "true"
    assert "within -1" not in browser.text("#answer")
    assert before.split()[1] in ("step", "steps")


def test_all_steps_that_are_worse_are_said_to_be(browser: Browser, copied: Path) -> None:
    """With a curve that rises again, and with one that falls: no cost table either, since the numbers are made up."""
    (copied / "heldout.safetensors").unlink()
    for curve, words, hurts in (
        ({K: 3.0 + abs(K - 20) / 40 for K in range(1, T + 1)}, "of the least of any budget on", True),
        ({K: 3.0 + 1.0 / K for K in range(1, T + 1)}, f"of all {T} on", False),
    ):
        made_up = {stride: {str(K): [bpd, 0.01] for K, bpd in curve.items()} for stride in ("even", "quadratic", "dp")}
        rewrite(copied / "comparison.json", curves=made_up)
        write_page(copied)
        browser.open(copied)
        assert browser.complaints() == []
        found = Comparison.load(copied / "comparison.json")
        if not hurts:
            assert words in browser.text("#answer")
        assert browser.text("#answer") == found.sentence().split(" (")[0] + "."
        assert ("are worse" in browser.text("#against")) == hurts
        assert browser.script(
            "return document.getElementById('heat-part').hidden && document.getElementById('losses-part').hidden"
        )


def test_a_model_worse_than_none_has_no_number_of_steps_on_top(browser: Browser, copied: Path) -> None:
    rewrite(copied / "comparison.json", raw=0.5)
    write_page(copied)
    browser.open(copied)
    assert browser.complaints() == []
    words, numbers = Comparison.load(copied / "comparison.json").sentence().split(" (")
    assert words == "This model describes held-out data worse than no model at all, so no number of steps is enough"
    assert browser.text("#answer") == f"{words}."
    assert browser.text("#against") == numbers.removesuffix(").") + "."
    # Nothing below says that some budget is close enough after all.
    assert not browser.find("#tolerances").is_displayed()
    assert browser.script("return document.querySelector('#curves .close')") is None
    assert browser.budget == Comparison.load(copied / "comparison.json").best_budget


# --- copying ------------------------------------------------------------------------------------------------------------


def copied_text(browser: Browser, row: int) -> str:
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.driver.execute_cdp_cmd("Browser.grantPermissions", grant)
    button = browser.find(f"#forms tr:nth-child({row}) button")
    browser.script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    browser.wait(f"return document.querySelector('#forms tr:nth-child({row}) button').textContent === 'Copied'")
    return str(browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))


def test_copy_buttons_give_what_export_gives(browser: Browser, demo: Path, schedules: ScheduleSet) -> None:
    browser.open(demo)
    schedule = schedules[31]
    browser.choose(31)
    assert json.loads(copied_text(browser, 1)) == timesteps(schedule) == schedule.for_diffusers()
    assert (
        set(json.loads(copied_text(browser, 2).replace("{", "[").replace("}", "]")))
        == schedule.for_improved_diffusion()
    )
    assert copied_text(browser, 3) == timestep_respacing(schedule)
    assert json.loads(copied_text(browser, 4)) == sigmas(schedule)
    assert json.loads(copied_text(browser, 5)) == [*sigmas(schedule), 0.0]
    assert browser.text("#announce").startswith("Copied")
    assert browser.text("#export") == "dpstride export schedules.json --budget 31 --to diffusers"
    browser.choose(5)
    assert json.loads(copied_text(browser, 1)) == timesteps(schedules[5])


def test_what_was_not_copied_is_not_said_to_be(browser: Browser, demo: Path) -> None:
    browser.open(demo)
    browser.script("navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false")
    browser.script("document.querySelector('#forms button').click()")
    browser.wait("return document.querySelector('#forms button').textContent === 'Not allowed'")
    assert browser.text("#announce").startswith("This browser does not let the page copy")


def test_a_flow_has_its_times_and_no_training_steps(browser: Browser, tmp_path: Path) -> None:
    folder = save_formula(tmp_path / "flow", ForwardProcess.rectified_flow(24))
    write_page(folder)
    browser.open(folder)
    browser.choose(6)
    schedule = ScheduleSet.load(folder / "schedules.json")[6]
    assert json.loads(copied_text(browser, 1)) == schedule.for_diffusers()
    assert schedule.for_diffusers()[0] == 1.0
    for row in (2, 3, 5):
        assert not browser.find(f"#forms tr:nth-child({row}) button").is_enabled()
    assert "no training steps" in browser.text("#forms tr:nth-child(2) code")
    assert browser.complaints() == []
    # log-SNR is infinite at both ends here, and everything is still drawn inside the figure.
    marks = browser.script("return document.querySelector('#path .marks.dp').getAttribute('d')")
    assert "NaN" not in marks
    assert len(re.findall("M", marks)) == 7


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
