"""The documentation site: strict, complete, and without a single request to anywhere else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import dpstride

ROOT = Path(__file__).parents[1]
LOADS = re.compile(
    r"""<(?:script|link|img|iframe|source|object)\b[^>]*?(?:src|href|data)=["']?((?:https?:)?//[^"'\s>]+)"""
)


class Loader(yaml.SafeLoader):
    """mkdocs.yml names functions with tags of its own, which say nothing about the pages."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def entries(nav: Any) -> Iterator[str]:
    for item in nav:
        for value in item.values() if isinstance(item, dict) else [item]:
            yield from [value] if isinstance(value, str) else entries(value)


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    listed = list(entries(yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    brought_in = {name for name in listed if name not in pages}
    assert len(listed) == len(set(listed))
    assert pages <= set(listed), f"mkdocs.yml does not list {sorted(pages - set(listed))}"
    assert all((ROOT / name).is_file() for name in brought_in), brought_in


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in a folder beside what it is built from."""
    pytest.importorskip("zensical", reason="the site needs the docs extra")
    from site_pages import write_pages

    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("docs", "src"):
        (folder / name).symlink_to(ROOT / name)
    write_pages(folder / "build" / "pages")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return folder / "site"


def test_the_site_asks_nobody_for_anything(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = {address for page in pages for address in LOADS.findall(page.read_text(encoding="utf-8"))}
    assert not loaded
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"url\([\"']?(?:https?:)?//|@import", styles)


def test_marks_prompts_formulas_and_hidden_names_become_what_a_reader_wants(site: Path) -> None:
    start = (site / "quickstart.html").read_text(encoding="utf-8")
    assert "my_model.py" in start
    assert "console run" not in start
    assert "<code>$ dpstride" not in start
    formulas = (ROOT / "docs" / "method.md").read_text(encoding="utf-8").count("```math")
    assert (site / "method.html").read_text(encoding="utf-8").count("<math ") == formulas > 0
    reference = (site / "api.html").read_text(encoding="utf-8")
    for name in dpstride.__all__[1:]:
        assert f'id="dpstride.{name}"' in reference, name
    assert "All pages" in (site / "index.html").read_text(encoding="utf-8")


def test_no_link_of_the_site_leads_nowhere(site: Path) -> None:
    """Zensical checks links between pages; what tools/site_pages.py brings in is checked here, on the result."""
    for page in site.rglob("*.html"):
        for link in re.findall(r"<a [^>]*?href=\"([^\"#:]+)[#\"]", page.read_text(encoding="utf-8")):
            assert page.name == "404.html" or (page.parent / link).exists(), f"{page.name}: {link}"
