"""Stage 0. A name that is not there → the nearest one that is, as the hint at the end of a message."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

MOST = 1000  # names to compare with: each takes as long as it is, squared
LONGEST = 300
LONGEST_FILE = 1_000_000


def hint(name: str, names: Iterable[str]) -> str:
    """The words that ask whether the nearest of ``names`` was meant; none where no name is like it."""
    near = () if len(name) > LONGEST else (each for each in names if len(each) <= LONGEST)
    return "".join(f" Did you mean {best}?" for best in difflib.get_close_matches(name, list(islice(near, MOST)), n=1))


def path_hint(path: Path) -> str:
    """The nearest file or folder beside a path that is not there, written as the path was."""
    try:
        beside = sorted(str(path.parent / each.name) for each in path.parent.iterdir())
    except OSError:
        return ""
    return hint(str(path), beside)


def function_hint(name: str, folder: Path) -> str:
    """The function that makes a model, where ``name`` is that of a module in ``folder``, written with .py or without."""
    module = name.removesuffix(".py").removeprefix("./").replace("/", ".").rstrip(":")
    if not all(part.isidentifier() for part in module.split(".")):
        return ""
    path = folder.joinpath(*module.split("."))
    file = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
    if file is None:
        return ""
    found = re.findall(r"^def ([a-z]\w*)\((\)?)", file.read_text(errors="replace")[:LONGEST_FILE], re.MULTILINE)
    if not found:
        return f" {file} is here: name its function that returns the model, {module}:function."
    functions = [
        function for function, _ in sorted(found, key=lambda each: not each[1])
    ]  # first those without arguments
    best = next((each for each in ("denoiser", "model") if each in functions), functions[0])
    return f" Did you mean {module}:{best}?"


def module_hint(name: str, folder: Path) -> str:
    """The nearest module of a working folder, whose function a user may have meant."""
    function = name.partition(":")[2]
    files = (each.stem for each in sorted(folder.glob("*.py")))
    packages = (each.parent.name for each in sorted(folder.glob("*/__init__.py")))
    return hint(name, (f"{module}:{function}" for module in (*files, *packages)))
