"""Stage 0. An unknown name → the nearest known one, as a hint at the end of a message."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

MOST = 1000  # names to compare with; the time for each is quadratic in its length
LONGEST = 300
LONGEST_FILE = 1_000_000


def hint(name: str, names: Iterable[str]) -> str:
    """Return the question whether the nearest of ``names`` was meant; empty if none is similar."""
    known = () if len(name) > LONGEST else (each for each in names if len(each) <= LONGEST)
    return "".join(f" Did you mean {best}?" for best in difflib.get_close_matches(name, list(islice(known, MOST)), n=1))


def path_hint(path: Path) -> str:
    """Return a hint at the file or folder with the nearest name to a missing path, written as the path was."""
    try:
        beside = sorted(str(path.parent / each.name) for each in path.parent.iterdir())
    except OSError:
        return ""
    return hint(str(path), beside)


def function_hint(name: str, folder: Path) -> str:
    """Return a hint at the function that makes a model, if ``name`` is a module in ``folder``, with .py or without."""
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
    # Functions without arguments come first.
    functions = [function for function, _ in sorted(found, key=lambda each: not each[1])]
    best = next((each for each in ("denoiser", "model") if each in functions), functions[0])
    return f" Did you mean {module}:{best}?"


def module_hint(name: str, folder: Path) -> str:
    """Return a hint at the nearest module of a working folder, whose function a user may have meant."""
    function = name.partition(":")[2]
    files = (each.stem for each in sorted(folder.glob("*.py")))
    packages = (each.parent.name for each in sorted(folder.glob("*/__init__.py")))
    return hint(name, (f"{module}:{function}" for module in (*files, *packages)))
