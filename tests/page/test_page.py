"""The page as a reader meets it, in a real browser; what it shows is compared with the files it was made from."""

from __future__ import annotations

import http.server
import itertools
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from folders import T
from shown import as_shown

from dpstride import ScheduleSet, bits_per_dim, even_stride, quadratic_stride
from dpstride.evaluate.comparison import Comparison


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
