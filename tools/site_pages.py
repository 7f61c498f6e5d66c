"""Source pages of the documentation site (`make docs`), from those of docs/, which are written for GitHub.

    python tools/site_pages.py FOLDER

- The home page is the repository's README, followed by the table of docs/README.md.
- Files of the repository that a page links to (examples, model cards, CONTRIBUTING) become pages of the site, so that no
  link leaves it.
- Marks after a fence's language, which tests/test_docs.py reads, become titles; commands without output lose their prompt, so
  that they can be copied; formulas become MathML, which browsers render without scripts.
- ``<!-- api: dpstride.name -->`` becomes the name's documentation.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml"}


def write_pages(folder: Path) -> None:
    """Write all pages, with the pictures of docs/, into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md", "*.py", "__pycache__"))
    for path in linked_files():
        page = folder / _uri(path.relative_to(ROOT).as_posix())
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(page_of(path), encoding="utf-8")


def linked_files() -> set[Path]:
    """Pages of docs/ and of the repository itself, with all files that they link to, directly or indirectly."""
    waiting = [*(ROOT / "docs").rglob("*.md")]
    waiting += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".md":
            linked = (path.parent / link for link, _ in LINK.findall(path.read_text(encoding="utf-8")) if link)
            waiting += [
                target for each in linked if (target := Path(os.path.normpath(each))).is_file() and _shown(target)
            ]
    return found - {ROOT / "docs" / "README.md"}  # the end of the home page


def page_of(path: Path) -> str:
    """One page, as the site shows it."""
    name = path.relative_to(ROOT).as_posix()
    markdown = _relinked(_text(path), name, _uri(name))
    if name == "README.md":
        index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8").replace("# Documentation", "## All pages", 1)
        markdown += "\n" + _relinked(index, "docs/README.md", "README.md")
    markdown = re.sub(r"^<!-- api: (\S+) -->$", r"::: \1", markdown, flags=re.MULTILINE)
    return FENCE.sub(_fence, markdown)


def _shown(path: Path) -> bool:
    """Return whether a linked file becomes a page; pictures and pages of docs/ are copied anyway."""
    return ROOT / "docs" not in path.parents and path.suffix in (".md", ".py", ".ipynb", ".toml", ".yml", "")


def _uri(name: str) -> str:
    """Path on the site of a file of the repository."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return name if name.endswith(".md") and "/" not in name else f"repository/{name}.md"


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"])
    name = path.relative_to(ROOT).as_posix()
    return f"# {name}\n\n```{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n```\n"


def _cell(cell: dict) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    printed = ["".join(output["text"]).rstrip() for output in cell["outputs"] if output["output_type"] == "stream"]
    return "\n\n".join([f"```python\n{source}\n```", *(f"```text output\n{text}\n```" for text in printed)])


def _relinked(markdown: str, name: str, uri: str) -> str:
    """The text of the file ``name``, with its links rewritten for the page ``uri``."""

    def relink(found: re.Match[str]) -> str:
        link, anchor = found[1], found[2] or ""
        if not link:
            return found[0]
        target = _uri(os.path.normpath(Path(name).parent / link))
        return f"]({os.path.relpath(target, Path(uri).parent)}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(relink, part) for part in parts)


def _fence(found: re.Match[str]) -> str:
    language, mark, text = found.groups()
    if language == "math":
        return f'<div class="formula">{convert(" ".join(text.split()), display="block")}</div>'
    lines = text.splitlines()
    if language == "console" and all(line.startswith(("$ ", "    ")) for line in lines):
        language, text = "sh", "".join(f"{line.removeprefix('$ ')}\n" for line in lines)
    title = f' title="{mark}"' if mark and mark not in ("no-run", "run") else ""
    return f"```{language}{title}\n{text}```"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
