"""One file from which training resumes exactly: everything that the next step depends on, written atomically."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..reading.checkpoints import read_checkpoint
from ..reading.limits import UnreadableFileError
from ..runs.lock import ProgressError
from ..runs.writing import atomic

FORMAT = "dpstride-training-1"
FILE = "checkpoint.pt"
# Parts of a checkpoint and their types; tensors are compared with those of the network when they are loaded.
PARTS: dict[str, type | tuple[type, ...]] = {
    "settings": dict,
    "step": int,
    "seconds": (int, float),
    "network": dict,
    "ema": dict,
    "optimiser": dict,
    "sampler": (dict, type(None)),
    "rng": torch.Tensor,
    "log": list,
    "recent": list,
}
# Settings of older checkpoints, which did not store these; of the data they stored only the number.
LATER_SETTINGS = {"loss_aware": False, "attention": None, "flip": False, "cooldown": None, "classes": 0}
RECORD = {"step", "train_loss", "held_out_loss"}
DAMAGED = "It is damaged or not a checkpoint of dpstride train: remove it to start again, or train in another folder."


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write ``state`` atomically: after a kill or with a full disk, there is either the old file or the new one."""
    try:
        with atomic(folder / FILE) as file:
            torch.save({"format": FORMAT, **state}, file)
    except (OSError, RuntimeError) as error:  # torch wraps the error of the file
        raise ProgressError(
            f"{folder}: the checkpoint of step {state.get('step')} could not be written ({error}). The previous one is kept; "
            "fix this and run the same command again to resume from it."
        ) from error


def load_checkpoint(
    folder: Path, settings: dict[str, Any] | None = None, meaning: dict[str, Callable[[Any], Any]] | None = None
) -> dict[str, Any] | None:
    """The saved state, or None if there is none; raises ValueError if it was made with other ``settings``.

    ``steps`` may differ: a run may be extended, and then follows the longer decay. Settings that can be written in several
    ways are compared by their ``meaning``.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    state = read_checkpoint(path)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise UnreadableFileError(f"{path}: format {found!r:.80} is not {FORMAT!r}; train again in another folder.")
    for name, kind in PARTS.items():
        if name not in state or not isinstance(state[name], kind):
            raise UnreadableFileError(f"{path}: it has no valid {name!r}. {DAMAGED}")
    if state["step"] < 0 or not all(isinstance(loss, float) for loss in state["recent"]):
        raise UnreadableFileError(f"{path}: its step or its losses are not valid. {DAMAGED}")
    for record in state["log"]:
        if not isinstance(record, dict) or not record.keys() >= RECORD or not all(map(_number, record.values())):
            raise UnreadableFileError(f"{path}: its log has an entry that is not a record of a run. {DAMAGED}")
    for name, value in (settings or {}).items():
        found = state["settings"].get(name, value if name == "data" else LATER_SETTINGS.get(name))
        if name == "data" and found != value:
            raise ValueError(
                f"{path}: it was made with other images, or with another number of held-out images (--held-out). Give the "
                "same ones, or another folder to start again."
            )
        means = (meaning or {}).get(name, lambda value: value)
        if name != "steps" and means(found) != means(value):
            raise ValueError(
                f"{path}: it was made with {name} = {found!r}, not {value!r}. Give the same settings "
                "to resume it, or another folder to start again."
            )
    return state


def _number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
