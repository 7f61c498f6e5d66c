"""The judge of the fuzz tests can say no: readers with one fault each are found out."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import pytest
import readers


def nameless(folder: Path) -> Any:
    raise ValueError("something is wrong")


def talkative(folder: Path) -> Any:
    raise ValueError(f"{folder}: " + 10_000 * "x")


def greedy(folder: Path) -> Any:
    try:
        np.zeros(2**55)
    except MemoryError as error:
        raise ValueError(f"{folder}: cannot be read") from error


def crash(folder: Path) -> Any:
    raise KeyError(folder)


def careless(folder: Path) -> Any:
    return np.log(np.zeros(1))


@pytest.mark.parametrize(
    ("read", "error", "match"),
    [
        (nameless, AssertionError, "does not name the file"),
        (talkative, AssertionError, r"a message of \d+ characters"),
        (greedy, AssertionError, "memory ran out"),
        (crash, KeyError, "files"),
        (careless, RuntimeWarning, "divide by zero"),
    ],
)
def test_a_faulty_reader_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], Any],
    error: type[BaseException],
    match: str,
) -> None:
    good = readers.READERS["adaptive report"]
    calls = {"made": 0}

    def first_well(folder: Path) -> Any:
        calls["made"] += 1
        return good.read(folder) if calls["made"] == 1 else read(folder)

    monkeypatch.setitem(readers.READERS, "faulty", dataclasses.replace(good, read=first_well))
    with pytest.raises(error, match=match):
        campaign.fuzz("faulty", 5, tmp_path / "files", 0)


def test_a_reader_that_never_returns_is_ended(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, types, itertools\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import campaign\n"
        "campaign.SECONDS = 0.2\n"
        "count = itertools.count()\n"
        "def read(folder):\n"
        "    while next(count): pass\n"
        "strategy = lambda content: __import__('hypothesis').strategies.binary()\n"
        "make = lambda folder: (folder / 'a').write_bytes(b'')\n"
        "reader = types.SimpleNamespace(make=make, read=read, use=bool, targets={'a': strategy}, names_the_file=False)\n"
        "sys.modules['readers'] = types.SimpleNamespace(READERS={'slow': reader}, restore=lambda good, folder: None)\n"
        "campaign.fuzz('slow', 5, pathlib.Path(sys.argv[2]), 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "f")], check=False)
    assert done.returncode == -27
