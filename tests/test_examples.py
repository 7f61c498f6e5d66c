"""Every example runs as it stands, in a folder of its own; a notebook prints what it shows."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_docs import assert_printed

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_example_runs(example: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows what it did"


def run_cell(source: str, where: str, names: dict[str, object]) -> object:
    """Run a cell as a notebook does: the value of its last line, if it is an expression."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[notebook.name for notebook in NOTEBOOKS])
def test_notebook_runs_and_prints_what_it_shows(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells are plain Python here, so that no notebook server is needed to run them; pictures are not stored."""
    monkeypatch.chdir(tmp_path)
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert (document["nbformat"], len({cell["id"] for cell in document["cells"]})) == (4, len(document["cells"]))
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(document["cells"]):
        if cell["cell_type"] != "code":
            continue
        where = f"{notebook.name}, cell {number}"
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            shown_last = run_cell("".join(cell["source"]), where, names)
        forms = [getattr(shown_last, form)() for form in ("_repr_html_", "_repr_png_") if hasattr(shown_last, form)]
        assert not forms or any(forms), f"{where} shows nothing"
        assert all(shown["output_type"] == "stream" for shown in cell["outputs"]), f"{where} stores a picture"
        assert_printed(output.getvalue(), "".join("".join(shown["text"]) for shown in cell["outputs"]), where)


def test_the_quick_start_is_among_them() -> None:
    assert "quickstart.py" in [example.name for example in EXAMPLES]
    assert "quickstart.ipynb" in [notebook.name for notebook in NOTEBOOKS]
