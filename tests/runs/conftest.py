"""Folders in which a run has been, or is about to be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_commands import FIND, command, environment, write_inputs


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which FIND has run."""
    folder = tmp_path_factory.mktemp("done")
    write_inputs(folder)
    subprocess.run(command(*FIND, "-q"), cwd=folder, env=environment(folder), check=True, capture_output=True)
    return folder / "out"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("runs_model", None)
    yield tmp_path
    sys.modules.pop("runs_model", None)


@pytest.fixture
def out(place: Path, done: Path) -> Path:
    """A copy of it."""
    shutil.copytree(done, place / "out")
    return place / "out"
