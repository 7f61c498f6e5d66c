"""Stage 7. Units of samples, computed in threads and helper processes, and stored so that a kill loses less than a minute.

A unit of a thousand steps takes minutes, so its state is also saved between steps, beside the finished units.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..runs.identity import OtherWorkError, check_identity
from ..runs.progress import Progress, progress_folder
from ..runs.storage import Arrays, DamagedFileError, read_arrays, write_arrays
from ..runs.workers import current

FORMAT = "dpstride-features-1"
STATES = "state-*.safetensors"
BROKEN = (KeyError, TypeError, ValueError, RecursionError)  # raised by a header that dpstride did not write
Unit = tuple[int, int]  # the first sample, and the number of them
Update = Callable[[int], object]


class UnitStore:
    """One file of results, and beside it a folder with the finished units and the states of unfinished ones.

    Units are computed ``at_once`` at a time, each in a thread (`Workers.map`); when one fails, the others save their states.
    """

    def __init__(
        self,
        path: Path,
        identity: dict[str, Any],
        at_once: int = 1,
        update: Update = lambda items: None,
        *,
        hands_over: bool = False,
    ) -> None:
        self.path, self.identity = path, json.loads(json.dumps(identity))
        self.folder = progress_folder(path)
        self.at_once, self.hands_over, self._update = at_once, hands_over, update
        self.alone, self.stopped = threading.Lock(), threading.Event()

    def update(self, items: int) -> None:
        """Report progress, one thread at a time."""
        with self.alone:
            self._update(items)

    def give_up_others(self) -> None:
        """Remove stored results of other work."""
        try:
            Progress(self.folder, self.identity).close()
        except OtherWorkError:
            shutil.rmtree(self.folder)

    def collect(
        self,
        done: dict[Unit, Arrays],
        n: int,
        size: int,
        compute: Callable[[Unit], Arrays],
        received: Callable[[Unit], object],
        write: Callable[[Arrays], None],
    ) -> Arrays | None:
        """Compute what is missing of items 0 … n − 1 and write the whole; None in helper processes.

        Args:
            done: units that exist already.
            n: number of items.
            size: items per unit.
            compute: returns the arrays of a unit, items first.
            received: called with units that were computed elsewhere.
            write: writes the whole to the file.
        """
        workers = current()
        workers.agree(self.identity)
        if workers.share(sum(count for _, count in done) >= n if workers.main else None):
            return _joined(done, n) if workers.main else None
        own: set[Unit] = set()

        def compute_own(unit: Unit) -> Arrays:
            own.add(unit)
            return compute(unit)

        if not workers.main:
            units = [(first, count) for first, count in workers.share(None)]
            for _ in workers.map(compute_own, units, self.at_once, self.stopped.set, hands_over=self.hands_over):
                pass
            return None
        with Progress(self.folder, self.identity) as progress:
            self.identity = progress.identity
            done |= {_unit_of(key): arrays for key, arrays in progress.read()}
            missing = workers.share(_missing(done, n, size))
            units = [(first, count) for first, count in missing]
            for unit, arrays in workers.map(
                compute_own, units, self.at_once, self.stopped.set, hands_over=self.hands_over
            ):
                progress.write(f"{unit[0]} {unit[1]}", arrays)
                if self._state_of(unit).exists():  # minutes of work, which must not wait for the next flush
                    progress.flush()
                    self.forget(unit)
                done[unit] = arrays
                if unit not in own:
                    received(unit)
            result = _joined(done, n)
            write(result)
            for state in self.folder.glob(STATES):  # of units of another batch size
                state.unlink()
            progress.remove()
        return result

    # --- the state of a unit between two steps

    def remember(self, unit: Unit, step: int, x: Tensor) -> None:
        """Save the state before ``step``, if the folder exists (it does not on a helper's own machine)."""
        if self.folder.is_dir():
            header = {"format": FORMAT, "identity": json.dumps(self.identity), "step": str(step)}
            write_arrays(self._state_of(unit), {"x": x.cpu().numpy()}, header)

    def recall(self, unit: Unit) -> tuple[int, Tensor] | None:
        """The step to resume with, and its state."""
        path = self._state_of(unit)
        if not path.is_file():
            return None
        with suppress(DamagedFileError, *BROKEN):
            arrays, header = read_arrays(path)
            check_identity(path, json.loads(header["identity"]), self.identity)
            return int(header["step"]), torch.from_numpy(arrays["x"])
        self.forget(unit)
        return None

    def forget(self, unit: Unit) -> None:
        """Remove the state of a unit that is finished, or a state that cannot be used."""
        self._state_of(unit).unlink(missing_ok=True)

    def _state_of(self, unit: Unit) -> Path:
        return self.folder / STATES.replace("*", f"{unit[0]}-{unit[1]}")


def _joined(done: dict[Unit, Arrays], n: int) -> Arrays:
    """The first n items of every array, in order; names are sorted too, since files return them in any order."""
    order = sorted(done)
    return {name: np.concatenate([done[unit][name] for unit in order])[:n] for name in sorted(done[order[0]])}


def _missing(done: dict[Unit, Arrays], n: int, size: int) -> list[Unit]:
    """Units of at most ``size`` that cover what is not done of 0 … n − 1."""
    have = np.zeros(n, dtype=bool)
    for first, count in done:
        have[first : first + count] = True
    units: list[Unit] = []
    for first in np.flatnonzero(~have).tolist():
        if units and first == sum(units[-1]) and units[-1][1] < size:
            units[-1] = (units[-1][0], units[-1][1] + 1)
        else:
            units.append((first, 1))
    return units


def _unit_of(key: str) -> Unit:
    first, count = key.split()
    return int(first), int(count)
