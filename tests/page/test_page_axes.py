"""A stride that is thousands of bits/dim off does not flatten the others to one line, and is still there as a number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from browser import Browser
from folders import save_formula

from dpstride import ForwardProcess
from dpstride.evaluate.comparison import Comparison
from dpstride.report.page import write_page

RUINOUS = 19_362.0


def ruined(folder: Path) -> Path:
    """A results folder in which even strides of up to 16 steps are far off, as those of an unclipped model can be."""
    save_formula(folder, ForwardProcess.cosine(60))
    path = folder / "comparison.json"
    comparison = Comparison.load(path)
    even = {K: (RUINOUS, 3.0) if K <= 16 else found for K, found in comparison.curves["even"].items()}
    replace(comparison, curves={**comparison.curves, "even": even}).save(path)
    write_page(folder)
    return folder


def test_the_curves_of_other_strides_keep_their_height(browser: Browser, tmp_path: Path) -> None:
    browser.open(ruined(tmp_path / "results"))
    assert browser.complaints() == []
    heights = "return document.querySelector('#curves .line.dp').getBBox().height"
    assert browser.script(heights) > 10  # pixels
    assert "cut at" in browser.text("#curves-cut")
    assert "19362" in browser.text("#curves-cut").replace(",", "").replace("\u202f", "")


def test_bars_of_other_strides_keep_apart(browser: Browser, tmp_path: Path) -> None:
    browser.open(ruined(tmp_path / "results"))
    browser.choose(8)
    dots = browser.script(
        "return [...document.querySelectorAll('#whiskers circle')].map((dot) => Number(dot.getAttribute('cx')))"
    )
    assert len(dots) == 2
    assert abs(dots[0] - dots[1]) > 20
    assert "19362" in browser.text("#whiskers").replace(",", "").replace("\u202f", "")
    browser.choose(32)
    assert browser.script("return document.querySelectorAll('#whiskers circle').length") == 3


def test_no_word_of_images_where_there_are_none(browser: Browser, tmp_path: Path) -> None:
    """Data by formula have no shape of images, and no samples are drawn."""
    browser.open(ruined(tmp_path / "results"))
    assert "image" not in browser.script("return document.body.innerText").lower()
