"""Stage 0. A name that is not there → the nearest one that is, as the hint at the end of a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

MOST = 1000  # names to compare with: each takes as long as it is, squared
LONGEST = 300


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


def module_hint(name: str, folder: Path) -> str:
    """The nearest module of a working folder, whose function a user may have meant."""
    function = name.partition(":")[2]
    files = (each.stem for each in sorted(folder.glob("*.py")))
    packages = (each.parent.name for each in sorted(folder.glob("*/__init__.py")))
    return hint(name, (f"{module}:{function}" for module in (*files, *packages)))
