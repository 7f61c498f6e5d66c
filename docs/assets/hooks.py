"""What the documentation site does to the pages of docs/, which are written to be read on GitHub.

- The home page is the repository's README, followed by the table of docs/README.md.
- Files of the repository that a page links to (examples, model cards, CONTRIBUTING) become pages of the site, so that no
  link leaves it.
- Marks after a fence's language, which tests/test_docs.py reads, become titles; commands lose their prompt where no output
  is shown, so that they can be copied; formulas become MathML, which browsers show without any script.
- ``<!-- api: dpstride.name -->`` becomes the name's documentation.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml"}

_source: dict[str, str] = {}  # page of the site → file of the repository, for pages that are not in docs/


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside docs/, and what those link to."""
    _source.clear()
    _source["README.md"] = "README.md"
    waiting = [ROOT / "docs" / file.src_uri for file in files if file.src_uri.endswith(".md")]
    waiting += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("docs/") and name != "README.md":
            uri = _uri(name)
            _source[uri] = name
            level = InclusionLevel.INCLUDED if uri == name else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, uri, content=_text(path), inclusion=level))
        if path.suffix == ".md":
            linked = (path.parent / link for link, _ in LINK.findall(path.read_text(encoding="utf-8")) if link)
            waiting += [
                found for target in linked if (found := Path(os.path.normpath(target))).is_file() and _shown(found)
            ]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """One page, as the site shows it."""
    uri = page.file.src_uri
    if uri == "README.md":
        index = markdown.replace("# Documentation", "## All pages", 1)
        markdown = _relinked((ROOT / "README.md").read_text(encoding="utf-8"), uri, "README.md")
        markdown += "\n" + _relinked(index, uri, "docs/README.md")
    else:
        markdown = _relinked(markdown, uri, _source.get(uri, f"docs/{uri}"))
    markdown = re.sub(r"^<!-- api: (\S+) -->$", r"::: \1", markdown, flags=re.MULTILINE)
    return FENCE.sub(_fence, markdown)


def _shown(path: Path) -> bool:
    """Whether a linked file becomes a page; pictures and pages of docs/ are there already."""
    return ROOT / "docs" not in path.parents and path.suffix in (".md", ".py", ".ipynb", ".toml", ".yml", "")


def _uri(name: str) -> str:
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


def _relinked(markdown: str, uri: str, name: str) -> str:
    """Links of the file ``name`` of the repository, as the page ``uri`` has to make them."""

    def relink(found: re.Match[str]) -> str:
        link, anchor = found[1], found[2] or ""
        if not link:
            return found[0]
        target = os.path.normpath(Path(name).parent / link)
        if target.startswith("docs/"):
            there = target.removeprefix("docs/")
        elif target == "README.md":
            there = target
        else:
            there = _uri(target)
        return f"]({os.path.relpath(there, Path(uri).parent)}{anchor})"

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
