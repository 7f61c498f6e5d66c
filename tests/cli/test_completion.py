"""Shell completion: a real bash completes, and every shell is told how to ask."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpstride.cli import _run

COMMAND = Path(sys.executable).parent / "dpstride"


@pytest.mark.skipif(
    shutil.which("bash") is None or not COMMAND.is_file(), reason="needs bash and an installed dpstride"
)
def test_bash_completes_verbs_options_and_embedded_names() -> None:
    script = """
    eval "$(dpstride completion bash)"
    compopt() { echo "compopt $@"; }
    for words in "dpstride rep" "dpstride report --js" "dpstride solve --variance po" "dpstride find fashion-s" \
      "dpstride study model fashion-tr" "dpstride find model images --heldout fashion-te" "dpstride find im"; do
      COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
      _dpstride_completion dpstride
      echo "${COMPREPLY[@]}"
    done
    """
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    files = "compopt -o default"  # what bash then offers where no name was found
    names = [line for name in ("fashion-simple", "fashion-train", "fashion-test", "") for line in (files, name)]
    assert done.stdout.split("\n")[:-1] == ["report", "--json", "posterior", *names]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_lines(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["completion", shell]) == 0
    lines = capsys.readouterr().out
    assert f"_DPSTRIDE_COMPLETE={shell}_complete" in lines
    assert "\\x" not in lines  # nothing was escaped on the way
    assert _run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lines"].split() == lines.split()
