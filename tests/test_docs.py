"""What README and docs/ show is what happens: blocks run, commands parse, links resolve, quoted messages exist.

How a fenced block is marked says what is done with it:

    ```python            run; the blocks of a page are one program, in a temporary folder of its own
    ```python my_model.py  written to that file as well, then run
    ```python no-run     only compiled: it needs something that is not here
    ```text output       must be what the block above it printed; numbers may differ by 1 in their last digit
    ```console           every `$ dpstride …` must parse, every `$ make …` must be a target
    ```sh                the same for every line: commands alone, without a prompt, to be copied
    ```console run       run, in the page's folder, in the order of the page; what is shown below a command is compared
                         (a last line … stands for the rest)
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import importlib.util
import io
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

import dpstride
from dpstride.cli import _run, cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    mark: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    blocks: list[Block] = []
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if opened is None and line.startswith("```"):
            opened, lines = (number, line[3:].strip()), []
        elif opened is not None and line == "```":
            language, _, mark = opened[1].partition(" ")
            blocks.append(Block(opened[0], language, mark, "\n".join(lines) + "\n"))
            opened = None
        elif opened is not None:
            lines.append(line)
    assert opened is None, f"{page}: the block of line {opened} is never closed"
    return blocks


def commands_of(block: Block) -> list[tuple[list[str], str]]:
    """The words of each command of a console or sh block, and the output shown below it."""
    found: list[tuple[list[str], str]] = []
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        return [(shlex.split(line, comments=True), "") for line in text.splitlines()]
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((shlex.split(line[2:], comments=True), ""))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def assert_printed(printed: str, shown: str, where: str) -> None:
    """The same words, and the same numbers up to one unit of the last digit shown; a last line … leaves the rest out."""
    shown = shown.rstrip()
    if shown.endswith("\n…"):
        shown = shown.removesuffix("\n…")
        printed = "\n".join(printed.splitlines()[: len(shown.splitlines())])
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split(), f"{where} printed:\n{printed}"
    for found, expected in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        digits = expected.partition("e")[0].partition(".")[2]
        exponent = int(expected.partition("e")[2] or 0)
        unit = 10.0 ** (exponent - len(digits)) if digits or "e" in expected else 0.0
        value, target = (float(number.replace(",", "")) for number in (found, expected))
        assert abs(value - target) <= 1.0001 * unit, f"{where} printed {found}, not {expected}:\n{printed}"


# --- Python and console blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    try:
        for block in blocks_of(page):
            where = f"{page.name}, line {block.line}"
            if block.language == "python" and block.mark == "no-run":
                compile(block.text, where, "exec")
            elif block.language == "python":
                if block.mark:
                    Path(block.mark).write_text(block.text, encoding="utf-8")
                    importlib.invalidate_caches()
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
                printed = output.getvalue()
            elif (block.language, block.mark) == ("text", "output"):
                assert_printed(printed, block.text, where)
            elif (block.language, block.mark) == ("console", "run"):
                for words, shown in commands_of(block):
                    output = io.StringIO()
                    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()) as errors:
                        code = _run(words[1:])
                    assert (words[0], code) == ("dpstride", 0), (
                        f"{where}: {words} ended with {code}\n{errors.getvalue()}"
                    )
                    assert "%|" not in errors.getvalue(), f"{where}: a progress bar where no terminal is"
                    if shown.strip():
                        assert_printed(output.getvalue(), shown, where)
    finally:
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
                del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_parse(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for block in blocks_of(page):
        if block.language not in ("console", "sh"):
            continue
        for words, _ in commands_of(block):
            where = f"{page.name}, line {block.line}: {shlex.join(words)}"
            if words[0] == "make":
                assert set(words[1:]) <= set(targets), where
            elif words[0] == "dpstride" and len(words) > 1 and not words[1].startswith("-"):
                command = cli.commands[words[1]]
                for word in words[2:]:  # options that name an existing file are checked while parsing
                    if word.endswith((".json", ".safetensors")):
                        Path(word).parent.mkdir(parents=True, exist_ok=True)
                        Path(word).touch()
                try:
                    command.make_context(words[1], words[2:])
                except click.exceptions.Exit:
                    pass  # --help
                except click.ClickException as error:
                    pytest.fail(f"{where}: {error.format_message()}")


def test_no_run_is_rare() -> None:
    marked = [block.mark for page in PAGES for block in blocks_of(page) if block.language == "python"]
    assert marked.count("no-run") <= len(marked) // 4
    assert len(marked) >= 10  # that the blocks are found at all


def test_blocks_that_cannot_run_here_import_what_they_use() -> None:
    """Nobody runs them, so a forgotten import would be found by whoever copies them."""
    for page in PAGES:
        known = set(dir(builtins))
        for block in blocks_of(page):
            if block.language != "python":
                continue
            nodes = list(ast.walk(ast.parse(block.text)))
            for node in nodes:
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    known |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    known.add(node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    known.add(node.id)
                elif isinstance(node, ast.arg):
                    known.add(node.arg)
            unknown = {node.id for node in nodes if isinstance(node, ast.Name)} - known
            packages = {name for name in unknown if importlib.util.find_spec(name) is not None}
            assert not packages, f"{page.name}, line {block.line}: {packages} are not imported on the page"


# --- links, figures, quoted messages, machine paths -------------------------------------------------------------------


def prose_of(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """GitHub's anchors: the heading in lower case, without punctuation, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_resolve(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", prose_of(page))
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert ROOT in (target, *target.parents), f"{page.name}: {link} leaves the repository"
        if anchor:
            assert anchor in anchors_of(target), f"{page.name}: {link}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert page.name == "README.md" or f"({page.name})" in index, f"docs/README.md does not list {page.name}"


