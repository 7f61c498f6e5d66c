"""One file from which training goes on exactly: everything that the next step depends on, written atomically."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

FORMAT = "dpstride-training-1"
FILE = "checkpoint.pt"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write ``state`` so that a kill at any moment leaves either the old file or the new one."""
    temporary = folder / f"{FILE}.{os.getpid()}"
    with temporary.open("wb") as file:
        torch.save({"format": FORMAT, **state}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / FILE)


def load_checkpoint(folder: Path, settings: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The saved state, or None when there is none; with ``settings``, an error if it was made with other ones.

    ``steps`` may differ: a run may be made longer, and then goes on along the longer decay.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if state.get("format") != FORMAT:
        raise ValueError(f"{path}: format {state.get('format')!r} is not {FORMAT!r}; train again in another folder.")
    for name, value in (settings or {}).items():
        if name != "steps" and state["settings"].get(name) != value:
            raise ValueError(
                f"{path} was made with {name} = {state['settings'].get(name)!r}, not {value!r}. Give the same settings "
                "to go on with it, or another folder to start anew."
            )
    return state
