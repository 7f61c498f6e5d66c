"""One demo folder and one browser for the tests of the page."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import Browser
from folders import run_demo
from shown import comparison, schedules  # noqa: F401  # fixtures


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a real demo left; not to be changed."""
    return run_demo(tmp_path_factory.mktemp("page") / "demo")


@pytest.fixture
def copied(demo: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(demo, tmp_path / "demo"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    opened = Browser.start()
    yield opened
    opened.driver.quit()
