"""What a person at a terminal sees: bars with rate and time left, colours; and none of it anywhere else."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import numpy as np
import pytest

import dpstride
from dpstride.cli import _run, cli

MODEL = """
import torch
import dpstride

process = dpstride.ForwardProcess.linear(40)

def denoiser():
    return dpstride.Denoiser(lambda x, t: 0.5 * x, process, predicts="x0", shape=(1, 3, 3))
"""
FIND = ["-m", "dpstride", "find", "terminal_model:denoiser", "data.npy", "-o", "out", "--samples", "20"]
SOLVE = """
    import numpy as np, dpstride
    from dpstride.solver import recurrence
    recurrence.DELAY = 0.0  # so short a table is solved before a bar is worth showing
    L = np.random.default_rng(0).random((201, 201))
    dpstride.solve(L)
    print("shown", flush=True)
    dpstride.solve(L, progress=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "terminal_model.py").write_text(MODEL)
    np.save("data.npy", np.random.default_rng(0).integers(0, 256, (40, 1, 3, 3), dtype=np.uint8))
    return tmp_path


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(arguments: list[str], **environment: str) -> str:
    """All that a process writes to a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**kept, "TERM": "xterm", **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        written = b""
        while chunk := _read(ours):
            written += chunk
    os.close(ours)
    assert process.returncode == 0, written.decode()
    return written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that nobody has the other end any more
        return b""


def test_a_terminal_gets_bars_and_colours(folder: Path) -> None:
    seen = on_terminal(FIND)
    assert "estimate: 100%" in seen
    assert " evaluations/s]" in seen
    assert "<00:00," in seen  # time left
    assert "\x1b[32m\x1b[1mDP stride" in seen
    assert "\x1b[33mNote:" in seen


def test_quiet_leaves_the_result_and_no_color_its_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has torch already, with streams that say they are a terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    seen = []
    for words in (["estimate", *FIND[3:5], "-o", "statistics.safetensors"], [*FIND[2:], "--quiet"]):
        for stream in ("stdout", "stderr"):
            monkeypatch.setattr(sys, stream, Screen())
        assert _run(words) == 0
        seen.append((sys.stdout.getvalue(), sys.stderr.getvalue()))
    sys.modules.pop("terminal_model", None)
    (_, talkative), (out, quiet) = seen
    assert "%|" in talkative
    assert not quiet
    assert out.startswith("bits/dim, held-out")
    assert "\x1b" not in out


def test_a_long_solution_has_a_bar(folder: Path) -> None:
    before, after = on_terminal(["-c", textwrap.dedent(SOLVE)]).split("shown")
    assert "solve" not in before
    assert "solve: 100%" in after


def test_nothing_moves_where_no_terminal_is(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for data in ("data.npy", "other.npy"):
        np.save("other.npy", np.load("data.npy")[::-1])
        assert _run(["estimate", "terminal_model:denoiser", data, "-o", f"{data}.safetensors"]) == 0
    assert _run(["solve", "data.npy.safetensors", "-o", "schedules.json"]) == 0
    assert _run(["evaluate", "schedules.json", "--statistics", "other.npy.safetensors"]) == 0
    sys.modules.pop("terminal_model", None)
    out, err = capfd.readouterr()
    assert "\nDP stride" in out
    assert out.count("need not give the best samples") == 2  # of solve, and under the table
    assert "T = 40" in err
    for text in (out, err):
        assert "\x1b" not in text
        assert "\r" not in text


def test_every_verb_speaks_to_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = [each for verb in cli.commands.values() for each in getattr(verb, "commands", {"": verb}).values()]
    for name, command in ((verb.name, verb) for verb in verbs):
        assert "--json" in {option for parameter in command.params for option in parameter.opts}, name
    path, file = tmp_path / "schedules.json", tmp_path / "list.txt"
    dpstride.even_stride(dpstride.ForwardProcess.linear(1000), 4).save(path)
    words = ["export", str(path), "--to", "diffusers", "-k", "4", "--json"]
    assert _run(words) == 0
    assert _run([*words, "-o", str(file)]) == 0
    printed, written = map(json.loads, capsys.readouterr().out.splitlines())
    assert printed == {"to": "diffusers", "budget": 4, "value": [999, 749, 499, 249]}
    assert written == {"to": "diffusers", "budget": 4, "file": str(file)}
    assert json.loads(file.read_text()) == printed["value"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["find", "fashion-simpel", "data.npy", "-o", "out"], "Did you mean fashion-simple?"),
        (["find", "my-model", "data.npy", "-o", "out"], "a hub id is owner/name"),
        (["find", "terminal_modle:denoiser", "data.npy", "-o", "out"], "Did you mean terminal_model:denoiser?"),
        (["find", "pipelin", "data.npy", "-o", "out"], "Did you mean pipeline?"),
        (["find", "./pipelin", "data.npy", "-o", "out"], "Did you mean pipeline?"),
        (["find", "terminal_model:denoiser", "dta.npy", "-o", "out"], "Did you mean data.npy?"),
        (["find", "terminal_model:denoiser", "fashion-tran", "-o", "out"], "Did you mean fashion-train?"),
        (["fidn", "a", "b"], "Did you mean 'find'?"),
    ],
)
def test_a_slip_of_the_pen_gets_a_hint_at_once(
    arguments: list[str], hint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pipeline").mkdir()
    assert _run(arguments) == 2
    assert hint in capsys.readouterr().err
    sys.modules.pop("terminal_model", None)