def test_the_reference_says_what_the_docstrings_say() -> None:
    """Every public name has a row with the first sentence of its docstring, and a place where the site puts the rest."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE))
    public = [name for name in dpstride.__all__ if not name.startswith("_")]
    assert sorted(rows) == sorted(public)
    assert sorted(re.findall(r"^<!-- api: dpstride\.(\w+) -->$", page, re.MULTILINE)) == sorted(public)
    for name in public:
        first = " ".join((getattr(dpstride, name).__doc__ or "").split("\n\n")[0].split()).replace("``", "`")
        assert rows[name] == first.replace("|", "\\|"), name


def messages_in_source() -> list[str]:
    """Every text in the package, with … for what is filled in."""
    texts = []
    for path in (ROOT / "src" / "dpstride").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


def test_quoted_messages_exist() -> None:
    """The first column of a table headed "message" quotes texts of the package; … stands for anything."""
    page = ROOT / "docs" / "own-model.md"
    quoted = [
        row
        for table in re.findall(
            r"^\| message \|.*?(?=^\s*$)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
        for row in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    ]
    assert len(quoted) >= 15
    sources = messages_in_source()
    for quote in quoted:
        pattern = re.compile(".*".join(re.escape(piece.strip()) for piece in quote.split("…")), re.DOTALL)
        assert any(pattern.search(text) for text in sources), f"no message of the package reads {quote!r}"


def test_the_readme_and_the_quick_start_tell_of_one_demo() -> None:
    """Whoever runs the demo anew changes the table of docs/quickstart.md; the README repeats its column of 32 steps."""
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    table = page[page.index("<!-- demo:begin") : page.index("<!-- demo:end")]
    rows = {words: numbers.split() for words, numbers in re.findall(r"^(\w+ stride) +(\d.*)$", table, re.MULTILINE)}
    column = re.search(r"^bits/dim, held-out +(.*)$", table, re.MULTILINE)
    assert column is not None
    at = column[1].split().index("32")
    said = (rows["DP stride"][at], rows["even stride"][at], rows["quadratic stride"][at], rows["DP stride"][-1])
    sentence = (
        r"32 of its 1,000 steps .* at (\S+) bits.* even steps at (\S+), quadratic ones at (\S+), and all .* at (\S+)\. "
    )
    found = re.search(sentence, " ".join((ROOT / "README.md").read_text(encoding="utf-8").split()))
    assert found is not None
    assert found.groups() == said


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_machine_paths(page: Path) -> None:
    found = re.findall(r"(?:/home/|/work/|/root/|/Users/|/tmp/)\S*", page.read_text(encoding="utf-8"))
    assert not found, found
