"""Every example runs as it stands, in a folder of its own; a notebook prints what it shows."""

from __future__ import annotations

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


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[notebook.name for notebook in NOTEBOOKS])
def test_notebook_runs_and_prints_what_it_shows(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells are plain Python here, so that no notebook server is needed to run them; pictures are not stored."""
    import matplotlib

    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert (document["nbformat"], len({cell["id"] for cell in document["cells"]})) == (4, len(document["cells"]))
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(document["cells"]):
        if cell["cell_type"] != "code":
            continue
        where = f"{notebook.name}, cell {number}"
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("".join(cell["source"]), where, "exec"), names)
        assert all(shown["output_type"] == "stream" for shown in cell["outputs"]), f"{where} stores a picture"
        assert_printed(output.getvalue(), "".join("".join(shown["text"]) for shown in cell["outputs"]), where)
    matplotlib.pyplot.close("all")


def test_the_quick_start_is_among_them() -> None:
    assert "quickstart.py" in [example.name for example in EXAMPLES]
    assert "quickstart.ipynb" in [notebook.name for notebook in NOTEBOOKS]
