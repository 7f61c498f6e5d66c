"""The log of a run as scalars for TensorBoard, in addition to log.json.

The log in the checkpoint is authoritative: when a run starts or resumes, all of it is rewritten, and the contents of earlier
files are purged. So no record is missing or duplicated, whenever a run was killed and whenever the option was first given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpstride.runs.extras import require
from dpstride.runs.lock import ProgressError

FOLDER = "tensorboard"


def require_tensorboard() -> Any:
    """The writer of event files, or an error that names the package to install."""
    needed, instead = "Scalars for TensorBoard need the package tensorboard", ", or train without --tensorboard"
    return require("torch.utils.tensorboard", needed, "tensorboard", instead=instead).SummaryWriter


def check_tensorboard(asked: bool, export_only: bool) -> None:
    """Raise if scalars cannot be written, before data are read."""
    if asked and export_only:
        raise ValueError("--tensorboard records training, and --export-only does not train. Leave one of them out.")
    if asked:
        require_tensorboard()


@contextmanager
def scalars_of(folder: Path, log: list[dict[str, Any]], batch_size: int) -> Iterator[Callable[[], None]]:
    """Write the current log, and yield a function that writes the records added since."""
    began = time.time() - 3600.0 * (_hours(log[-1]) if log else 0.0)
    written = 0

    def write() -> None:
        nonlocal written
        with _named(folder):
            for number, record in enumerate(log[written:], start=written):
                earlier = log[number - 1] if number else {"step": 0}
                for name, value in scalars(record, earlier, batch_size).items():
                    writer.add_scalar(name, value, record["step"], walltime=began + 3600.0 * _hours(record))
            writer.flush()  # before the checkpoint is written, so that its records are in the file
        written = len(log)

    with _named(folder):
        writer = require_tensorboard()(str(folder / FOLDER), purge_step=0)
    try:
        write()
        yield write
    finally:
        with _named(folder):
            writer.close()


def scalars(record: dict[str, Any], earlier: dict[str, Any], batch_size: int) -> dict[str, float]:
    """Numbers of a record by their names in TensorBoard; the rate includes the time for held-out losses."""
    seconds = 3600.0 * (_hours(record) - _hours(earlier))
    found = {
        "loss/training": record["train_loss"],
        "loss/held_out": record["held_out_loss"],
        "loss/held_out_bits_per_character": record.get("held_out_bits"),
        "learning_rate": record.get("learning_rate"),
        "samples_per_second": batch_size * (record["step"] - earlier["step"]) / seconds if seconds > 0.0 else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _hours(record: dict[str, Any]) -> float:
    return record.get("hours") or 0.0  # early versions did not record it


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProgressError(
            f"{folder / FOLDER}: scalars could not be written ({error}). Fix this, or leave out --tensorboard, and run the "
            "same command again to resume from the last checkpoint."
        ) from error
