"""Take the screenshots in docs/report.md from the pages of a demo and of a study, in headless Chromium.

    make demo && .venv/bin/python benchmarks/screenshots.py demo
    .venv/bin/python benchmarks/screenshots.py runs/study/fashion-simple

Needs Chromium and chromedriver (Debian: apt install chromium chromium-driver), as the tests of the page do.
"""

from __future__ import annotations

import argparse
import base64
import io
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "page"))

from browser import Browser  # noqa: E402

FIGURES = ROOT / "docs" / "figures"
COLOURS = 128  # of the palette: a third of the bytes, and no difference to the eye
WIDE, NARROW = 1180, 380
NARROW_HEIGHT, GAP = 1500, 24


def whole(browser: Browser, width: int) -> Image.Image:
    """Capture the whole open page."""
    height = int(browser.script("return document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", options)
    return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")


def top_of(browser: Browser, selector: str) -> int:
    rectangle = "document.querySelector(arguments[0]).getBoundingClientRect()"
    return int(browser.script(f"return {rectangle}.top + window.scrollY", selector))


def hide_bar(browser: Browser) -> None:
    """The bar with the slider would stand where it sticks, in the middle of the picture."""
    browser.script("document.getElementById('control').style.position = 'static'")


def save(picture: Image.Image, name: str) -> None:
    picture.quantize(COLOURS).save(FIGURES / f"report-{name}.png", optimize=True)
    print(f"docs/figures/report-{name}.png, {picture.width} × {picture.height}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `dpstride demo` or `dpstride study` wrote")
    folder = parser.parse_args().folder.resolve()
    browser = Browser.start()
    try:
        browser.open(folder, width=WIDE)
        if (folder / "results.json").is_file():
            hide_bar(browser)
            top, bottom = (
                top_of(browser, "#distances-part") - 4,
                top_of(browser, "section[aria-labelledby=provenance-title]") - 4,
            )
            save(whole(browser, WIDE).crop((0, top, WIDE, bottom)), "study")
            return
        save(whole(browser, WIDE).crop((0, 0, WIDE, 1800)), "light")
        browser.open(folder, width=WIDE, scheme="dark")
        browser.choose(16)
        hide_bar(browser)
        top, bottom = (
            top_of(browser, "section[aria-labelledby=path-title]") - 16,
            top_of(browser, "#samples-part") - 4,
        )
        save(whole(browser, WIDE).crop((0, top, WIDE, bottom)), "dark")
        browser.open(folder, width=NARROW)
        hide_bar(browser)
        page = whole(browser, NARROW)
        columns = [page.crop((0, i * NARROW_HEIGHT, NARROW, (i + 1) * NARROW_HEIGHT)) for i in range(3)]
        strip = Image.new("RGB", (3 * NARROW + 2 * GAP, NARROW_HEIGHT), "white")
        for i, column in enumerate(columns):
            strip.paste(column, (i * (NARROW + GAP), 0))
        save(strip, "narrow")
    finally:
        browser.driver.quit()


if __name__ == "__main__":
    main()
