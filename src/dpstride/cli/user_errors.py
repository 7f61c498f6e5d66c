"""Stage 9. Errors in a user's function are reported with its file and line, without our own stack."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from ..reading.text import one_line

PACKAGE = Path(__file__).parents[1]
_INSTALLED = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def place_of(error: BaseException) -> str:
    """Return where the user's own code failed, as " (in denoiser, my_model.py, line 12)"; "" if it failed elsewhere."""
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return f" (in {_short(error.filename)}, line {error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_users(frame.filename):
            return f" (in {frame.name}, {_short(frame.filename)}, line {frame.lineno})"
    return ""


def _is_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in (PACKAGE, *_INSTALLED))


def _short(filename: str) -> str:
    path = Path(filename).resolve()
    return one_line(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
