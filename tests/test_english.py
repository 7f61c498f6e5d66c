"""Docstrings begin with what a function does or returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "dpstride"
NOT_FIRST = {"What", "Whether", "How", "Of", "By"}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def first_words(source: str) -> Iterator[tuple[int, str]]:
    """The first word of every docstring, with the line of what it documents."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text.split()[0].strip(",.;:")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_docstring_begins_with_a_question_word(path: Path) -> None:
    found = [(line, word) for line, word in first_words(path.read_text(encoding="utf-8")) if word in NOT_FIRST]
    assert not found, f"{path.name}: begin with what it does or returns, not with {found}"


def test_first_words_are_found() -> None:
    source = '"""Of x."""\nclass A:\n    """What, then."""\n    def f(self):\n        """Returns."""\n'
    assert list(first_words(source)) == [(1, "Of"), (2, "What"), (4, "Returns")]
