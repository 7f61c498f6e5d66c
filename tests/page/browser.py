"""A real headless Chromium, and what tests ask of a page in it."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Browser:
    driver: Any

    @classmethod
    def start(cls) -> Browser:
        """Start it, or skip where there is none."""
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        chromedriver = shutil.which("chromedriver")
        if chromium is None or chromedriver is None:
            pytest.skip("needs Chromium and chromedriver (Debian: apt install chromium chromium-driver)")
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        return cls(webdriver.Chrome(options=options, service=Service(chromedriver)))

    # --- opening -------------------------------------------------------------------------------------------------------

    def open(self, page: Path, width: int = 1200, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """Open report.html of a folder (or a file) as a user would, and wait until it is drawn."""
        self.emulate(width, height, scheme, media)
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # what earlier pages left
        self.script("try { localStorage.clear() } catch { }")  # a theme that was chosen on an earlier page
        self.driver.get((page / "report.html" if page.is_dir() else page).as_uri())
        self.wait(
            "return document.documentElement.dataset.ready === 'yes' || !document.getElementById('failure').hidden"
        )
        assert not self.script("return document.getElementById('failure').textContent")

    def emulate(self, width: int, height: int = 900, scheme: str = "light", media: str = "") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        preference = {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", preference)

    # --- asking --------------------------------------------------------------------------------------------------------

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not self.script(condition):
            assert time.monotonic() < end, f"never came true: {condition}"
            time.sleep(0.02)

    def find(self, selector: str) -> Any:
        from selenium.webdriver.common.by import By

        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.script("return document.querySelector(arguments[0]).textContent", selector))

    @property
    def budget(self) -> int:
        return int(self.script("return document.getElementById('count').value"))

    def choose(self, budget: int) -> None:
        """Type a number of steps."""
        code = "const f = document.getElementById('count'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))"
        self.script(code, budget)
        assert self.budget == budget

    def shown(self) -> tuple[int, dict[str, list[str]]]:
        """The number of steps, and bits/dim and standard error by stride, as they are written."""
        budget, rows = self.script(
            """
            const rows = [...document.querySelectorAll('#numbers tbody tr')];
            return [document.getElementById('count').value,
              rows.map((row) => [row.dataset.stride, row.cells[1].textContent, row.cells[2].textContent])];
            """
        )
        return int(budget), {stride: numbers for stride, *numbers in rows}

    def cells(self, table: str) -> list[list[str]]:
        """The body of a table as text."""
        code = "return [...document.querySelectorAll(arguments[0])].map((r) => [...r.cells].map((c) => c.textContent))"
        return list(self.script(code, f"{table} tbody tr"))

    def listing(self) -> list[list[str]]:
        """The path's table, cell by cell."""
        self.script("document.getElementById('listing').open = true")
        self.wait("return document.querySelectorAll('#listing tbody tr').length > 0")
        return self.cells("#listing")

    # --- what it did ---------------------------------------------------------------------------------------------------

    def complaints(self) -> list[str]:
        """Everything in the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that the page asked for, itself first."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
